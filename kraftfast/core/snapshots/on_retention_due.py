"""The log begins where a snapshot ends; what stands before goes (KIP-630)."""

from __future__ import annotations

from kraftfast.core.effects import DeleteBefore, Reply
from kraftfast.core.events import RetentionDue
from kraftfast.core.replication.fetch_answers import new_fetch_response
from kraftfast.core.replication.leader import Leader
from kraftfast.core.snapshots.leases import expire, leased_offset
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import remember_voting


def on_retention_due(state: QuorumState, event: RetentionDue, now_ms: int) -> None:
    """Let the log begin where a snapshot ends; a follower that reads below gets that one.

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
    remember_voting(state, snapshot_id.offset)
    state.history.truncate_from_start(snapshot_id.offset)
    state.effects.append(DeleteBefore(snapshot_id.offset))
    if state.leader is not None:
        refer_to_snapshot(state, state.leader)


def refer_to_snapshot(state: QuorumState, leader: Leader) -> None:
    """Send followers whose streams read below the log's start to the snapshot that ends there."""
    for progress in list(leader.streams):
        if progress.sent_end_offset < state.log.start_offset:
            response = new_fetch_response(state, progress.stream)
            response.snapshot_id = state.log.snapshots[0]
            state.effects.append(Reply(progress.source, response))
            leader.close_stream(progress)
