"""A segment file of a log that another process may own: held by its lock, copied piece by piece.

The lock keeps an owner of ours from trimming and recycling the file. Others do not ask for it:
nothing is mapped (R10).
"""

from __future__ import annotations

import os
import time
from bisect import bisect_right
from typing import Protocol

from kraftfast import limits
from kraftfast.errors import StorageError
from kraftfast.log import scan
from kraftfast.log.disk import DISK, Disk, storage_error
from kraftfast.log.reading.copied_file import OPEN_END, SPAN_BYTES, CopiedFile
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_name

OWNER_BUSY_S_MAX = 5.0
OWNER_BUSY_PAUSE_S = 0.001
INDEX_ENTRY_BYTES = 8
PLACES_APART_BYTES = 64 * 1024
MAGIC = 2

Mark = tuple[int, int]
"""Offset and epoch, or two offsets."""


class Waits(Protocol):
    """How a reader waits: the module ``time``, or the threads of its host."""

    def monotonic(self) -> float:
        """Return the time since some moment, seconds."""

    def sleep(self, seconds: float, /) -> object:
        """Pause this thread."""


class OwnerBusy(StorageError):
    """The owner of a segment is at work on it, and its disk may be slow: try again."""


class HeldSegment(CopiedFile):
    """A segment file; until :meth:`close` its owner neither trims nor recycles it.

    Raises FileNotFoundError, StorageError; OwnerBusy after ``OWNER_BUSY_S_MAX``.
    """

    # base_offset: by its name. fd: of the file, with the lock. identity: (inode, size) when it
    # was opened. generation: of the last page, 0 without one.
    # places: (base offset, position) of batches met so far, both rising; the first is the start.
    # last: the place where the last walk ended. index: of its file, as read once; None: not yet.

    def __init__(
        self,
        directory: str,
        base_offset: int,
        disk: Disk = DISK,
        waits: Waits = time,
    ) -> None:
        self.fd, self.disk = -1, disk
        self.base_offset = base_offset
        self.stem = os.path.join(directory, segment_name(base_offset))
        self.path = self.stem + LOG_SUFFIX
        self._open(waits)
        super().__init__(self.path, self.fd, disk=disk)
        page = self.page()
        self.generation = page[0] if page else 0
        self.places = [(base_offset, 0)]
        self.last = base_offset, 0
        self.index: bytes | None = None

    def _open(self, waits: Waits) -> None:
        deadline = waits.monotonic() + OWNER_BUSY_S_MAX
        while True:
            self.fd = self.disk.open_to_read(self.path)
            try:
                if self._hold():
                    return
            except OSError as error:
                raise storage_error("cannot read", self.path, error) from None
            self.close()
            if waits.monotonic() >= deadline:
                raise OwnerBusy(f"{self.path} stays locked by its owner")
            waits.sleep(OWNER_BUSY_PAUSE_S)

    def _hold(self) -> bool:
        """Lock it; False if its owner is at work on the file or has just replaced it."""
        if not self.disk.share(self.fd):
            return False
        self.identity = self.disk.identity(self.fd)
        try:
            return self.disk.identity(self.path)[0] == self.identity[0]  # else renamed before
        except FileNotFoundError:
            return False

    def current(self) -> bool:
        """Return whether the name still means this file, at this length and generation."""
        try:
            if self.disk.identity(self.path) != self.identity:
                return False
        except FileNotFoundError:
            return False
        page = self.page()
        return self.generation == (page[0] if page else 0)

    def page(self) -> tuple[int, int | None, Mark | None, Mark | None] | None:
        """Return the words of the last page (``scan.page_words``); None for a trimmed segment."""
        at = self.size - limits.PAGE_BYTES
        if at < 0 or self.size % limits.PAGE_BYTES:
            return None
        page = self.read(at, limits.PAGE_BYTES)
        return scan.page_words(page) if len(page) == limits.PAGE_BYTES else None

    @property
    def limit(self) -> int:
        """Where batches end at the latest: behind it there may be older ones."""
        page = self.page()
        if page is None:
            return self.size
        capacity = self.size - limits.PAGE_BYTES
        return capacity if page[1] is None else min(page[1], capacity)

    def place(self, offset: int) -> tuple[int, int]:
        """Return (base offset, position) of a batch at or before the one that holds ``offset``."""
        found = self.places[bisect_right(self.places, (offset, OPEN_END)) - 1]
        if self.last[0] <= offset:
            found = max(found, self.last)
        return max(found, self._indexed(offset) or found)

    def find(self, offset: int) -> tuple[int, int]:
        """Return (base offset, position) of the batch that holds ``offset``, or of the end."""
        base_offset, position = self.place(offset)
        fault, bytes_max = scan.WHOLE, PLACES_APART_BYTES
        while base_offset < offset and fault == scan.WHOLE:
            begin, first = position, base_offset
            data, position, base_offset, _, fault = self.walk(
                begin, first, end_offset=offset, bytes_max=bytes_max
            )
            bytes_max = SPAN_BYTES  # no place near it is known
            self._note_on_the_way(data, begin, first, position)
            self.note(base_offset, position)
            if position == begin:  # the next one ends beyond it
                break
        return base_offset, position

    def note(self, base_offset: int, position: int) -> None:
        """Record that a batch begins here, or will."""
        self.last = base_offset, position
        if position - self.places[-1][1] >= PLACES_APART_BYTES:
            self.places.append((base_offset, position))

    def _note_on_the_way(self, data: bytes, begin: int, offset: int, end: int) -> None:
        """Record places in a copy of [begin, end) that was walked over."""
        at, before, size = 0, -1, end - begin
        while before < at < size and end - self.places[-1][1] > PLACES_APART_BYTES:
            before = at
            at, offset, _, _ = scan.walk(data, at, size, offset, bytes_max=PLACES_APART_BYTES)
            self.note(offset, begin + at)

    def _indexed(self, offset: int) -> Mark | None:
        """Return a place at or before ``offset`` by the ``.index`` file; None if it names none.

        An entry is the last offset of a batch and its position. The file has no checksum, and a
        record may hold what looks like that batch: those from the entry before must lead there.
        """
        if self.index is None:
            self.index = self._read_index()
        low, high = 0, len(self.index) // INDEX_ENTRY_BYTES
        while low < high:  # entries up to `low` end at or before the offset
            middle = (low + high + 1) // 2
            if self._entry(middle - 1)[0] <= offset:
                low = middle
            else:
                high = middle - 1
        if not low:
            return None
        found = self._named(low - 1)
        before = self._named(low - 2) if low > 1 else (self.base_offset, 0)
        return found if found and before and self._leads(before, found) else None

    def _named(self, number: int) -> Mark | None:
        """Return what an entry names, if a batch seems to be there."""
        last_offset, position = self._entry(number)
        found = self._offsets(position) if position > 0 else None
        if found is None or found[1] != last_offset or found[0] < self.base_offset:
            return None
        return found[0], position

    def _leads(self, before: Mark, to: Mark) -> bool:
        """Return whether batches lead from one place to another."""
        (offset, position), begin, fault = before, -1, scan.WHOLE
        while fault == scan.WHOLE and begin < position < to[1]:
            begin = position
            _, position, offset, _, fault = self.walk(
                position, offset, end_offset=to[0], bytes_max=PLACES_APART_BYTES, verify_crc=True
            )
        return (offset, position) == to

    def _entry(self, number: int) -> tuple[int, int]:
        """Return (last offset, position) of an entry of the index."""
        assert self.index is not None
        at = number * INDEX_ENTRY_BYTES
        one, other = self.index[at : at + 4], self.index[at + 4 : at + INDEX_ENTRY_BYTES]
        relative = int.from_bytes(one, "big", signed=True)
        return self.base_offset + relative, int.from_bytes(other, "big", signed=True)

    def _read_index(self) -> bytes:
        """Return the entries of the ``.index`` file without the zeros behind them."""
        try:
            file = self.disk.open_file(self.stem + INDEX_SUFFIX)
        except (OSError, StorageError):
            return b""
        try:
            data = file.read_at(0, limits.INDEX_BYTES_MAX)
        except StorageError:
            return b""
        finally:
            file.close()
        whole = len(data.rstrip(b"\0"))
        return data[: -(-whole // INDEX_ENTRY_BYTES) * INDEX_ENTRY_BYTES]

    def _offsets(self, position: int) -> Mark | None:
        """Return the first and the last offset of what looks like a batch; None if nothing does."""
        header = self.read(position, limits.BATCH_HEADER_BYTES) if position < self.limit else b""
        if len(header) < limits.BATCH_HEADER_BYTES or header[16] != MAGIC:
            return None
        first, delta, count = (
            int.from_bytes(header[at:end], "big", signed=True)
            for at, end in ((0, 8), (23, 27), (57, 61))
        )
        return (first, first + delta) if count == delta + 1 > 0 <= first else None
