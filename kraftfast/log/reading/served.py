"""Check what a leader sends to a follower: its own log may be damaged.

A follower checks what it copies, and fetches again what fails a check (D20). It cannot know
whether the damage is in this log, so the leader then checks its log there, CRC included: nothing
below the log's end may fail. A leader with damage hands over, to one from which all can fetch
(D10, L5).

The epoch of a batch lies outside its CRC. A follower that took a batch with another epoch would
have a log that no leader has, and might be elected by it. So headers are compared with the epoch
checkpoint before they are sent (D10), unless they were appended since the follower got all.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NoReturn

from kraftfast.errors import CorruptLog
from kraftfast.log.scan import END, WHOLE, walk
from kraftfast.record.shapes import FAULT_TEXTS, Fault

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.log.segment import Segment

NEVER = 2**63 - 1


class Served:
    """What one follower was answered last; it locates the next answer."""

    # offset: where the last Fetch began. end_offset: the log's end then, if the answer reached it:
    # what stands from there on was appended since. Else -1.

    def __init__(self) -> None:
        self.offset = self.end_offset = -1

    def locate(
        self, log: Log, offset: int, bytes_max: int, end_offset: int
    ) -> tuple[Segment, int, int] | None:
        """Do as ``Log.locate``, up to the first damaged batch; look at CRCs too, if ``offset`` is
        asked for a second time. Raises CorruptLog if the first batch is damaged.
        """
        again, self.offset = offset == self.offset, offset
        fresh, self.end_offset = offset == self.end_offset, -1
        found: tuple[Segment, int, int] | None = log.locate(offset, bytes_max, end_offset)
        if found is None:
            if log.log_start_offset <= offset < log.end_offset:
                segment = log.segment_of(offset)
                position, base_offset = segment.place_of(offset)
                if position < 0 or segment.offset_at(position) != base_offset:
                    raise_damage(log, segment, offset)
            return None
        segment, position, length = found
        if again or not fresh:
            length, _ = sound_part(log, *found, offset, again)
        if segment is log.active and position + length == segment.position:
            self.end_offset = log.end_offset
        return segment, position, length


def raise_damage(log: Log, segment: Segment, offset: int) -> NoReturn:
    """Raise CorruptLog for a segment in which no batch holds an ``offset`` of it."""
    position, base_offset = segment.indexed_place(offset)  # all before it may be a gigabyte
    check_stored_batches(log, segment, position, segment.position - position, base_offset)
    path = segment.file.path
    raise CorruptLog(f"{path} is damaged: no batch holds offset {offset}", path, position, offset)


def sound_part(
    log: Log, segment: Segment, position: int, length: int, offset: int, verify_crc: bool
) -> tuple[int, int]:
    """Return (length, end offset) of the batches in front of the first damaged one.

    Raises CorruptLog if that is the first of all.
    """
    try:
        end_offset = check_stored_batches(log, segment, position, length, offset, verify_crc)
    except CorruptLog as error:
        if error.position == position:
            raise
        return error.position - position, error.offset
    return length, end_offset


def check_stored_batches(
    log: Log,
    segment: Segment,
    position: int,
    length: int,
    offset: int,
    verify_crc: bool = True,
) -> int:
    """Check whole batches as a start would: framing, offsets, CRC, the stored epochs (I14).

    ``position``, ``length``: of their bytes. The first batch holds ``offset``. Returns their end
    offset. Raises CorruptLog with the place.
    """
    view = segment.file.view(position, position + length)
    at, offset = 0, _base_offset(segment, position, offset)
    while at < length:
        epoch, epoch_max, until = _epochs_at(log, offset)
        at, offset, _, fault = walk(
            view, at, length, offset, epoch,
            end_offset=until, epoch_max=epoch_max, verify_crc=verify_crc,
        )  # fmt: skip
        if offset == until:
            continue  # in the next epoch
        if fault == WHOLE:
            fault = Fault.EPOCH  # a batch in which another epoch begins
        if fault != END or at < length:  # zeros stand where a page was lost, too
            path, position, why = segment.file.path, position + at, FAULT_TEXTS[fault]
            raise CorruptLog(
                f"{path} is damaged at byte {position} (offset {offset}): {why}",
                path, position, offset,
            )  # fmt: skip
    return offset


def _base_offset(segment: Segment, position: int, offset: int) -> int:
    """Return the base offset that the batch at ``position`` must have, which holds ``offset``."""
    found, base_offset = segment.place_of(offset)
    return int(base_offset) if found == position else offset


def _epochs_at(log: Log, offset: int) -> tuple[int, int, int]:
    """Return (lowest epoch, highest epoch, end offset): what the batches at ``offset`` may have.

    The checkpoint names one epoch. Where the log begins inside a batch, that batch may begin before
    the first entry: then any epoch up to that one is right.
    """
    index = max(0, bisect_right(log.epochs, offset, key=lambda entry: entry[1]) - 1)
    epoch, start_offset = log.epochs[index]
    until = log.epochs[index + 1][1] if index + 1 < len(log.epochs) else NEVER
    return (epoch if offset >= start_offset else -1), epoch, until
