"""Find records by their time: which one is the first at or after a timestamp, which the latest.

Timestamps are the producers' and need not rise. Segments and batches say the largest of theirs; the
record itself is looked for in the one batch that has it, as Kafka's ``searchForTimestamp`` does.

A search goes by turns. The time index leads it to a few headers, but where the log begins in the
middle of a segment, or batches say more than their records have, it has to walk; and a batch may
have to be decompressed. So a search is a generator: it yields what it cost since the last time, in
headers or as much work, and returns the record. In between the log may grow and lose its beginning.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING

from kraftfast.log.reading.served import check_stored_batches, raise_damage
from kraftfast.log.scan import batch_from_timestamp, batch_of_max_timestamp
from kraftfast.record.batch import BatchView, batch_at
from kraftfast.record.shapes import CODEC_MASK

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.log.segment import Segment

Found = tuple[int, int, int]
"""Offset, timestamp and epoch of a record."""
Search = Generator[int, None, Found | None]

COST_MAX = 8192
"""What one turn of a search may cost: headers or records, half a millisecond of them."""


def at_timestamp(log: Log, timestamp: int, end_offset: int) -> Search:
    """Search the first record at or after ``timestamp``, None if it is not below ``end_offset``.

    Raises UnsupportedCodec, CorruptBatch, CorruptLog.
    """
    offset = -1
    while (offset := max(offset, log.log_start_offset)) < end_offset:
        segment = log.segment_of(offset)
        position, offset, looked = batch_from_timestamp(segment, timestamp, offset, COST_MAX)
        if 0 <= position and offset < end_offset:
            batch = checked_batch(log, segment, position, offset)
            found = batch.first_from(timestamp, log.log_start_offset)
            place = found and (*found, batch.leader_epoch)
            offset = batch.end_offset
            yield cost_of(batch)
            if place is not None:
                return place if place[0] < end_offset else None
        yield 1 + looked
    return None


def at_max_timestamp(log: Log, end_offset: int) -> Search:
    """Search the first of the records below ``end_offset`` that have the largest timestamp.

    None if there are none, or none with a time. Raises UnsupportedCodec, CorruptBatch, CorruptLog.
    """
    offset, largest, place = -1, -1, -1
    while (offset := max(offset, log.log_start_offset)) < end_offset:
        segment = log.segment_of(offset)
        found = batch_of_max_timestamp(segment, offset, end_offset, COST_MAX)
        timestamp, at, offset, looked = found
        if timestamp > largest:
            largest, place = timestamp, at
        yield 1 + looked
        if offset >= end_offset and 0 <= place < log.log_start_offset:
            offset, largest, place = -1, -1, -1  # the log begins behind it now
    if place < 0:
        return None
    segment = log.segment_of(place)
    batch = checked_batch(log, segment, segment.place_of(place)[0], place)
    record = batch.first_from(largest, log.log_start_offset)
    epoch = batch.leader_epoch
    yield cost_of(batch)
    return None if record is None else (*record, epoch)


def checked_batch(log: Log, segment: Segment, position: int, offset: int) -> BatchView:
    """Return the batch at ``position``, which holds ``offset``, with its CRC, offsets and epoch
    checked. Raises CorruptLog, also for a position below 0: it was not found.
    """
    if position < 0:
        raise_damage(log, segment, offset)
    batch = batch_at(segment.file.view(position, segment.position))
    check_stored_batches(log, segment, position, batch.size, offset)
    return batch


def cost_of(batch: BatchView) -> int:
    """Return what it costs to look through a batch: one that is compressed, a whole turn."""
    return COST_MAX if batch.attributes & CODEC_MASK else int(batch.record_count)
