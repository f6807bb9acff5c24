"""What a follower asks for again: the records that it was sent may be damaged here.

A follower checks what it copies, and fetches again what does not check (D20). It cannot know
whether the way or this log damaged it, so this replica looks: nothing below the end of its log may
fail a check. One that is damaged lets another one lead, from which all can fetch (D10, L5).
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING

from kraftfast.errors import CorruptLog
from kraftfast.log.scan import END, WHOLE, walk
from kraftfast.record.shapes import FAULT_TEXTS, Fault

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.log.segment import Segment

NEVER = 2**63 - 1


class Served:
    """The offset that was answered last, to one follower."""

    def __init__(self) -> None:
        self.offset = -1

    def locate(
        self, log: Log, offset: int, bytes_max: int, end_offset: int
    ) -> tuple[Segment, int, int] | None:
        """Do as ``Log.locate``; check what is asked for a second time. Raises CorruptLog."""
        found: tuple[Segment, int, int] | None = log.locate(offset, bytes_max, end_offset)
        if found is None and log.log_start_offset <= offset < log.end_offset:
            segment = log.segment_of(offset)
            if segment.position_of(offset) < 0:
                raise_damage(log, segment, offset)
        if found is not None and offset == self.offset:
            check_batches(log, *found, offset)
        self.offset = offset
        return found


def raise_damage(log: Log, segment: Segment, offset: int) -> None:
    """Raise CorruptLog for a segment in which no batch holds an ``offset`` of it."""
    check_batches(log, segment, 0, segment.position, segment.base_offset)
    path = segment.file.path
    raise CorruptLog(f"{path} is damaged: no batch holds offset {offset}", path, 0, offset)


def check_batches(log: Log, segment: Segment, position: int, length: int, offset: int) -> None:
    """Check whole batches as a start would: framing, offsets, CRC, the stored epochs (I15).

    ``position`` and ``length``: of their bytes; the first batch holds ``offset``. Raises CorruptLog
    with the place.
    """
    view = segment.file.view(position, position + length)
    at, offset = 0, _base_offset(segment, position, offset)
    while at < length:
        epoch, epoch_max, until = _epochs_at(log, offset)
        at, offset, _, fault = walk(
            view, at, length, offset, epoch,
            end_offset=until, epoch_max=epoch_max, verify_crc=True,
        )  # fmt: skip
        if offset == until:
            continue  # in the next epoch
        if fault == WHOLE:
            fault = Fault.EPOCH  # a batch in which another epoch begins
        if fault != END:
            path = segment.file.path
            raise CorruptLog(
                f"{path} is damaged at byte {position + at} (offset {offset}): {FAULT_TEXTS[fault]}"
                "; a follower fetches it in vain",
                path,
                position + at,
                offset,
            )


def _base_offset(segment: Segment, position: int, offset: int) -> int:
    """Return the base offset that the batch at ``position`` must have, which holds ``offset``."""
    if position == 0:
        return int(segment.base_offset)
    if segment.position_of(offset - 1) != position:
        return offset  # the batch before it ends there
    return int(segment.offset_at(position))


def _epochs_at(log: Log, offset: int) -> tuple[int, int, int]:
    """Return the lowest and the highest epoch that a batch there may have, and up to where.

    The checkpoint has one; of the first batch, in which the log may begin, it has the highest.
    """
    index = max(0, bisect_right(log.epochs, offset, key=lambda entry: entry[1]) - 1)
    epoch, start_offset = log.epochs[index]
    until = log.epochs[index + 1][1] if index + 1 < len(log.epochs) else NEVER
    return (epoch if offset >= start_offset else -1), epoch, until
