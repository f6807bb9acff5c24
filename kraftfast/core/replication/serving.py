"""What a leader does for its followers: count acknowledgements, commit, answer and push."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import (
    AcknowledgedByAll,
    AdvanceHighWatermark,
    AnswerFetch,
    DrainAppends,
)
from kraftfast.core.elections.leader_identity import identity_of_leader
from kraftfast.core.events import StreamAnswered
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.messages import FetchResponse
from kraftfast.core.replication.leader import Leader, Parked, Progress
from kraftfast.core.state import ReplicaState


def acknowledge(
    state: ReplicaState, leader: Leader, progress: Progress, offset: int, in_memory: bool
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


def acknowledge_self(state: ReplicaState, leader: Leader) -> bool:
    """Count the leader itself: only for what is on its own disk (D1, I12)."""
    if leader.slot < 0:
        return False
    leader.acknowledged.put(leader.slot, state.log.ackable_end_offset())
    return True


def maybe_update_high_watermark(state: ReplicaState, leader: Leader, now_ms: int) -> None:
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


def push_all(state: ReplicaState, leader: Leader, now_ms: int) -> None:
    """Push on every stream on which there is something new."""
    for progress in leader.streams:
        push(state, progress, now_ms)


def push(state: ReplicaState, progress: Progress, now_ms: int) -> None:
    """Push records, else a new high watermark, else a keep-alive after ``fetch_max_wait_ms``."""
    if progress.pushing or progress.blocked:
        return
    if (
        progress.sent_end_offset < state.log.end_offset
        and len(progress.pushed) < state.config.stream_pushes_max
    ):
        progress.pushing = True
        read_offset = progress.sent_end_offset
    elif progress.bare_unanswered or (
        progress.sent_high_watermark >= state.high_watermark
        and now_ms - progress.last_push_ms < state.config.fetch_max_wait_ms
    ):
        return
    else:
        progress.bare_unanswered = True
        read_offset = -1
    progress.sent_high_watermark = state.high_watermark
    progress.last_push_ms = now_ms
    response = new_fetch_response(state, progress.stream)
    state.effects.append(
        AnswerFetch(
            progress.source, response, read_offset, progress.max_bytes, state.log.end_offset
        )
    )


def on_stream_answered(state: ReplicaState, event: StreamAnswered, now_ms: int) -> None:
    """Record how far a pushed answer reached, and push what has come since.

    A full ring blocks the stream until the replica's next Fetch.
    """
    leader = state.leader
    if leader is None:
        return
    for progress in leader.streams:
        if (
            progress.pushing
            and progress.key.id == event.replica_id
            and progress.stream == event.stream
        ):
            break
    else:
        return  # the stream was closed while its answer was on the way
    end_offset = event.end_offset
    assert progress.sent_end_offset <= end_offset <= state.log.end_offset
    progress.pushing = False
    if end_offset == progress.sent_end_offset:
        progress.blocked = True
        progress.sent_high_watermark = -1
    else:
        progress.sent_end_offset = end_offset
        progress.pushed.append(end_offset)
        push(state, progress, now_ms)


def push_due_ms(state: ReplicaState, leader: Leader) -> int:
    """Return when the next keep-alive is pushed; all else is pushed when it comes."""
    due_ms = NEVER_MS
    for progress in leader.streams:
        if not (progress.pushing or progress.blocked or progress.bare_unanswered):
            due_ms = min(due_ms, progress.last_push_ms + state.config.fetch_max_wait_ms)
    return due_ms


def new_fetch_response(state: ReplicaState, stream: int) -> FetchResponse:
    """Return the response to a Fetch that is not refused, without its records."""
    return FetchResponse(
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        high_watermark=state.high_watermark,
        log_start_offset=state.log.start_offset,
        stream=stream,
    )


def is_readable(state: ReplicaState, replica_id: int, offset: int) -> bool:
    """Return whether there are records at ``offset``: without an id only committed ones (I20)."""
    return offset < (state.high_watermark if replica_id < 0 else state.log.end_offset)


def answer_fetch(state: ReplicaState, parked: Parked) -> None:
    """Answer a Fetch now, with records if there are any."""
    readable = is_readable(state, parked.replica_id, parked.offset)
    without_id = parked.replica_id < 0
    response = new_fetch_response(state, 0)
    if parked.tells_place:
        response.leader_endpoints = state.leader_endpoints
        response.leader_identity = identity_of_leader(state)
    state.effects.append(
        AnswerFetch(
            parked.source,
            response,
            parked.offset if readable else -1,
            min(parked.max_bytes, limits.BATCH_BYTES_MAX),
            state.high_watermark if readable and without_id else -1,  # I20
        )
    )


def park(leader: Leader, parked: Parked) -> None:
    """Keep a Fetch until there is something to answer. Voters go first: commits wait for them."""
    waiting = leader.parked
    place = len(waiting)
    if parked.votes:
        place = 0
        while place < len(waiting) and waiting[place].votes:
            place += 1
    waiting.insert(place, parked)
    leader.parked_deadline_ms = min(leader.parked_deadline_ms, parked.deadline_ms)


def answer_parked(state: ReplicaState, leader: Leader, committed: bool, now_ms: int = -1) -> None:
    """Answer the Fetches that waited for new records, a new high watermark, or too long."""
    if not leader.parked:
        return
    waiting = []
    leader.parked_deadline_ms = NEVER_MS
    for parked in leader.parked:
        if (
            is_readable(state, parked.replica_id, parked.offset)
            or (committed and parked.replica_id >= 0)
            or now_ms >= parked.deadline_ms
        ):
            answer_fetch(state, parked)
        else:
            waiting.append(parked)
            leader.parked_deadline_ms = min(leader.parked_deadline_ms, parked.deadline_ms)
    leader.parked = waiting


def request_drain(state: ReplicaState, leader: Leader, now_ms: int) -> None:
    """Have the node append what producers queued, within the bounds of D14."""
    log = state.log
    if not leader.appends_queued or leader.draining or state.shutting_down:
        return
    if leader.transfer is not None:
        return
    if log.end_offset == leader.epoch_start_offset:
        return  # the epoch's first record is its LeaderChange
    room = state.config.unflushed_bytes_max - log.flushing_bytes - log.unflushed_bytes
    if room <= 0 or now_ms - log.oldest_unflushed_ms() > state.config.held_age_ms_max:
        return
    leader.appends_queued = False
    leader.draining = True
    state.effects.append(DrainAppends(state.epoch, min(room, limits.TURN_BYTES_MAX)))
