"""Look now and then at the disk: its room, and the directory's place.

A leader whose disk stays full hands over to the next voter, in turn, that has all of the log: so
one that has room leads at last, and appends go on (L6). It does so again whenever it leads; where
no disk has room, leaders change less and less often.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.node.giving_way import GivingWay

if TYPE_CHECKING:
    from kraftfast.node.node import Node

LOOK_MS = 1000
"""How often to look whether the directory and the newest segment can still be reached."""
FULL_MS_MAX = 2000
"""How long a disk may be full before its leader, if appends wait for room, hands over."""


class DiskSpace:
    """What a replica knows of the room on its disk."""

    # full_ms: when the disk became full, -1 if it has room. giving_way: hand-overs because of that.
    # look_ms: when to look for the directory next.

    def __init__(self) -> None:
        self.full_ms, self.look_ms, self.giving_way = -1, 0, GivingWay()

    def tend(self, node: Node, now_ms: int) -> None:
        """Hand over leadership if the disk has been full for long.

        Raises StorageError, which stops the replica, if the directory or the newest segment was
        removed or moved.
        """
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + LOOK_MS
            check_place(node)
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
    """Check that a start would find the files of this log (D18). Raises StorageError."""
    node.directory.check()
    file = node.log.active.file
    node.host.disk.check_place(file.path, file.fd)
