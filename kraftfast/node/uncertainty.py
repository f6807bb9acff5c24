"""What a start leaves in doubt, a phantom tail or a lost memory, and when its marks go (D10)."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from kraftfast.errors import DiskFull
from kraftfast.log.small_files.marks import PHANTOM_TAIL

if TYPE_CHECKING:
    from kraftfast.core.replica import Replica
    from kraftfast.log.small_files.directory import ReplicaDirectory
    from kraftfast.types import OffsetAndEpoch

RETRY_MS = 1_000
"""Until a mark that found no room is written again."""


class Uncertainty:
    """The marks in a replica's directory; the core decides when they have served."""

    # directory: whose. in_memory: durability=memory.
    # memory_lost: it was written in another boot and not closed, or pages are gone in this one, as
    # after a file system that shut itself down. phantom_tail: of the log, or None.

    def __init__(self, directory: ReplicaDirectory) -> None:
        """Look at what the process before left. Raises StorageError where no boot can be told."""
        self.directory = directory
        self.in_memory = directory.in_memory
        self.memory_lost = self.in_memory and not directory.keeps_memory()
        self.phantom_tail: OffsetAndEpoch | None = None
        self._retry_at_ms = 0

    def opened(self, phantom_tail: OffsetAndEpoch | None) -> None:
        """Record that the log is open: from now on it may be acknowledged from memory."""
        self.phantom_tail = phantom_tail
        if self.in_memory and phantom_tail is not None:
            self.memory_lost = True  # where some pages are gone others may be, and leave no trace
        if self.in_memory and not self.memory_lost:
            self.directory.write_boot_id()

    def tend(self, core: Replica, now_ms: int) -> None:
        """Forget what was in doubt once the core has.

        On a full disk the mark of a lost memory stays until there is room: until then another start
        is in doubt again, which is safe (D25).
        """
        if not self.memory_lost and self.phantom_tail is None or core.in_doubt:
            return
        if self.phantom_tail is not None:
            self.directory.disk.unlink(os.path.join(self.directory.path, PHANTOM_TAIL))
            self.directory.disk.sync_directory(self.directory.path)
            self.phantom_tail = None
        if self.memory_lost and now_ms >= self._retry_at_ms:
            try:
                self.directory.write_boot_id()
                self.memory_lost = False
            except DiskFull:
                self._retry_at_ms = now_ms + RETRY_MS

    def closed(self) -> None:
        """Record that everything is on disk, whatever the durability."""
        if self.in_memory and not self.memory_lost:
            self.directory.clear_boot_id()
