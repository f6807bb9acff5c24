"""What is looked at now and then: whether there is room on the disk, and still a directory.

A leader whose disk stays full lets the next voter try that has all of the log, by turns: so one
that has room leads at last, and appends go on (L6). It does so again whenever it leads; where no
disk has room, leaders change less and less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.node.damage import Damage
from kraftfast.node.giving_way import GivingWay

if TYPE_CHECKING:
    from kraftfast.node.node import Node

LOOK_MS = 1000
"""How often to look whether the directory and the newest segment can still be reached."""
FULL_MS_MAX = 2000
"""How long a disk is full before its replica, if it leads and refuses appends, lets another try."""


class DiskSpace:
    """What is known of the room on a replica's disk, and of damage there."""

    # full_ms: since when there has been no room, -1 if there is. giving_way: because of that.
    # look_ms: when to look for the directory.

    def __init__(self) -> None:
        self.full_ms, self.look_ms = -1, 0
        self.giving_way, self.damage = GivingWay(), Damage()

    def mind(self, node: Node, now_ms: int) -> None:
        """Look whether the nursery found room, and hand leadership over if it has not for long.

        Raises StorageError if the directory or the newest segment was removed or moved: the replica
        stops.
        """
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + LOOK_MS
            check_place(node)
        self.damage.mind(node, now_ms)
        if node.log.error is None:
            if self.full_ms >= 0:
                node.tell("disk_has_room")
            self.full_ms = -1
        elif self.full_ms < 0:
            self.full_ms, self.giving_way = now_ms, GivingWay(now_ms + FULL_MS_MAX)
            node.tell("disk_full", why=node.log.error)
        elif node.core.role == "leader" and (node.appends_held or node.control is not None):
            self.giving_way.attempt(node, now_ms, node.log.end_offset, "no room for appends")


def check_place(node: Node) -> None:
    """Check that a start would find what is acknowledged here (D18). Raises StorageError."""
    node.directory.check()
    file = node.log.active.file
    node.host.disk.check_place(file.path, file.fd)
