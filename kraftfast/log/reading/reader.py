"""Reading a log from any other process: its files copied piece by piece, nothing written or asked.

A segment is held by a shared ``flock`` as long as it is in use: its owner then neither trims nor
recycles it (D20). What may be read is the caller's to say: the high watermark
of a live replica (D11); without a bound it is the last whole batch. Rolls, retention, cuts and
files that grow or are replaced are noticed from call to call.
"""

from __future__ import annotations

import errno
import os
import re
import time
from bisect import bisect_right
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftfast.errors import (
    CorruptBatch,
    CorruptLog,
    DirectoryMoved,
    ForeignDirectory,
    NotFormatted,
    OffsetOutOfRange,
    StorageError,
)
from kraftfast.log import scan
from kraftfast.log.disk import DISK, Disk, storage_error
from kraftfast.log.reading.copied_file import FIRST_READ_BYTES, SPAN_BYTES
from kraftfast.log.reading.held_segment import HeldSegment, Waits
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.small_files.directory import read_meta
from kraftfast.record import batch as record_batch
from kraftfast.record.batch import BatchView
from kraftfast.record.shapes import FAULT_TEXTS, Fault, Record
from kraftfast.types import uuid_text

if TYPE_CHECKING:
    from kraftfast.record.columns import Columns

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
HELD_SEGMENTS_MAX = 2
CHANGES_S, CHANGES_S_MAX = 0.005, 0.5
"""How long segments that are listed, and gone, are looked for again."""


@dataclass(frozen=True, slots=True)
class Span:
    """Whole batches that stand together in one segment: ``buffer[position:end]``, a copy."""

    buffer: bytes
    path: str
    start: int
    """Where the copy begins in the file."""
    position: int
    end: int
    base_offset: int
    """Of the first batch, which may begin below the offset that was asked for."""
    end_offset: int
    """After the last record."""


class LogReader:
    """The batches of a log directory: of a live replica, at rest, or Kafka's.

    ``log_path`` holds the segments (``DIR/<topic>-<partition>``). ``verify_crc``: check every batch
    that is handed out; :meth:`columns` always does. Not thread-safe. Batches, spans and columns
    are copies: they stay valid, also after :meth:`close`, whatever becomes of the files. ``disk``
    and ``waits`` are for a replica that reads its own log. ``directory_id``: of the replica whose
    log it must be ("": of any), also after its directory was moved and another took its place.

    Raises StorageError if the directory cannot be read, DirectoryMoved if it is another one. Give a
    live log's high watermark as ``end_offset``: what lies beyond may be cut again.

    >>> with LogReader(log_path) as reader:
    ...     reader.log_start_offset, reader.end_offset()
    (0, 3)
    >>> [(record.offset, record.value) for record in reader.records(1)]
    [(1, b'b'), (2, b'c')]
    """

    # _bases: base offsets of the segments, rising, as last listed. _held: open, by base offset,
    # the one used last at the end. _checked_end: (segment, position, offset, epoch) up to which
    # end_offset has verified the last segment. _copied: the newest span, of a segment that is held:
    # reading record by record copies it once.

    def __init__(
        self,
        log_path: str | os.PathLike[str],
        verify_crc: bool = True,
        *,
        disk: Disk = DISK,
        waits: Waits = time,
        directory_id: str = "",
    ) -> None:
        self.log_path = os.fspath(log_path)
        self.verify_crc, self._directory_id = verify_crc, directory_id
        self._disk, self._waits = disk, waits
        self._held: dict[int, HeldSegment] = {}
        self._checked_end: tuple[HeldSegment, int, int, int] | None = None
        self._copied: tuple[HeldSegment, Span] | None = None
        self._bases: list[int] = []
        self._list()

    # --- where it starts and ends -----------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """Of the first record that is still there; 0 for a log without segments."""
        self._list()
        return self._bases[0] if self._bases else 0

    def segments(self) -> list[tuple[int, str]]:
        """Return (base offset, path) of each segment, oldest first."""
        self._list()
        return [
            (base, os.path.join(self.log_path, segment_name(base) + LOG_SUFFIX))
            for base in self._bases
        ]

    def end_offset(self) -> int:
        """Return the offset after the last whole batch, checked by CRC; a torn tail may follow."""
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
            position, offset, epoch, _ = segment.sound_end(position, offset, epoch)
            self._checked_end = segment, position, offset, epoch
            return offset

    # --- reading ----------------------------------------------------------------------------------

    def spans(
        self, start_offset: int, end_offset: int | None = None, bytes_max: int = SPAN_BYTES
    ) -> Iterator[Span]:
        """Yield whole batches from the one that holds ``start_offset`` on, all below
        ``end_offset``.

        Framing, offsets and epochs are checked, CRCs are not. ``end_offset`` is the last whole
        batch's if not given; offsets below it must be there. About ``bytes_max`` bytes a span.

        Raises OffsetOutOfRange below the log's start, CorruptLog.

        >>> [(span.base_offset, span.end_offset) for span in LogReader(log_path).spans(0)]
        [(0, 3)]
        """
        end_offset = self.end_offset() if end_offset is None else end_offset
        offset = start_offset
        while offset < end_offset:
            span = self._span(offset, end_offset, bytes_max)
            if span is None:
                return
            yield span
            offset = span.end_offset

    def batches(self, start_offset: int, end_offset: int | None = None) -> Iterator[BatchView]:
        """Yield the batches one by one, as :meth:`spans`; the first may begin below
        ``start_offset``.

        >>> [(batch.base_offset, batch.record_count) for batch in LogReader(log_path).batches(1)]
        [(0, 2), (2, 1)]
        """
        for span in self.spans(start_offset, end_offset):
            for found in record_batch.batches(span.buffer, span.position, span.end):
                if self.verify_crc and not found.crc_ok():
                    place = span.start + found.position, found.base_offset
                    raise corrupt_log(span.path, *place, FAULT_TEXTS[Fault.CRC])
                yield found

    def records(self, start_offset: int, end_offset: int | None = None) -> Iterator[Record]:
        """Yield the records from ``start_offset`` on; those of control batches are passed over.

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
        """Yield the records as columns (numpy, Arrow), about ``bytes_max`` bytes at once.

        CRCs are checked.

        >>> for columns in LogReader(log_path).columns(0):
        ...     columns.offsets.tolist(), columns.values.to_pylist()
        ([0, 1, 2], [b'a', b'b', b'c'])
        """
        from kraftfast.record.columns import decode_columns  # with numpy, which few readers need

        for span in self.spans(start_offset, end_offset, bytes_max or SPAN_BYTES):
            position = span.position
            while position < span.end:
                try:
                    found = decode_columns(
                        span.buffer, position, span.end, first_offset=start_offset,
                        records_max=records_max, bytes_max=bytes_max, keys=keys,
                    )  # fmt: skip
                except CorruptBatch as error:
                    place = span.start + error.position, span.base_offset
                    raise corrupt_log(span.path, *place, error.reason) from None
                position = found.position
                if len(found):
                    yield found

    def beyond(self, offset: int, end_offset: int) -> CorruptLog:
        """Return the error for the batch of ``offset`` where it does not end by ``end_offset``.

        That is where a batch must end, as at a high watermark: :meth:`batches` yields none then.
        """
        base, path, position = self.segments()[bisect_right(self._bases, offset) - 1] + (-1,)
        if base in self._held:
            position = self._held[base].find(offset)[1]
        reason = f"its batch ends beyond offset {end_offset}, where a batch ends"
        return corrupt_log(path, position, offset, reason)

    def close(self) -> None:
        """Let go of the files."""
        while self._held:
            self._held.popitem()[1].close()
        self._checked_end = self._copied = None

    def __enter__(self) -> LogReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- segments ---------------------------------------------------------------------------------

    def _list(self) -> None:
        names = self._disk.list_directory(self.log_path)
        if not names and not self._disk.exists(self.log_path):
            missing = FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
            raise storage_error("cannot list", self.log_path, missing)
        found = (SEGMENT_FILE.fullmatch(name) for name in names)
        self._bases = sorted(int(match[1]) for match in found if match)
        self._check_place()

    def _check_place(self) -> None:
        """Check that what was just opened or listed by its path is of the replica that is meant.

        Only afterwards: a path that leads to another directory does not lead back.
        """
        if not self._directory_id:
            return
        place = os.path.dirname(self.log_path)
        with suppress(NotFormatted, ForeignDirectory):
            if uuid_text(read_meta(self._disk, place).directory_id) == self._directory_id:
                return
        raise DirectoryMoved(f"{place} was moved, removed or replaced while it was read")

    def _segment(self, base_offset: int) -> HeldSegment:
        """Return the segment as it is now. Raises FileNotFoundError if it is gone."""
        segment = self._held.pop(base_offset, None)
        if segment is not None and not segment.current():
            segment.close()
            segment = None
        if segment is None:
            segment = HeldSegment(self.log_path, base_offset, self._disk, self._waits)
            self._held[base_offset] = segment  # before the check, so that it is closed
            self._check_place()
        self._held[base_offset] = segment
        while len(self._held) > HELD_SEGMENTS_MAX:
            self._held.pop(next(iter(self._held))).close()
        return segment

    def _span(self, offset: int, end_offset: int, bytes_max: int) -> Span | None:
        """Return whole batches from the one of ``offset`` on; None if it ends beyond the bound."""
        for segment, known in self._segments_of(offset):
            if self._copied is not None and self._copied[0] is segment:
                span = _part(self._copied[1], offset, end_offset)
                if span is not None:
                    return span
            base_offset, position = segment.find(offset)
            ahead = bytes_max
            if not (self._copied is not None and self._copied[1].end_offset == offset):
                ahead = min(bytes_max, FIRST_READ_BYTES)  # maybe one record is all that is wanted
            data, end, reached, _, fault = segment.walk(
                position, base_offset, end_offset=end_offset, bytes_max=ahead
            )
            segment.note(reached, end)
            if end > position and reached > offset:
                taken = position, 0, end - position, base_offset, reached
                span = Span(data, segment.path, *taken)
                self._copied = segment, span
                return span
            if fault == scan.WHOLE:
                return None
            if not known:
                raise corrupt_log(segment.path, end, reached, _reason(fault, end_offset))
        raise AssertionError("the last look returns or raises")

    def _segments_of(self, offset: int) -> Iterator[tuple[HeldSegment, bool]]:
        """Yield the segment that may hold ``offset``, then again by a fresh list of all of them.

        With each, whether it was found without one. A list may be older than what it is made of:
        where a snapshot takes the place of all segments, there is none for a moment. Raises
        OffsetOutOfRange, StorageError if they go on to change.
        """
        index = bisect_right(self._bases, offset) - 1
        if index >= 0:
            with suppress(FileNotFoundError):
                yield self._segment(self._bases[index]), True
        deadline = self._waits.monotonic() + CHANGES_S_MAX
        while True:
            self._list()
            index = bisect_right(self._bases, offset) - 1
            late = self._waits.monotonic() >= deadline
            if index < 0 and (self._bases or late):
                first = self._bases[0] if self._bases else 0
                raise OffsetOutOfRange(
                    f"{self.log_path} starts at offset {first}, beyond offset {offset}", first
                )
            if index >= 0:
                with suppress(FileNotFoundError):
                    yield self._segment(self._bases[index]), False
                if late:
                    raise StorageError(f"{self.log_path}: its segments go on to change")
            self._waits.sleep(CHANGES_S)


def _part(span: Span, offset: int, end_offset: int) -> Span | None:
    """Return what a span holds from the batch of ``offset`` on; None if that batch is not in it."""
    if not span.base_offset <= offset < min(span.end_offset, end_offset):
        return None
    position, base_offset, _, _ = scan.walk(
        span.buffer, span.position, span.end, span.base_offset, end_offset=offset
    )
    end, reached, _, _ = scan.walk(
        span.buffer, position, span.end, base_offset, end_offset=end_offset
    )
    if end == position:
        return None
    return Span(span.buffer, span.path, span.start, position, end, base_offset, reached)


def _reason(fault: int, end_offset: int) -> str:
    if fault == scan.END:
        return f"the log ends here, and not at offset {end_offset}"
    return scan.fault_text(fault)


def corrupt_log(path: str, position: int, offset: int, reason: str) -> CorruptLog:
    """Return the error for damage, with its exact place."""
    text = f"{path} is damaged at byte {position} (offset {offset}): {reason}"
    return CorruptLog(text, path, position, offset)
