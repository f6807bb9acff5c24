"""A snapshot is made here: whether it may be, and that it is there (KIP-630)."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.events import SnapshotCreated
from kraftfast.core.state import QuorumState
from kraftfast.errors import InvalidOption
from kraftfast.types import OffsetAndEpoch


def may_create(state: QuorumState, snapshot_id: OffsetAndEpoch) -> bool:
    """Return whether a snapshot of the records below its offset is wanted; False: it is there
    already.

    Raises ``InvalidOption`` if it cannot be: beyond what is committed and on disk here (D11, I15),
    or not a place of this log. Kafka's ``KafkaRaftLog.createNewSnapshot``.
    """
    log = state.log
    offset, epoch = snapshot_id
    if offset <= log.start_offset or snapshot_id in log.snapshots:
        return False
    if state.leader is not None and state.leader.leases:
        if len(log.snapshots) >= limits.LEASED_SNAPSHOTS_MAX:
            return False  # none can be deleted yet
    committed = min(state.high_watermark, log.ackable_end_offset())
    if offset > committed:
        raise InvalidOption(f"no snapshot below {offset}: only {committed} is committed and stored")
    if log.trail.epoch_at(offset - 1) != epoch:
        raise InvalidOption(f"no snapshot below {offset}: the record there is not of epoch {epoch}")
    return True


def on_snapshot_created(state: QuorumState, event: SnapshotCreated, now_ms: int) -> None:
    """Offer the snapshot to followers from now on: it is on disk under its name."""
    log = state.log
    snapshot_id = event.snapshot_id
    if snapshot_id.offset <= log.start_offset or snapshot_id in log.snapshots:
        return  # one that was fetched meanwhile covers it
    assert snapshot_id.offset <= state.committed_offset, "I15"
    assert snapshot_id.offset <= log.ackable_end_offset(), "I15"
    log.snapshots = sorted([*log.snapshots, snapshot_id])
