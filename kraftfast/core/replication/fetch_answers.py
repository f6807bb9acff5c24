"""Answers of a leader to Fetches: pushed on a stream, or parked until there is something to say."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import AnswerFetch
from kraftfast.core.elections.leader_identity import identity_of_leader
from kraftfast.core.events import StreamAnswered
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.messages import FetchResponse
from kraftfast.core.replication.leader import Leader, Parked, Progress
from kraftfast.core.state import QuorumState


def push_all(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Push on every stream on which there is something new."""
    for progress in leader.streams:
        push(state, progress, now_ms)


def push(state: QuorumState, progress: Progress, now_ms: int) -> None:
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


def on_stream_answered(state: QuorumState, event: StreamAnswered, now_ms: int) -> None:
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


def push_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when the next keep-alive is pushed; all else is pushed when it comes."""
    due_ms = NEVER_MS
    for progress in leader.streams:
        if not (progress.pushing or progress.blocked or progress.bare_unanswered):
            due_ms = min(due_ms, progress.last_push_ms + state.config.fetch_max_wait_ms)
    return due_ms


def new_fetch_response(state: QuorumState, stream: int) -> FetchResponse:
    """Return the response to a Fetch that is not refused, without its records."""
    return FetchResponse(
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        high_watermark=state.high_watermark,
        log_start_offset=state.log.start_offset,
        stream=stream,
    )


def is_readable(state: QuorumState, replica_id: int, offset: int) -> bool:
    """Return whether there are records at ``offset``: without an id only committed ones (I20)."""
    return offset < (state.high_watermark if replica_id < 0 else state.log.end_offset)


def answer_fetch(state: QuorumState, parked: Parked) -> None:
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
    if parked.is_voter:
        place = 0
        while place < len(waiting) and waiting[place].is_voter:
            place += 1
    waiting.insert(place, parked)
    leader.parked_deadline_ms = min(leader.parked_deadline_ms, parked.deadline_ms)


def answer_parked(state: QuorumState, leader: Leader, committed: bool, now_ms: int = -1) -> None:
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
