"""Find records by their time: which one is the first at or after a timestamp, which the latest.

Timestamps are the producers' and need not rise. Segments and batches say the largest of theirs; the
record itself is looked for in the one batch that has it, as Kafka's ``searchForTimestamp`` does.
"""

from __future__ import annotations

from typing import Any

from kraftfast.log.segment import Segment
from kraftfast.record.batch import batch_at

Found = tuple[int, int, int]
"""Offset, timestamp and epoch of a record."""


def at_timestamp(log: Any, timestamp: int, end_offset: int) -> Found | None:
    """Return the first record at or after ``timestamp``, None if it is not below ``end_offset``.

    Raises UnsupportedCodec.
    """
    start_offset = log.log_start_offset
    for segment in log.segments:
        if segment.base_offset >= end_offset:
            break
        position = segment.batch_from_timestamp(timestamp, start_offset)
        while position >= 0:
            found = _first_record(segment, position, timestamp, start_offset)
            if found is not None:
                return found if found[0] < end_offset else None
            position = segment.next_from_timestamp(timestamp, position)
    return None


def at_max_timestamp(log: Any, end_offset: int) -> Found | None:
    """Return the first of the records below ``end_offset`` that have the largest timestamp.

    None if there are none, or none with a time. Raises UnsupportedCodec.
    """
    start_offset = log.log_start_offset
    largest, place = -1, None
    for segment in log.segments:
        if segment.base_offset >= end_offset:
            break
        timestamp, position = segment.batch_of_max_timestamp(start_offset, end_offset)
        if timestamp > largest:
            largest, place = timestamp, (segment, position)
    return None if place is None else _first_record(*place, largest, start_offset)


def _first_record(
    segment: Segment, position: int, timestamp: int, start_offset: int
) -> Found | None:
    """Return the first record of a batch that is at or after both, None without one."""
    batch = batch_at(segment.file.view(position, segment.position))
    found = batch.first_from(timestamp, start_offset)
    return None if found is None else (*found, batch.leader_epoch)
