"""Count what replicas have on disk, and commit: the high watermark of a leader."""

from __future__ import annotations

from kraftfast.core.effects import AcknowledgedByAll, AdvanceHighWatermark
from kraftfast.core.replication.fetch_answers import answer_parked, push_all
from kraftfast.core.replication.leader import Leader, Progress
from kraftfast.core.state import QuorumState


def acknowledge(
    state: QuorumState, leader: Leader, progress: Progress, offset: int, in_memory: bool
) -> bool:
    """Record what a replica has on disk (D3); return whether that may move the high watermark.

    A durable leader does not count what a voter has in memory only.
    """
    progress.acknowledged_end_offset = offset
    if leader.transfer is not None:
        state.poll_due = True  # it may be the successor
    if progress.slot < 0 or (in_memory and not state.log.in_memory):
        return False
    leader.acknowledged.put(progress.slot, offset)
    return True


def acknowledge_self(state: QuorumState, leader: Leader) -> bool:
    """Count the leader itself: only for what is on its own disk (D1, I12)."""
    if leader.slot < 0:
        return False
    leader.acknowledged.put(leader.slot, state.log.ackable_end_offset())
    return True


def maybe_update_high_watermark(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Move the high watermark to what a majority of the voters in force has on disk.

    Only past a record of the leader's own epoch (D6), and never back (I6). Parked Fetches are
    answered with it (KIP-1166), and streams get it.
    """
    offset = leader.acknowledged.by_majority()
    if offset > leader.epoch_start_offset and offset > state.high_watermark:
        assert offset <= state.log.end_offset
        assert offset >= state.committed_offset, "committed records are never uncommitted (I4, I6)"
        state.high_watermark = offset
        state.committed_offset = offset
        state.effects.append(AdvanceHighWatermark(offset))
        if leader.watches_commit:
            state.poll_due = True
        answer_parked(state, leader, True)
        push_all(state, leader, now_ms)
    if state.for_all and state.history.latest_offset < state.high_watermark:
        # D16: a set that is not committed may be undone, and the one before counts again.
        # Majorities of both have a voter in common; all of the smaller are not all of the other.
        offset = leader.acknowledged.by_all()
        if offset > leader.epoch_start_offset and offset > leader.all_acknowledged:
            assert offset <= state.high_watermark
            leader.all_acknowledged = offset
            state.effects.append(AcknowledgedByAll(offset))
