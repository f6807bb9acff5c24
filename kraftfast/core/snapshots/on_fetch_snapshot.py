"""FetchSnapshot arrives: a replica that is too far behind takes a snapshot in slices (KIP-630).

The order of checks is Kafka's (``KafkaRaftClient.handleFetchSnapshotRequest``). Only so many slices
are under way at once (``snapshot_slices_max``), so that they do not crowd out live traffic.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import AnswerSlice, Reply
from kraftfast.core.events import RequestReceived, SliceAnswered
from kraftfast.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.requests import top_level_error
from kraftfast.core.responding import snapshot_response
from kraftfast.core.snapshots.leases import renew
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode

NONE = ErrorCode.NONE


def on_fetch_snapshot(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Have a slice sent now, or once one of those under way has left this process."""
    request = event.request
    error = top_level_error(state, request)
    if error is not NONE:
        state.effects.append(Reply(event.source, FetchSnapshotResponse(error=error)))
        return
    error = error_of_fetch_snapshot(state, request)
    if error is not NONE:
        state.effects.append(Reply(event.source, snapshot_response(state, request, error)))
        return
    leader = state.leader
    assert leader is not None
    count_as_fetch(state, leader, request, now_ms)
    renew(leader, request, now_ms)
    if state.slices_under_way < state.config.snapshot_slices_max:
        answer_slice(state, event)
    elif len(leader.waiting_slices) < limits.PARKED_FETCHES_MAX:
        deadline_ms = now_ms + state.config.request_timeout_ms
        leader.waiting_slices.append((event, deadline_ms))
    else:
        refusal = snapshot_response(state, request, ErrorCode.BROKER_NOT_AVAILABLE)
        state.effects.append(Reply(event.source, refusal))


def error_of_fetch_snapshot(state: QuorumState, request: FetchSnapshotRequest) -> ErrorCode:
    """Return the error of a request that this replica must refuse, NONE if there is none."""
    if not request.ours:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH
    if state.leader is None:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    if state.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE
    if request.snapshot_id not in state.log.snapshots:  # which has no bootstrap snapshot either
        return ErrorCode.SNAPSHOT_NOT_FOUND
    if request.position < 0:
        return ErrorCode.POSITION_OUT_OF_RANGE
    return NONE


def count_as_fetch(
    state: QuorumState, leader: Leader, request: FetchSnapshotRequest, now_ms: int
) -> None:
    """Count the request as a Fetch for check-quorum; it does not acknowledge anything."""
    progress = leader.find(request.replica)
    if progress is not None and progress.slot >= 0:
        leader.update_check_quorum(request.replica.id, now_ms, state.config.check_quorum_timeout_ms)


def answer_slice(state: QuorumState, event: RequestReceived) -> None:
    """Have a slice sent; ``SliceAnswered`` makes room for the next."""
    request = event.request
    state.slices_under_way += 1
    state.effects.append(
        AnswerSlice(
            event.source,
            snapshot_response(state, request, NONE),
            request.snapshot_id,
            request.position,
            min(max(request.max_bytes, 1), limits.BATCH_BYTES_MAX),
        )
    )


def on_slice_answered(state: QuorumState, event: SliceAnswered, now_ms: int) -> None:
    """Send the next slice that waits, now that one has left; refuse what came too late."""
    assert state.slices_under_way > 0, "an answer that was not asked for"
    state.slices_under_way -= 1
    leader = state.leader
    if leader is None:
        return
    while leader.waiting_slices:
        waiting, deadline_ms = leader.waiting_slices.popleft()
        error = error_of_fetch_snapshot(state, waiting.request)
        if error is NONE and now_ms < deadline_ms:
            answer_slice(state, waiting)
            return
        # The asker has given up this request. But answers leave a connection in order: without this
        # one no later slice could leave (L5).
        error = ErrorCode.BROKER_NOT_AVAILABLE if error is NONE else error
        refusal = snapshot_response(state, waiting.request, error)
        state.effects.append(Reply(waiting.source, refusal))
