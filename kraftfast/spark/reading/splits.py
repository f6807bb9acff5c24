"""Which batches a log holds, from their headers alone, and the pieces that tasks read.

Nothing is handed out beyond the bound that ``committed`` gives. Damage is found here where offsets
or framing break; what only the CRC shows is found when the piece is read.
"""

from __future__ import annotations

import os
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from kraftfast.errors import CorruptBatch, CorruptLog, InvalidOption, OffsetOutOfRange
from kraftfast.log import scan
from kraftfast.log.reading.copied_file import SPAN_BYTES, CopiedFile
from kraftfast.log.reading.extents import LogExtents
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.reading.reader import corrupt_log
from kraftfast.log.reading.verify import tail_of
from kraftfast.record.headers import Headers
from kraftfast.record.shapes import FAULT_TEXTS, Fault
from kraftfast.spark.reading.locations import Place

OPEN_END = 2**63 - 1
CHUNK_BATCHES = 1 << 16
ADMITTED_BATCHES = 1 << 10
OFFSETS_AHEAD_MAX = 1 << 31
MAGIC_AT = 16
MAGIC_BYTE = b"\x02"


@dataclass(frozen=True, slots=True)
class Piece:
    """Whole batches that follow each other in one segment, and which of their records are meant."""

    replica: str
    path: str
    position: int
    end: int
    first_offset: int
    """Records below are not handed out."""
    end_offset: int
    """Neither are those from here on."""
    aborted: tuple[tuple[int, int, int], ...] = ()
    """Nor is what transactions voided: (producer id, first offset, end offset)."""


@dataclass(frozen=True, slots=True)
class Damaged:
    """A place where a segment holds no batch of its log, though there should be one."""

    replica: str
    path: str
    position: int
    end: int
    """The next sound batch begins here, or the file ends."""
    first_offset: int
    """The first that is lost."""
    end_offset: int
    """The next one that is there; -1 if none follows."""
    reason: str

    def error(self) -> CorruptLog:
        return corrupt_log(self.path, self.position, self.first_offset, self.reason)


@dataclass(frozen=True, slots=True)
class Bounds:
    """What is wanted of a log; pruned by whole batches, and by records of offsets alone."""

    start_offset: int = 0
    end_offset: int = OPEN_END
    epoch_min: int = -1
    epoch_max: int = 2**31 - 1
    timestamp_min: int = -(2**63)
    """Milliseconds: batches whose largest timestamp is below hold nothing that is wanted."""

    def of(self, rows: Any) -> Any:
        """Return which headers belong to batches with anything that is wanted, as a mask."""
        wanted = (rows["end_offset"] > self.start_offset) & (rows["base_offset"] < self.end_offset)
        wanted &= (rows["epoch"] >= self.epoch_min) & (rows["epoch"] <= self.epoch_max)
        stamps = rows["max_timestamp"]
        wanted &= (stamps >= self.timestamp_min) | (stamps < 0)
        return wanted


def open_segment(log_path: str, base_offset: int) -> HeldSegment:
    """Held as long as it is in use. Raises OffsetOutOfRange if retention took it meanwhile."""
    try:
        return HeldSegment(log_path, base_offset)
    except FileNotFoundError:
        raise OffsetOutOfRange(
            f"{log_path}: the segment of offset {base_offset} is gone", base_offset
        ) from None


@dataclass(slots=True)
class Walk:
    """How one segment is walked. ``begin``: (position, base offset) of the first batch wanted."""

    place: Place
    segment: HeldSegment
    next_base: int | None
    """Of the next segment, None for the last one."""
    committed: int | None
    """What lies beyond is passed over; None: all that is whole is wanted, and judged."""
    begin: tuple[int, int]
    gaps: bool = False
    """Whether offsets may be missing, as in a compacted topic."""

    @property
    def judged(self) -> bool:
        """Return whether what stands behind the last batch is a torn tail or damage."""
        return self.next_base is None and self.committed is None


def walk(this: Walk) -> Iterator[Headers | Damaged]:
    """Yield the headers of a segment chunk by chunk, each following the last; and its damage."""
    place, segment, next_base = this.place, this.segment, this.next_base
    limit = segment.limit
    position, offset = this.begin
    bound = OPEN_END if this.committed is None else this.committed
    while position < limit and offset < bound:
        found = segment.headers(
            position, limit, batches_max=CHUNK_BATCHES, verify_crc=this.judged, until_offset=bound
        )
        reason, place_at = _check(found, offset, this.gaps)
        if reason and len(found.rows) and not _crc_ok(segment, _last(found), limit):
            reason, place_at = FAULT_TEXTS[Fault.CRC], _last(found)  # it says a wrong end
            found.rows, found.position = found.rows[:-1], place_at
        if len(found.rows):
            rows = found.rows[found.rows["base_offset"] < bound]
            yield Headers(rows, found.position, "")
            position, offset = found.position, int(found.rows["end_offset"][-1])
        if not reason:
            if len(found.rows) < CHUNK_BATCHES:
                break
            continue
        if offset >= bound or (this.judged and _torn(segment, place_at, offset)):
            return
        position, after = resync(segment, place_at - 1, limit, offset)
        if position == place_at and not place.directory:
            reason += "; if the topic is compacted, set compacted to true"
        ends = after if after >= 0 else (-1 if next_base is None else next_base)
        yield Damaged(place.name, segment.path, place_at, position, offset, ends, reason)
        if after < 0:
            return
        offset = after
    goal = next_base if next_base is not None else (0 if this.committed is None else bound)
    if offset < min(goal, bound) and not this.gaps:
        reason = f"it ends at offset {offset}, and not at {min(goal, bound)}"
        yield Damaged(place.name, segment.path, limit, limit, offset, min(goal, bound), reason)


def _check(found: Headers, offset: int, gaps: bool) -> tuple[str, int]:
    """Return (why the walk cannot go on, where); cut ``found`` to what follows the batch before."""
    rows = found.rows
    if not len(rows):
        return found.fault, found.position
    expected = np.concatenate([[offset], rows["end_offset"][:-1]])
    apart = rows["base_offset"] < expected if gaps else rows["base_offset"] != expected
    wrong = np.flatnonzero(apart | ~rows["crc_ok"])
    if not len(wrong):
        return found.fault, found.position
    first = int(wrong[0])
    reason = FAULT_TEXTS[Fault.CRC]
    if rows["base_offset"][first] != expected[first]:
        reason = f"offset {rows['base_offset'][first]} stands where {expected[first]} should"
    at = int(rows["position"][first])
    found.rows, found.position = rows[:first], at
    return reason, at


def _last(found: Headers) -> int:
    """Return where the last batch begins."""
    return int(found.rows["position"][-1])


def _torn(segment: HeldSegment, position: int, offset: int) -> bool:
    """Return whether what stands behind the last whole batch was never said to be on disk.

    In a segment that nothing of ours vouches for, a batch that is cut off is a torn tail, and one
    that is whole and wrong is damage.
    """
    if segment.lost_end() >= 0:
        return False
    place, offset, _, fault = segment.sound_end(position, offset)
    if segment.page() is None:
        return bool(fault == scan.INCOMPLETE)
    try:
        tail_of(segment, place, offset, fault)
    except CorruptLog:
        return False
    return True


def resync(segment: CopiedFile, position: int, limit: int, offset: int) -> tuple[int, int]:
    """Return (position, base offset) of the next sound batch that begins behind this byte.

    (limit, -1) if none follows.
    """
    position += 1
    while limit - position > MAGIC_AT:
        data = segment.read(position, min(SPAN_BYTES, limit - position))
        at = data.find(MAGIC_BYTE, MAGIC_AT) - MAGIC_AT
        while at >= 0:
            base = int.from_bytes(data[at : at + 8], "big")
            ahead = offset < base < offset + OFFSETS_AHEAD_MAX
            if ahead and _crc_ok(segment, position + at, limit):
                return position + at, base
            at = data.find(MAGIC_BYTE, at + MAGIC_AT + 1) - MAGIC_AT
        if len(data) <= MAGIC_AT:
            break
        position += len(data) - MAGIC_AT
    return limit, -1


def _crc_ok(segment: CopiedFile, position: int, limit: int) -> bool:
    """Return whether a sound batch begins there."""
    try:
        return segment.batch(position, limit).crc_ok()
    except (CorruptBatch, InvalidOption):
        return False


def pieces(
    place: Place, bounds: Bounds, split_bytes: int, committed: int | None,
    extents: LogExtents | None = None,
) -> Iterator[Piece | Damaged]:  # fmt: skip
    """Return what is wanted of a log, in order, in pieces of about ``split_bytes``.

    ``extents``: of the same log, which knows where in its segments to begin.
    """
    bases = place.bases()
    for base, following in zip(bases, [*bases[1:], None]):
        if following is not None and following <= bounds.start_offset:
            continue
        if base >= bounds.end_offset:
            return
        next_base = _next_base(place, following)
        segment = open_segment(place.log_path, base)
        clear = Piece(
            place.name, segment.path, 0, 0, bounds.start_offset,
            min(bounds.end_offset, OPEN_END if committed is None else committed),
        )  # fmt: skip
        begin = first_place(segment, bounds.start_offset, extents)
        gaps = extents is not None and extents.gaps
        this = Walk(place, segment, next_base, committed, begin, gaps)
        open_piece: Piece | None = None
        for found in walk(this):
            if isinstance(found, Damaged):
                if _concerns(found, bounds):
                    if open_piece is not None:
                        yield open_piece
                    open_piece = None
                    yield found
                continue
            for piece in _cut(found.rows[bounds.of(found.rows)], clear, split_bytes):
                if open_piece is None:
                    open_piece = piece
                elif _joins(open_piece, piece, split_bytes):
                    open_piece = replace(open_piece, end=piece.end)
                else:
                    yield open_piece
                    open_piece = piece
        if open_piece is not None:
            yield open_piece


def _next_base(place: Place, following: int | None) -> int | None:
    """Return the base offset of the segment behind, also where one segment alone is read."""
    if not place.segment:
        return following
    name = int(place.segment[:20])
    later = [base for base in Place(place.name, place.log_path).bases() if base > name]
    return later[0] if later else None


def _concerns(damage: Damaged, bounds: Bounds) -> bool:
    ends = OPEN_END if damage.end_offset < 0 else damage.end_offset
    return damage.first_offset < bounds.end_offset and ends > bounds.start_offset


def _joins(one: Piece, other: Piece, split_bytes: int) -> bool:
    return one.end == other.position and other.end - one.position <= split_bytes


def _cut(rows: Any, clear: Piece, split_bytes: int) -> Iterator[Piece]:
    """Cut headers into pieces: where a batch is missing, and after ``split_bytes``."""
    begin = 0
    while begin < len(rows):
        positions, ends = rows["position"][begin:], rows["position"][begin:] + rows["size"][begin:]
        gaps = np.flatnonzero(positions[1:] != ends[:-1])
        stop = int(gaps[0]) + 1 if len(gaps) else len(positions)
        full = int(np.searchsorted(ends[:stop], positions[0] + split_bytes, side="right"))
        stop = max(1, min(stop, full))
        yield replace(clear, position=int(positions[0]), end=int(ends[stop - 1]))
        begin += stop


def log_start(place: Place) -> int:
    """Return the offset of the first record that is there."""
    bases = place.bases()
    return bases[0] if bases else 0


def first_place(segment: HeldSegment, offset: int, extents: LogExtents | None) -> tuple[int, int]:
    """Return (position, base offset) of a batch at or before the one that holds ``offset``."""
    found = [(segment.base_offset, 0), segment.place(offset)]
    if extents is not None:
        known = extents.places(segment.base_offset)
        index = bisect_right(known, (offset, OPEN_END)) - 1
        found += known[index : index + 1] if index >= 0 else []
    for base, position in sorted(found, reverse=True):
        if not position or _begins(segment, position, base):
            return position, base
    return 0, segment.base_offset


def _begins(segment: HeldSegment, position: int, base: int) -> bool:
    """Return whether a batch with this base offset begins there: the log may have been cut."""
    rows = segment.headers(position, segment.limit, batches_max=1).rows
    return len(rows) > 0 and int(rows["base_offset"][0]) == base


def offset_after(
    place: Place, start: int, end: int, bytes_max: int, extents: LogExtents | None = None
) -> int:
    """Return up to where ``bytes_max`` bytes of batches reach from ``start``: at least one batch
    further.

    Never beyond ``end``.
    """
    budget = bytes_max
    reached = start
    bases: Sequence[int] = place.bases()
    for base, following in zip(bases, [*bases[1:], OPEN_END]):
        if following <= start:
            continue
        segment = open_segment(place.log_path, base)
        position, offset = first_place(segment, start, extents)
        while offset < end:
            position_before = position
            found = segment.headers(position, segment.limit, batches_max=ADMITTED_BATCHES)
            rows = found.rows[(found.rows["end_offset"] > start)]
            used = np.cumsum(rows["size"])
            fits = int(np.searchsorted(used, budget, side="right"))
            if fits < len(rows):
                more = 1 if reached == start and not fits else 0
                if fits + more:
                    reached = int(rows["end_offset"][fits + more - 1])
                return min(reached, end)
            if len(rows):
                budget -= int(used[-1])
                reached = int(rows["end_offset"][-1])
            position = found.position
            if position == position_before or len(found.rows) < ADMITTED_BATCHES:
                break
            offset = reached
    return min(max(reached, start), end)


def header_pieces(place: Place, split_bytes: int, committed: int | None) -> Iterator[Piece]:
    """Yield every segment in pieces that end at batches; the last takes what stands behind."""
    bound = OPEN_END if committed is None else committed
    for base in place.bases():
        if base >= bound:
            return
        segment = open_segment(place.log_path, base)
        position, offset = 0, base
        while segment.limit - position > split_bytes:
            found = segment.headers(position, segment.limit)
            ends = found.rows["position"] + found.rows["size"]
            full = int(ends.searchsorted(position + split_bytes, side="right"))
            if full >= len(ends) or not full or int(ends[full - 1]) >= segment.limit:
                break
            end = int(ends[full - 1])
            yield Piece(place.name, segment.path, position, end, offset, bound)
            position, offset = end, int(found.rows["end_offset"][full - 1])
        yield Piece(place.name, segment.path, position, -1, offset, bound)


def segment_base(path: str) -> tuple[str, int]:
    """Return (directory, base offset) of a segment's path."""
    directory, name = os.path.split(path)
    return directory, int(name[:20])
