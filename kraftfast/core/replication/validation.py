"""Validate the end of a fetcher's log against this log (KIP-595, KIP-630)."""

from __future__ import annotations

from enum import IntEnum

from kraftfast.core.log_view import LogView
from kraftfast.types import OffsetAndEpoch


class Validity(IntEnum):
    """The outcome for a fetcher."""

    VALID = 0
    DIVERGING = 1  # the fetcher must truncate its log
    SNAPSHOT = 2  # the next record is only in a snapshot


def validate(
    log: LogView,
    offset: int,
    epoch: int,
    earliest_snapshot: OffsetAndEpoch | None = None,
) -> tuple[Validity, OffsetAndEpoch | None]:
    """Judge "my log ends at ``offset`` and its last record is of ``epoch``".

    Kafka's ``ReplicatedLog.validateOffsetAndEpoch``, but for the snapshot. ``earliest_snapshot``:
    where this log begins, None if that is at 0. The second value is where the logs diverge, or that
    snapshot. Kafka names the latest one, since only the state machine reads its log. Consumers read
    this one: a replica that got the latest snapshot would lack records that its leader still has.
    """
    if log.start_offset == 0 and offset == 0:
        return Validity.VALID, None
    if earliest_snapshot is not None and (
        offset < log.start_offset
        or (offset == log.start_offset and epoch != earliest_snapshot.epoch)
        or epoch < earliest_snapshot.epoch
    ):
        return Validity.SNAPSHOT, earliest_snapshot
    end = log.trail.end_offset_for(epoch, log.end_offset)
    if earliest_snapshot is not None and end == (earliest_snapshot.offset, epoch):
        end = earliest_snapshot
    if end.epoch != epoch or end.offset < offset:
        return Validity.DIVERGING, end
    return Validity.VALID, None
