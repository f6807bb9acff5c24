"""Fetch arrives: a replica acknowledges and asks for more, or an observer without an id reads.

Consumers do not come here (``node/tcp/consumers.py``).

The order of checks is Kafka's (``KafkaRaftClient.handleFetchRequest``). A Fetch of an open stream
skips most of them: it only moves the acknowledgement and the read cursor.
"""

from __future__ import annotations

from typing import Any

from kraftfast import limits
from kraftfast.core.effects import Reply
from kraftfast.core.elections.step_down import go_to_epoch_of_unreached, yield_to_quorum
from kraftfast.core.events import RequestReceived
from kraftfast.core.log_view import LogView
from kraftfast.core.membership.voter_change import VoterChange
from kraftfast.core.messages import FetchRequest, FetchResponse
from kraftfast.core.replication.fetch_answers import answer_fetch, is_readable, park, push
from kraftfast.core.replication.flush_policy import flush_leader
from kraftfast.core.replication.high_watermark import acknowledge, maybe_update_high_watermark
from kraftfast.core.replication.leader import Leader, Parked, Progress
from kraftfast.core.replication.validation import Validity, validate
from kraftfast.core.requests import top_level_error
from kraftfast.core.responding import fetch_refusal
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_EPOCH, OffsetAndEpoch

NONE = ErrorCode.NONE  # looked up far faster than an enum's member
VALID, _, SNAPSHOT = Validity


def on_fetch(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Answer it, park it, or push on its stream."""
    request = event.request
    if request.stream != 0 and not request.opens:
        on_stream_update(state, request, now_ms)
        return
    error = top_level_error(state, request)
    if error is NONE and request.cluster_id is None and request.replica.id >= 0:
        if state.cluster_id is not None:  # S1: an acknowledgement must say for which cluster
            error = ErrorCode.INCONSISTENT_CLUSTER_ID
    if error is not NONE:
        state.effects.append(Reply(event.source, FetchResponse(error=error, stream=request.stream)))
        return
    error = error_of_fetch(state, request)
    if error is not NONE:
        if request.replica.id >= 0:
            yield_to_quorum(state, request, request.replica.id, now_ms)  # D23
        if error is ErrorCode.FENCED_LEADER_EPOCH and state.leader is not None:
            record_directory(state, state.leader, request, now_ms)
        if error is ErrorCode.UNKNOWN_LEADER_EPOCH:
            go_to_epoch_of_unreached(state, request.replica, request.epoch, now_ms)
        state.effects.append(Reply(event.source, fetch_refusal(state, error, request.stream)))
        return
    on_valid_fetch(state, event, now_ms)


def error_of_fetch(state: QuorumState, request: FetchRequest) -> ErrorCode:
    """Return the error of a Fetch that this replica must refuse, NONE if there is none.

    One that names neither an id nor an epoch is checked by its offset alone.
    """
    is_anonymous = request.replica.id < 0 and request.epoch == NO_EPOCH
    if request.max_wait_ms < 0 or request.fetch_offset < 0:
        return ErrorCode.INVALID_REQUEST
    if not is_anonymous and not 0 <= request.last_fetched_epoch <= request.epoch:
        return ErrorCode.INVALID_REQUEST
    copied = request.copied_end_offset
    if request.stream and (request.replica.id < 0 or copied != request.fetch_offset):
        return ErrorCode.INVALID_REQUEST
    if request.opens and not request.stream:  # 0 is the number of no stream
        return ErrorCode.INVALID_REQUEST
    if not is_anonymous:
        if request.epoch < state.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if request.epoch > state.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
    if state.leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if state.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if is_anonymous and not state.log.start_offset <= request.fetch_offset <= (
        state.log.end_offset
    ):
        return ErrorCode.OFFSET_OUT_OF_RANGE
    return NONE


def on_valid_fetch(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Answer a Fetch that is not refused: by divergence, a snapshot's id, records, or later."""
    request = event.request
    leader: Any = state.leader  # None was refused: ``error_of_fetch``
    if request.replica.id >= 0 or request.epoch != NO_EPOCH:
        validity, place = judge(state.log, request)
        if validity is not VALID:
            response = fetch_refusal(state, NONE, request.stream)
            response.high_watermark = state.high_watermark
            response.log_start_offset = state.log.start_offset
            if validity is SNAPSHOT:
                response.snapshot_id = place
            else:
                response.diverging = place
            if request.replica.id != state.local.id:
                progress = record_contact(state, leader, request, now_ms)
                if progress is not None and request.fetch_offset < progress.acknowledged_end_offset:
                    acknowledge(state, leader, progress, request.fetch_offset, False)  # D3: no more
            state.effects.append(Reply(event.source, response))
            return
    if request.replica.id == state.local.id:
        refusal = fetch_refusal(state, ErrorCode.UNKNOWN_SERVER_ERROR, request.stream)
        state.effects.append(Reply(event.source, refusal))
        return
    progress = record_contact(state, leader, request, now_ms)
    tells_place = may_have_lost_leader(leader, request, progress)
    moved = False
    if progress is not None:
        leader.close_stream(progress)
        progress.fetched(request.fetch_offset, state.log.end_offset, now_ms)
        if leader.change is not None:
            note_fetch(state, leader.change, progress)
        if request.observer_endpoints:
            progress.endpoints = request.observer_endpoints
            progress.kraft_versions = request.observer_kraft_versions
        moved = acknowledge(state, leader, progress, request.fetch_offset, request.in_memory)
        if request.opens:
            max_bytes = min(request.max_bytes, limits.BATCH_BYTES_MAX)
            progress.open_stream(
                request.stream, event.source, request.fetch_offset, max_bytes, now_ms
            )
            leader.streams.append(progress)
    if moved:
        maybe_update_high_watermark(state, leader, now_ms)
    if request.opens:
        assert progress is not None  # none without an id opens a stream: ``error_of_fetch``
        progress.last_push_ms = now_ms - state.config.fetch_max_wait_ms  # answered at once
        push(state, progress, now_ms)
    else:
        answer_or_park(state, leader, event, tells_place, now_ms)
    flush_leader(state, leader, False, now_ms)


def judge(log: LogView, request: FetchRequest) -> tuple[Validity, OffsetAndEpoch | None]:
    """Validate the end of the sender's log; what this log has is fetched from it."""
    earliest = log.snapshots[0] if log.start_offset > 0 else None
    return validate(log, request.fetch_offset, request.last_fetched_epoch, earliest)


def record_directory(
    state: QuorumState, leader: Leader, request: FetchRequest, now_ms: int
) -> None:
    """Record an observer's directory from a Fetch that is refused for its older epoch (D19).

    The first Fetch of a new disk is one: it knows no epoch. That of a voter must not count as
    contact: a voter that does not know this leader does not follow it.
    """
    if request.replica.id != state.local.id and not state.voters.is_voter(request.replica):
        record_contact(state, leader, request, now_ms)


def record_contact(
    state: QuorumState, leader: Leader, request: FetchRequest, now_ms: int
) -> Progress | None:
    """Record that a replica is in contact; return its progress, None for one without an id."""
    if request.replica.id < 0:
        return None
    progress = leader.progress(request.replica, state.voters, now_ms)
    progress.last_heard_ms = now_ms
    if progress.slot >= 0:
        leader.update_check_quorum(request.replica.id, now_ms, state.config.check_quorum_timeout_ms)
    elif leader.change is not None:
        state.poll_due = True  # it may be the other disk of a replica that is being added
    return progress


def note_fetch(state: QuorumState, change: VoterChange, progress: Progress) -> None:
    """Let the addition of a voter go on that waits for a Fetch of this replica (D19)."""
    if change.probed and change.voter is not None and change.voter.key == progress.key:
        change.fetched = True
        state.poll_due = True


def may_have_lost_leader(leader: Leader, request: FetchRequest, progress: Progress | None) -> bool:
    """Return whether the answer must name the leader's endpoints: the sender may lack them (L1).

    A voter has it from the voter set; a replica whose Fetch offset rises has found the leader. One
    that learnt of the epoch before it had a leader, and has no voter set, would ask the same
    replica again and again and never learn where the leader is. Kafka always says it.
    """
    if progress is None:
        return request.epoch != NO_EPOCH
    if progress.slot >= 0 and leader.slot >= 0:
        return False
    return not 0 <= progress.acknowledged_end_offset < request.fetch_offset


def answer_or_park(
    state: QuorumState, leader: Leader, event: RequestReceived, tells_place: bool, now_ms: int
) -> None:
    """Answer if there is something to say or the sender does not wait, else park (KIP-1166)."""
    request = event.request
    parked = Parked(
        event.source,
        request.replica.id,
        request.fetch_offset,
        request.max_bytes,
        now_ms + min(request.max_wait_ms, state.config.fetch_timeout_ms),
        tells_place,
        request.replica.id in state.voters,
    )
    if (
        request.max_wait_ms == 0
        or request.high_watermark < state.high_watermark
        or is_readable(state, request.replica.id, request.fetch_offset)
        or len(leader.parked) >= limits.PARKED_FETCHES_MAX
    ):
        answer_fetch(state, parked)
    else:
        park(leader, parked)


def on_stream_update(state: QuorumState, request: FetchRequest, now_ms: int) -> None:
    """Move an open stream's acknowledgement and read cursor.

    A Fetch of another epoch or stream is dropped (D3). An impossible offset closes the stream.
    """
    leader = state.leader
    if leader is None or request.epoch != state.epoch:
        return
    progress = leader.find(request.replica)
    if progress is None or progress.stream != request.stream:
        return
    offset = request.fetch_offset
    copied_end_offset = request.copied_end_offset
    if not (
        progress.acknowledged_end_offset <= offset <= copied_end_offset <= progress.sent_end_offset
        and copied_end_offset >= progress.copied_end_offset
    ):
        refusal = fetch_refusal(state, ErrorCode.INVALID_REQUEST, progress.stream)
        state.effects.append(Reply(progress.source, refusal))
        leader.close_stream(progress)
        return
    progress.bare_unanswered = False
    progress.blocked = False
    progress.read_to(copied_end_offset)
    progress.fetched(offset, state.log.end_offset, now_ms)
    if progress.slot >= 0:
        leader.update_check_quorum(request.replica.id, now_ms, state.config.check_quorum_timeout_ms)
    elif leader.change is not None:
        note_fetch(state, leader.change, progress)
    if offset > progress.acknowledged_end_offset:
        if acknowledge(state, leader, progress, offset, request.in_memory):
            maybe_update_high_watermark(state, leader, now_ms)
            flush_leader(state, leader, False, now_ms)
    push(state, progress, now_ms)
