"""A segment file of a log that another process may own: held by its lock, copied piece by piece.

What :meth:`MappedSegment.walk` judges and hands out are private copies that the kernel makes
(``pread``): what another program changes meanwhile is read once (D20), and a file that is cut
short, or a sector that cannot be read, is an error instead of a SIGBUS in the reader's process
(R10).
"""

from __future__ import annotations

import fcntl
import mmap
import os
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cached_property

from kraftfast import limits
from kraftfast.errors import StorageError
from kraftfast.log import scan
from kraftfast.log.disk import storage_error
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_name

SPAN_BYTES = 1024 * 1024
FIRST_READ_BYTES = 64 * 1024  # of a place where it is not known that much follows
OWNER_BUSY_S_MAX = 5.0
OPEN_END = 2**63 - 1
INDEX_ENTRY_BYTES = 8
MAGIC = 2

Mark = tuple[int, int]
"""Offset and epoch, or two offsets."""


class MappedSegment:
    """A segment file; as long as it or its map is in use, its owner neither trims nor recycles it.

    Raises FileNotFoundError, StorageError.
    """

    # path, base_offset: its name. fd: of the file, with the lock. identity: (inode, size) when it
    # was opened. generation: of the last page, 0 without one.
    # places: (base offset, position) of batches met so far, both rising; the first is the start.
    # last: the place where the last walk ended. ahead: how many bytes the next one copies at first.

    def __init__(self, directory: str, base_offset: int) -> None:
        self.fd = -1
        self.base_offset = base_offset
        self.stem = os.path.join(directory, segment_name(base_offset))
        self.path = self.stem + LOG_SUFFIX
        self._open()
        page = self.page()
        self.generation = page[0] if page else 0
        self.places = [(base_offset, 0)]
        self.last = base_offset, 0
        self.ahead = FIRST_READ_BYTES
        self.indexed = False

    def _open(self) -> None:
        deadline = time.monotonic() + OWNER_BUSY_S_MAX
        while True:
            try:
                self.fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise storage_error("cannot open", self.path, error) from None
            try:
                if self._hold():
                    return
            except OSError as error:
                raise storage_error("cannot read", self.path, error) from None
            self.close()
            if time.monotonic() >= deadline:
                raise StorageError(f"{self.path} stays locked by its owner")
            time.sleep(0.001)

    def _hold(self) -> bool:
        """Lock it; False if its owner is at work on the file or has just replaced it."""
        try:
            fcntl.flock(self.fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        status = os.fstat(self.fd)
        try:
            if os.stat(self.path).st_ino != status.st_ino:  # renamed before it was locked
                return False
        except FileNotFoundError:
            return False
        self.size = status.st_size
        self.identity = (status.st_ino, status.st_size)
        return True

    def close(self) -> None:
        """Let the file go; a map of it stays valid, and keeps the lock."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        self.close()

    @cached_property
    def map(self) -> mmap.mmap | None:
        """All bytes, mapped read-only; None if the file is empty, or shorter by now."""
        try:
            return mmap.mmap(self.fd, self.size, access=mmap.ACCESS_READ) if self.size else None
        except ValueError:
            return None
        except OSError as error:
            raise storage_error("cannot map", self.path, error) from None

    def read(self, position: int, size: int) -> bytes:
        """Copy ``size`` bytes from ``position`` on, fewer if the file ends. Raises StorageError."""
        try:
            data = os.pread(self.fd, size, position)
            while len(data) < size:  # a second call tells an end from what cannot be read
                more = os.pread(self.fd, size - len(data), position + len(data))
                if not more:
                    break
                data += more
        except OSError as error:
            raise storage_error("cannot read", self.path, error) from None
        return data

    def walk(
        self,
        position: int,
        offset: int,
        epoch: int = -1,
        *,
        end_offset: int = OPEN_END,
        bytes_max: int = 0,
        verify_crc: bool = False,
    ) -> tuple[bytes, int, int, int, int]:
        """(copy, position, offset, epoch, fault): as ``scan.walk``, over a copy of the bytes.

        The copy begins at the ``position`` given and holds the batches that were walked over, of
        about ``bytes_max`` bytes. Behind them, ``WHOLE`` says that more may follow.
        """
        bytes_max = bytes_max or SPAN_BYTES
        rest = max(self.limit - position, 0)
        size = min(self.ahead, bytes_max)
        while True:
            data = self.read(position, min(size, rest))
            end, reached, last_epoch, fault = scan.walk(
                data, 0, len(data), offset, epoch,
                end_offset=end_offset, bytes_max=bytes_max, verify_crc=verify_crc,
            )  # fmt: skip
            cut = fault == scan.INCOMPLETE or (
                fault == scan.END and len(data) - end < limits.BATCH_HEADER_BYTES
            )
            if not cut or len(data) < size or size >= rest:
                break
            if end > 0 and size >= bytes_max:
                fault = scan.WHOLE
                break
            size = min(4 * size, bytes_max) if size < bytes_max else 4 * size
        self.ahead = SPAN_BYTES if end >= FIRST_READ_BYTES else FIRST_READ_BYTES
        return data, position + end, reached, last_epoch, fault

    @contextmanager
    def opened(self) -> Iterator[int]:
        """A descriptor of the same file, to read far apart; -1 if its name is another's by now."""
        try:
            fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            yield -1
            return
        try:
            yield fd if os.fstat(fd).st_ino == self.identity[0] else -1
        finally:
            os.close(fd)

    def current(self) -> bool:
        """Whether the name still means this file, at this length and generation."""
        try:
            status = os.stat(self.path)
        except FileNotFoundError:
            return False
        if (status.st_ino, status.st_size) != self.identity:
            return False
        page = self.page()
        return self.generation == (page[0] if page else 0)

    def page(self) -> tuple[int, int, Mark | None, Mark | None] | None:
        """The words of the last page (``scan.page_words``); None for a trimmed segment."""
        at = self.size - limits.PAGE_BYTES
        if at < 0 or self.size % limits.PAGE_BYTES:
            return None
        page = self.read(at, limits.PAGE_BYTES)
        return scan.page_words(page) if len(page) == limits.PAGE_BYTES else None

    @property
    def limit(self) -> int:
        """Where batches end at the latest: behind the prepared bytes there may be stale ones."""
        page = self.page()
        if page is None:
            return self.size
        capacity = self.size - limits.PAGE_BYTES
        return min(page[1] or capacity, capacity)

    def place(self, offset: int) -> tuple[int, int]:
        """(base offset, position) of a batch at or before the one that holds ``offset``."""
        if not self.indexed:
            self.indexed = True
            self._load_index()
        found = self.places[bisect_right(self.places, (offset, OPEN_END)) - 1]
        return max(found, self.last) if self.last[0] <= offset else found

    def note(self, base_offset: int, position: int) -> None:
        """A batch begins here, or will."""
        self.last = base_offset, position
        if position - self.places[-1][1] >= SPAN_BYTES:
            self.places.append((base_offset, position))

    def _load_index(self) -> None:
        """Places from the ``.index`` file, each looked at: the file has no checksum."""
        try:
            with open(self.stem + INDEX_SUFFIX, "rb") as file:
                data = file.read(limits.INDEX_BYTES_MAX)
        except OSError:
            return
        for at in range(0, len(data) - INDEX_ENTRY_BYTES + 1, INDEX_ENTRY_BYTES):
            position = int.from_bytes(data[at + 4 : at + 8], "big", signed=True)
            if position - self.places[-1][1] < SPAN_BYTES:
                continue
            found = self._offsets(position)
            last_offset = self.base_offset + int.from_bytes(data[at : at + 4], "big", signed=True)
            if found is None or found[1] != last_offset or found[0] <= self.places[-1][0]:
                return
            self.places.append((found[0], position))

    def _offsets(self, position: int) -> Mark | None:
        """The first and the last offset of what looks like a batch; None if nothing does."""
        header = self.read(position, limits.BATCH_HEADER_BYTES) if position < self.limit else b""
        if len(header) < limits.BATCH_HEADER_BYTES or header[16] != MAGIC:
            return None
        first, delta, count = (
            int.from_bytes(header[at:end], "big", signed=True)
            for at, end in ((0, 8), (23, 27), (57, 61))
        )
        return (first, first + delta) if count == delta + 1 > 0 <= first else None
