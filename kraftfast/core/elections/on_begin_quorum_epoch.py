"""BeginQuorumEpoch arrives: a replica claims to lead."""

from __future__ import annotations

from kraftfast.core.effects import Persisted, Reply
from kraftfast.core.elections.epochs import is_stranger_beside_leader, request_goes_too_far
from kraftfast.core.elections.leader_identity import identity_of_leader, may_follow
from kraftfast.core.elections.step_down import (
    pause_for_rival,
    supersede_if_replaced,
    yield_to_quorum,
)
from kraftfast.core.events import RequestReceived
from kraftfast.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    QuorumEpochResponse,
)
from kraftfast.core.requests import is_addressed_here, top_level_error
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import maybe_transition
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_NODE


def on_begin_quorum_epoch(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Follow the sender even if it is not in the local voter set, which may be stale.

    A sender outside every known set is refused while this replica follows another leader, and one
    that is too many epochs ahead is refused, too (``epochs``).
    Kafka's process ends on a second leader of an epoch; here the sender is told INVALID_REQUEST.
    """
    request = event.request
    if refused(state, event, now_ms):
        return
    peer = state.peers.peer(request.leader_id)
    if peer.ended and request.epoch >= state.epoch:
        peer.ended = False  # it has just sent this
    follow(state, request, now_ms)
    if is_addressed_here(state, request.voter):
        reply(state, event, ErrorCode.NONE)
    else:
        reply(state, event, ErrorCode.INVALID_VOTER_KEY)


def refused(state: QuorumState, event: RequestReceived, now_ms: int) -> bool:
    """Refuse a BeginQuorumEpoch or EndQuorumEpoch that is invalid; return whether it was."""
    request = event.request
    error = top_level_error(state, request)
    if error is not ErrorCode.NONE:
        state.effects.append(Reply(event.source, QuorumEpochResponse(error=error)))
        return True
    if request.leader_id not in (NO_NODE, state.local.id):
        supersede_if_replaced(state, request, now_ms)  # D23
    error = error_of_quorum_epoch(state, request, now_ms)
    if error is not ErrorCode.NONE:
        if request.leader_id not in (NO_NODE, state.local.id):
            yield_to_quorum(state, request, request.leader_id, now_ms)  # D23
            pause_for_rival(state, request, now_ms)
        reply(state, event, error)
        return True
    return False


def error_of_quorum_epoch(
    state: QuorumState, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
) -> ErrorCode:
    """Return what is wrong with a claim to lead this epoch, NONE if nothing is."""
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.leader_id < 0 or request_goes_too_far(state, request.epoch, now_ms):
        return ErrorCode.INVALID_REQUEST
    if not state.is_consistent(request.epoch, request.leader_id):
        return ErrorCode.INVALID_REQUEST
    if not may_follow(state, request.epoch, request.leader_id, request.leader_identity):
        return ErrorCode.INVALID_REQUEST
    if is_stranger_beside_leader(state, request.leader_id, now_ms):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def follow(
    state: QuorumState, request: BeginQuorumEpochRequest | EndQuorumEpochRequest, now_ms: int
) -> None:
    """Adopt epoch and leader of the request."""
    state.request_epochs.spend(request.epoch - state.epoch, now_ms)
    told, identity = request.leader_endpoints, request.leader_identity
    maybe_transition(
        state, request.epoch, request.leader_id, told, now_ms, identity, told_there=True
    )


def reply(state: QuorumState, event: RequestReceived, error: ErrorCode) -> None:
    """Reply with the leader and the epoch that this replica knows now."""
    response = QuorumEpochResponse(
        partition_error=error,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
    )
    state.effects.append(Reply(event.source, response, Persisted(state.epoch)))
