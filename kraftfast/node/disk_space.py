"""What is looked at now and then: whether there is room on the disk, and still a directory.

A leader whose disk stays full lets another try, once until there is space again. Where the others
have no room either one of them leads, and refuses appends as this one did.
"""

from __future__ import annotations

from typing import Any

from kraftfast.core import events as ev

LOOK_MS = 1000
"""How often to look whether the directory and the newest segment can still be reached."""
FULL_MS_MAX = 2000
"""How long a leader whose disk is full refuses appends before it lets another try."""


class DiskSpace:
    """What is known of the room on a replica's disk."""

    # full_ms: since when there has been none, -1 if there is. yielded: leadership was given up for
    # that already. look_ms: when to look for the directory.

    def __init__(self) -> None:
        self.full_ms = -1
        self.yielded = False
        self.look_ms = 0

    def mind(self, node: Any, now_ms: int) -> None:
        """Look whether the nursery found room, and resign if it has not for long.

        Raises StorageError if the directory or the newest segment was removed or moved: the replica
        stops.
        """
        if now_ms >= self.look_ms:
            self.look_ms = now_ms + LOOK_MS
            check_place(node)
        if node.log.error is None:
            if self.full_ms >= 0:
                node.tell("disk_has_room")
            self.full_ms, self.yielded = -1, False
        elif self.full_ms < 0:
            self.full_ms = now_ms
            node.tell("disk_full", why=node.log.error)
        elif node.core.role == "leader" and not self.yielded:
            refuses = node.appends_held or node.control is not None
            if refuses and now_ms - self.full_ms >= FULL_MS_MAX:
                self.yielded = True
                node.step(ev.ResignRequested(node.core.epoch))


def check_place(node: Any) -> None:
    """Check that a start would find what is acknowledged here (D18). Raises StorageError."""
    node.directory.check()
    file = node.log.active.file
    node.host.disk.check_place(file.path, file.fd)
