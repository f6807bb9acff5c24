"""Snapshots that this replica made, and the log that they let it delete (KIP-630)."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import DeleteBefore, Reply
from kraftfast.core.events import RetentionDue, SnapshotCreated
from kraftfast.core.replication.fetch_answers import new_fetch_response
from kraftfast.core.snapshots.leases import expire, leased_offset
from kraftfast.core.state import ReplicaState
from kraftfast.errors import InvalidOption
from kraftfast.types import OffsetAndEpoch


def may_create(state: ReplicaState, snapshot_id: OffsetAndEpoch) -> bool:
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


def on_snapshot_created(state: ReplicaState, event: SnapshotCreated, now_ms: int) -> None:
    """Offer the snapshot to followers from now on: it is on disk under its name."""
    log = state.log
    snapshot_id = event.snapshot_id
    if snapshot_id.offset <= log.start_offset or snapshot_id in log.snapshots:
        return  # one that was fetched meanwhile covers it
    assert snapshot_id.offset <= state.committed_offset, "I15"
    assert snapshot_id.offset <= log.ackable_end_offset(), "I15"
    log.snapshots = sorted([*log.snapshots, snapshot_id])


def on_retention_due(state: ReplicaState, event: RetentionDue, now_ms: int) -> None:
    """Let the log begin where a snapshot ends; a follower that reads below gets the latest one.

    A snapshot that is being fetched stays, and the log behind it.
    """
    log = state.log
    snapshot_id = event.snapshot_id
    if snapshot_id not in log.snapshots or snapshot_id.offset <= log.start_offset:
        return
    if log.in_memory and log.flushing:
        return  # what goes may be part of that flush, and its files must stay open; asked again
    if state.leader is not None and state.leader.leases and not event.urgent:
        expire(state.leader, log.end_offset, now_ms)
        if snapshot_id.offset > leased_offset(state.leader):
            return
    log.delete_before(snapshot_id.offset)
    state.remember_voting(snapshot_id.offset)
    state.history.truncate_from_start(snapshot_id.offset)
    state.effects.append(DeleteBefore(snapshot_id.offset))
    leader = state.leader
    if leader is None:
        return
    for progress in list(leader.streams):
        if progress.sent_end_offset < log.start_offset:
            response = new_fetch_response(state, progress.stream)
            response.snapshot_id = log.snapshots[-1]
            state.effects.append(Reply(progress.source, response))
            leader.close_stream(progress)
