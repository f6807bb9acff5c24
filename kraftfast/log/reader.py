"""Reading a log from any other process: its files mapped read-only, nothing written or asked.

A segment is held by a shared ``flock`` as long as it, or a batch from it, is in use: its owner
then neither trims nor recycles it (reliability.md section 8). What may be read is the caller's to
say: the high watermark of a live replica (D11); without a bound it is the last whole batch.
Rolls, retention, cuts and files that grow or are replaced are noticed from call to call.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from kraftfast import limits
from kraftfast.errors import CorruptBatch, CorruptLog, InvalidOption, OffsetOutOfRange, StorageError
from kraftfast.log import scan
from kraftfast.log.disk import storage_error
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, segment_name
from kraftfast.record import batch as record_batch
from kraftfast.record.batch import BatchView
from kraftfast.record.columns import Columns, decode_columns
from kraftfast.record.shapes import Record

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
SPAN_BYTES = 1024 * 1024
HELD_SEGMENTS_MAX = 2
OWNER_BUSY_S_MAX = 5.0
OPEN_END = 2**63 - 1
INDEX_ENTRY_BYTES = 8

Mark = tuple[int, int]
"""Offset and epoch."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole batches that stand together in one segment: ``buffer[position:end]``, not copied."""

    buffer: mmap.mmap
    path: str
    position: int
    end: int
    base_offset: int
    """Of the first batch, which may begin below the offset that was asked for."""
    end_offset: int
    """After the last record."""


class MappedSegment:
    """A segment file, mapped read-only; as long as it is, its owner neither trims nor recycles it.

    Raises FileNotFoundError, StorageError.
    """

    # path, base_offset: its name. map: its bytes; None while the file is empty. size: bytes mapped.
    # identity: (inode, size) at that time. generation: of the last page, 0 without one.
    # places: (base offset, position) of batches met so far, both rising; the first is the start.

    def __init__(self, directory: str, base_offset: int) -> None:
        self.base_offset = base_offset
        self.stem = os.path.join(directory, segment_name(base_offset))
        self.path = self.stem + LOG_SUFFIX
        self.map: mmap.mmap | None = None
        self._open()
        page = self.page()
        self.generation = page[0] if page else 0
        self.places = [(base_offset, 0)]
        self.indexed = False

    def _open(self) -> None:
        deadline = time.monotonic() + OWNER_BUSY_S_MAX
        while True:
            try:
                fd = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:
                raise
            except OSError as error:
                raise storage_error("cannot open", self.path, error) from None
            try:
                if self._hold(fd):
                    return
            except OSError as error:
                raise storage_error("cannot map", self.path, error) from None
            finally:
                os.close(fd)  # the map keeps the file, and with it the lock
            if time.monotonic() >= deadline:
                raise StorageError(f"{self.path} stays locked by its owner")
            time.sleep(0.001)

    def _hold(self, fd: int) -> bool:
        """Lock and map; False if its owner is at work on the file or has just replaced it."""
        try:
            fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        status = os.fstat(fd)
        try:
            if os.stat(self.path).st_ino != status.st_ino:  # renamed before it was locked
                return False
        except FileNotFoundError:
            return False
        self.size = status.st_size
        self.identity = (status.st_ino, status.st_size)
        try:
            if self.size:
                self.map = mmap.mmap(fd, self.size, access=mmap.ACCESS_READ)
        except ValueError:  # shorter by now
            return False
        return True

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
        if self.map is None or at < 0 or self.size % limits.PAGE_BYTES:
            return None
        return scan.page_words(memoryview(self.map)[at:])

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
        return self.places[bisect_right(self.places, (offset, OPEN_END)) - 1]

    def note(self, base_offset: int, position: int) -> None:
        """A batch begins here."""
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
            try:
                found = record_batch.batch_at(self.map, position, self.limit)
            except (CorruptBatch, InvalidOption):
                return
            last_offset = self.base_offset + int.from_bytes(data[at : at + 4], "big", signed=True)
            if found.last_offset != last_offset or found.base_offset <= self.places[-1][0]:
                return
            self.places.append((found.base_offset, position))


class LogReader:
    """The batches of a log directory: of a live replica, at rest, or Kafka's.

    ``log_path`` holds the segments (``DIR/<topic>-<partition>``). ``verify_crc``: check every batch
    that is handed out; :meth:`columns` always does. Not thread-safe. Batches, spans and columns
    stay valid, and their segment in place, until they are dropped, also after :meth:`close`.

    Raises StorageError if the directory cannot be read. Give a live log's high watermark as
    ``end_offset``: what lies beyond may be cut again.

    >>> with LogReader(log_path) as reader:
    ...     reader.log_start_offset, reader.end_offset()
    (0, 3)
    >>> [(record.offset, record.value) for record in reader.records(1)]
    [(1, b'b'), (2, b'c')]
    """

    # _bases: base offsets of the segments, rising, as last listed. _held: mapped, by base offset,
    # the one used last at the end. _checked_end: (segment, position, offset, epoch) up to which
    # end_offset has verified the last segment.

    def __init__(self, log_path: str | os.PathLike[str], verify_crc: bool = True) -> None:
        self.log_path = os.fspath(log_path)
        self.verify_crc = verify_crc
        self._held: dict[int, MappedSegment] = {}
        self._checked_end: tuple[MappedSegment, int, int, int] | None = None
        self._bases: list[int] = []
        self._list()

    # --- where it starts and ends -----------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """Of the first record that is still there; 0 for a log without segments."""
        self._list()
        return self._bases[0] if self._bases else 0

    def segments(self) -> list[tuple[int, str]]:
        """(base offset, path) of each segment, oldest first."""
        self._list()
        return [
            (base, os.path.join(self.log_path, segment_name(base) + LOG_SUFFIX))
            for base in self._bases
        ]

    def end_offset(self) -> int:
        """After the last whole batch, its CRC checked. What follows is a torn or zero tail."""
        while True:
            self._list()
            if not self._bases:
                return 0
            try:
                segment = self._segment(self._bases[-1])
            except FileNotFoundError:
                continue
            position, offset, epoch = 0, segment.base_offset, -1
            if self._checked_end is not None and self._checked_end[0] is segment:
                _, position, offset, epoch = self._checked_end
            if segment.map is not None:
                walked = scan.walk(
                    segment.map, position, segment.limit, offset, epoch, verify_crc=True
                )
                position, offset, epoch, _ = walked
            self._checked_end = segment, position, offset, epoch
            return offset

    # --- reading ----------------------------------------------------------------------------------

    def spans(
        self, start_offset: int, end_offset: int | None = None, bytes_max: int = SPAN_BYTES
    ) -> Iterator[Span]:
        """Whole batches from the one that holds ``start_offset`` on, all below ``end_offset``.

        Framing, offsets and epochs are checked, CRCs are not. ``end_offset`` is the last whole
        batch's if not given; offsets below it must be there. About ``bytes_max`` bytes a span.

        Raises OffsetOutOfRange below the log's start, CorruptLog.

        >>> [(span.base_offset, span.end_offset) for span in LogReader(log_path).spans(0)]
        [(0, 3)]
        """
        end_offset = self.end_offset() if end_offset is None else end_offset
        offset = start_offset
        while offset < end_offset:
            segment, base_offset, position = self._seek(offset, end_offset)
            buffer, limit = segment.map, segment.limit
            assert buffer is not None
            end, reached, _, fault = scan.walk(
                buffer, position, limit, base_offset, end_offset=end_offset, bytes_max=bytes_max
            )
            if end == position:
                if fault == scan.WHOLE:
                    return  # the next batch reaches beyond the bound
                raise corrupt_log(segment.path, position, base_offset, _reason(fault, end_offset))
            segment.note(reached, end)
            yield Span(buffer, segment.path, position, end, base_offset, reached)
            offset = reached

    def batches(self, start_offset: int, end_offset: int | None = None) -> Iterator[BatchView]:
        """The batches one by one, as :meth:`spans`; the first may begin below ``start_offset``.

        >>> [(batch.base_offset, batch.record_count) for batch in LogReader(log_path).batches(1)]
        [(0, 2), (2, 1)]
        """
        for span in self.spans(start_offset, end_offset):
            for found in record_batch.batches(span.buffer, span.position, span.end):
                if self.verify_crc and not found.crc_ok():
                    place = found.position, found.base_offset
                    raise corrupt_log(span.path, *place, "CRC does not match")
                yield found

    def records(self, start_offset: int, end_offset: int | None = None) -> Iterator[Record]:
        """The records from ``start_offset`` on; those of control batches are passed over.

        >>> [record.value for record in LogReader(log_path).records(0, end_offset=2)]
        [b'a', b'b']
        """
        for found in self.batches(start_offset, end_offset):
            if found.is_control:
                continue
            for record in found.records():
                if record.offset >= start_offset:
                    yield record

    def columns(
        self,
        start_offset: int,
        end_offset: int | None = None,
        *,
        records_max: int | None = None,
        bytes_max: int | None = None,
        keys: bool = True,
    ) -> Iterator[Columns]:
        """The records as columns (numpy, Arrow), about ``bytes_max`` bytes at once.

        CRCs are checked.

        >>> for columns in LogReader(log_path).columns(0):
        ...     columns.offsets.tolist(), columns.values.to_pylist()
        ([0, 1, 2], [b'a', b'b', b'c'])
        """
        for span in self.spans(start_offset, end_offset, bytes_max or SPAN_BYTES):
            position = span.position
            while position < span.end:
                try:
                    found = decode_columns(
                        span.buffer, position, span.end, first_offset=start_offset,
                        records_max=records_max, bytes_max=bytes_max, keys=keys,
                    )  # fmt: skip
                except CorruptBatch as error:
                    raise corrupt_log(
                        span.path, error.position, span.base_offset, error.reason
                    ) from None
                position = found.position
                if len(found):
                    yield found

    def close(self) -> None:
        """Let go of the files, but for those that batches in use still need."""
        self._held.clear()
        self._checked_end = None

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- segments ---------------------------------------------------------------------------------

    def _list(self) -> None:
        try:
            names = os.listdir(self.log_path)
        except OSError as error:
            raise storage_error("cannot list", self.log_path, error) from None
        found = (SEGMENT_FILE.fullmatch(name) for name in names)
        self._bases = sorted(int(match[1]) for match in found if match)

    def _segment(self, base_offset: int) -> MappedSegment:
        """The segment, mapped as it is now. Raises FileNotFoundError if it is gone."""
        segment = self._held.pop(base_offset, None)
        if segment is None or not segment.current():
            segment = MappedSegment(self.log_path, base_offset)
        self._held[base_offset] = segment
        while len(self._held) > HELD_SEGMENTS_MAX:
            self._held.pop(next(iter(self._held)))
        return segment

    def _seek(self, offset: int, end_offset: int) -> tuple[MappedSegment, int, int]:
        """(segment, base offset, position) of the batch of ``offset``, below ``end_offset``."""
        for known in (True, False):  # a second time with a fresh list of the segments
            if not known:
                self._list()
            index = bisect_right(self._bases, offset) - 1
            if index < 0:
                continue
            try:
                segment = self._segment(self._bases[index])
            except FileNotFoundError:
                continue
            base_offset, position = segment.place(offset)
            fault = scan.END
            while segment.map is not None:
                position, base_offset, _, fault = scan.walk(
                    segment.map, position, segment.limit, base_offset,
                    end_offset=offset, bytes_max=SPAN_BYTES,
                )  # fmt: skip
                segment.note(base_offset, position)
                if fault != scan.WHOLE or self._holds(segment, position, offset):
                    break
            if fault == scan.WHOLE:
                return segment, base_offset, position
            if not known:
                raise corrupt_log(segment.path, position, base_offset, _reason(fault, end_offset))
        first = self._bases[0] if self._bases else 0
        raise OffsetOutOfRange(
            f"{self.log_path} starts at offset {first}, beyond offset {offset}", first
        )

    def _holds(self, segment: MappedSegment, position: int, offset: int) -> bool:
        found = record_batch.batch_at(segment.map, position, segment.limit)
        return found.base_offset <= offset < found.end_offset


def _reason(fault: int, end_offset: int) -> str:
    if fault == scan.END:
        return f"the log ends here, and not at offset {end_offset}"
    return scan.fault_text(fault)


def corrupt_log(path: str, position: int, offset: int, reason: str) -> CorruptLog:
    """The error for damage, with its exact place."""
    text = f"{path} is damaged at byte {position} (offset {offset}): {reason}"
    return CorruptLog(text, path, position, offset)
