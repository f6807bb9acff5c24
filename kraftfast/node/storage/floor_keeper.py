"""Keep the durable floor of the committed offset: ``log/small_files/committed_floor.py`` (D23)."""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.errors import DiskFull, OutOfResources
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.committed_floor import NOTHING, check_floor, read_floor, write_floor
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.core.replica import Replica
    from kraftfast.log.log import Log

PERIOD_MS = 5_000
"""The least time between writes; a new voter set and a new segment are written at once."""

Ask = Callable[[Callable[[], bool], Callable[[bool], None]], None]


class CommittedFloor:
    """The floor of one replica.

    Invariant: what is stored must have been committed, and on this disk, when it was stored.
    """

    # disk, directory, log: whose. stored: what the file holds. due_ms: no write before that.
    # retry_ms: no write before that, however urgent: the disk was full. writing: one is under way
    # beside the loop. _lock: held while the file is written; _written: what is in it by then.

    def __init__(self, disk: Disk, directory: str, log: Log) -> None:
        """Read the floor and compare it with the recovered log. Raises CorruptLog."""
        self.disk, self.directory, self.log = disk, directory, log
        self.stored = read_floor(disk, directory)
        check_floor(directory, self.stored, log.end_offset, self._epoch_before(self.stored.offset))
        self.due_ms = self.retry_ms = 0
        self.writing = False
        self._lock, self._written = threading.Lock(), self.stored

    def tend(self, core: Replica, now_ms: int, ask: Ask) -> None:
        """Write the floor beside the loop if it has moved and a write is due.

        ``ask(job, done)``: run ``job`` beside the loop, then ``done`` with its result in the loop.
        A full disk puts the write off.
        """
        if self.writing or now_ms < self.retry_ms:
            return
        if now_ms < self.due_ms and not self._is_urgent(core):
            return
        place = self._place(core)
        if place.offset <= self.stored.offset:
            return
        self.due_ms = now_ms + PERIOD_MS
        self.writing = True

        def done(written: bool) -> None:
            self.writing = False
            if written:
                self.stored = place
            else:
                self.retry_ms = self.due_ms

        ask(lambda: self._write(place), done)

    def close(self, core: Replica) -> None:
        """Write the floor at the end of an orderly stop; the log is flushed and closed."""
        place = self._place(core)
        if place.offset > self.stored.offset and self._write(place):
            self.stored = place

    def _is_urgent(self, core: Replica) -> bool:
        """Return whether the floor does not cover the newest segment or voter set yet.

        With a floor inside the newest segment the next start can tell that this one is missing; so
        it must also be behind the newest snapshot, which stands for all below its end.
        """
        stored, committed = self.stored.offset, core.uncuttable_offset
        begin, snapshots = self.log.active.base_offset, core.snapshots
        if snapshots and snapshots[-1].offset > begin:
            begin = snapshots[-1].offset
        if stored <= begin < min(committed, self.log.flushed_end_offset):
            return True
        return bool(stored <= core.history.last_offset < committed)

    def _place(self, core: Replica) -> OffsetAndEpoch:
        """Return the end of what is both committed and flushed here, with its epoch."""
        offset = min(core.uncuttable_offset, self.log.flushed_end_offset)
        epoch = self._epoch_before(offset)
        return NOTHING if epoch < 0 else OffsetAndEpoch(offset, epoch)

    def _epoch_before(self, offset: int) -> int:
        """Return the epoch of the record before ``offset``, -1 if the log does not hold it."""
        epochs = self.log.epochs
        if not self.log.log_start_offset < offset <= self.log.end_offset:
            return -1
        found = bisect_right(epochs, offset - 1, key=lambda entry: entry[1])
        return int(epochs[found - 1][0]) if found else -1

    def _write(self, place: OffsetAndEpoch) -> bool:
        """Store a floor, False without space or descriptors. One that comes late lowers nothing.

        At a stop the thread beside the loop may have a write under way, or before it.
        """
        with self._lock:
            if place.offset <= self._written.offset:
                return True
            try:
                write_floor(self.disk, self.directory, place)
            except (DiskFull, OutOfResources):
                return False
            self._written = place
        return True
