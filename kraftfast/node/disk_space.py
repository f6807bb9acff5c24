"""What is looked at now and then: whether there is room on the disk, and still a directory.

A leader whose disk stays full lets the next voter try that has all of the log, by turns: so one
that has room leads at last, and appends go on (L6). It does so again whenever it leads; where no
disk has room, leaders change less and less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.node.failures import Unanswered

if TYPE_CHECKING:
    from kraftfast.node.node import Node

LOOK_MS = 1000
"""How often to look whether the directory and the newest segment can still be reached."""
FULL_MS_MAX = 2000
"""How long a disk is full before its replica, if it leads and refuses appends, lets another try."""
PAUSE_MS_MAX = 60_000
"""The longest time between two such attempts of one replica; the first is ``FULL_MS_MAX``."""


class DiskSpace:
    """What is known of the room on a replica's disk."""

    # full_ms: since when there has been none, -1 if there is. yield_ms: when leadership may be
    # handed over for that. pause_ms: between the last handover and yield_ms. successor: the replica
    # to which it was handed last, -1 for none. look_ms: when to look for the directory.

    def __init__(self) -> None:
        self.full_ms = self.successor = -1
        self.yield_ms = self.pause_ms = self.look_ms = 0

    def mind(self, node: Node, now_ms: int) -> None:
        """Look whether the nursery found room, and hand leadership over if it has not for long.

        Raises StorageError if the directory or the newest segment was removed or moved: the replica
        stops.
        """
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + LOOK_MS
            check_place(node)
        if node.log.error is None:
            if self.full_ms >= 0:
                node.tell("disk_has_room")
            self.full_ms = self.successor = -1
            self.pause_ms = 0
        elif self.full_ms < 0:
            self.full_ms, self.yield_ms = now_ms, now_ms + FULL_MS_MAX
            node.tell("disk_full", why=node.log.error)
        elif node.core.role == "leader" and now_ms >= self.yield_ms:
            if node.appends_held or node.control is not None:
                self._let_another_lead(node, now_ms)

    def _let_another_lead(self, node: Node, now_ms: int) -> None:
        """Hand over to the next voter, by turns, that follows and has all of the log.

        If two full disks preferred each other, a third one that has room would never lead.
        """
        own, oldest_ms = node.config.node_id, now_ms - node.quorum_config.fetch_timeout_ms
        followers = [
            voter.key.id
            for voter in node.core.describe(now_ms).voters
            if voter.key.id != own
            and voter.log_end_offset == node.log.end_offset
            and voter.last_fetch_ms > oldest_ms
        ]
        if not followers:
            return
        last = own if self.successor < 0 else self.successor
        self.successor = min(followers, key=lambda id: (id <= last, id))
        self.pause_ms = min(max(FULL_MS_MAX, 2 * self.pause_ms), PAUSE_MS_MAX)
        self.yield_ms = now_ms + self.pause_ms
        node.tell("leader_gives_way", successor_id=self.successor)
        node.step(ev.TransferRequested(Unanswered(), self.successor))


def check_place(node: Node) -> None:
    """Check that a start would find what is acknowledged here (D18). Raises StorageError."""
    node.directory.check()
    file = node.log.active.file
    node.host.disk.check_place(file.path, file.fd)
