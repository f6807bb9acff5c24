"""Learn epoch and leader from any answer, before its own content counts.

The order is Kafka's (``KafkaRaftClient.handleTopLevelError`` and ``maybeHandleCommonResponse``).
Where Kafka's process ends, on INVALID_REQUEST or a second leader of an epoch, this one pauses.
"""

from __future__ import annotations

from enum import IntEnum

from kraftfast.core.elections.epochs import (
    answer_goes_too_far,
    has_no_record,
    is_stranger_for_majority,
)
from kraftfast.core.elections.leader_identity import may_follow
from kraftfast.core.elections.step_down import leave, supersede_if_committed
from kraftfast.core.messages import UNSAID, FetchResponse, QuorumEpochResponse, VoteResponse
from kraftfast.core.roles import Role
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import maybe_transition
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_NODE


class Outcome(IntEnum):
    """What is left to do with an answer."""

    PROCEED = 0  # its own content counts
    DONE = 1  # only its epoch and leader counted, or it is of an earlier epoch
    FAILED = 2  # back off from the peer


NONE = ErrorCode.NONE  # looked up far faster than an enum's member
UNKNOWN_LEADER_EPOCH = ErrorCode.UNKNOWN_LEADER_EPOCH
PROCEED, DONE, FAILED = Outcome
_NAMES_LEADER = (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER)
_BACKS_OFF = (
    ErrorCode.BROKER_NOT_AVAILABLE,
    ErrorCode.INVALID_VOTER_KEY,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.INCONSISTENT_CLUSTER_ID,
)


def learn_from(
    state: QuorumState,
    peer_id: int,
    response: VoteResponse | QuorumEpochResponse | FetchResponse,
    now_ms: int,
) -> Outcome:
    """Adopt epoch and leader of the answer; return what is left to do with it.

    Back off from the peer if the role did not change (L7).
    """
    before = state.current
    outcome = _learn(state, peer_id, response, now_ms)
    if outcome is not PROCEED and state.current is before:
        state.peers.back_off(peer_id, now_ms)
    return outcome


def _learn(
    state: QuorumState,
    peer_id: int,
    response: VoteResponse | QuorumEpochResponse | FetchResponse,
    now_ms: int,
) -> Outcome:
    if response.error is not NONE:
        return FAILED
    epoch, leader_id, error = (
        response.leader_epoch,
        response.leader_id,
        response.partition_error,
    )
    if epoch < state.epoch or error is UNKNOWN_LEADER_EPOCH:
        return DONE
    if leader_id == state.local.id and not leads(state, epoch):
        leader_id = NO_NODE  # what is said of the voters counts all the same (D23)
    if answer_goes_too_far(state, epoch, now_ms) or not state.is_consistent(epoch, leader_id):
        return FAILED
    identity = response.leader_identity
    follows = epoch == state.epoch and leader_id == state.leader_id and state.follower is not None
    if not follows or identity is not UNSAID:  # D23: also of the leader that a campaign remembers
        if not may_follow(state, epoch, leader_id, identity):
            leave(state, leader_id, now_ms)
            if epoch > state.epoch or error is not NONE or type(response) is not VoteResponse:
                return FAILED
            return PROCEED  # a voter that does not know of the other disk may grant a pre-vote
    if is_stranger_for_majority(state, leader_id, now_ms):
        return FAILED
    told = response.leader_endpoints
    higher = epoch > state.epoch
    if higher and not has_no_record(state):
        state.answer_epochs.spend(epoch - state.epoch, now_ms)
    answers_as_leader = type(response) is FetchResponse and error is NONE
    told_there = answers_as_leader or peer_id == leader_id
    if answers_as_leader and peer_id != leader_id and leader_id != NO_NODE:
        state.peers.peer(leader_id).ended = False  # it has just sent this, as a bootstrap server
    maybe_transition(state, epoch, leader_id, told, now_ms, identity, told_there)
    if identity is not UNSAID:
        supersede_if_committed(state, identity.committed, now_ms)  # D23
    if higher or error in _NAMES_LEADER:
        return DONE
    if error in _BACKS_OFF:
        return FAILED
    return PROCEED


def leads(state: QuorumState, epoch: int) -> bool:
    """Return whether this replica leads ``epoch``, or led it and resigned.

    Another replica may say so of an epoch that this one does not know: its directory was replaced
    or rolled back (D23), or it crashed after it had sent BeginQuorumEpoch and before quorum-state
    was written. It never leads that epoch again (D4), but a voter that names it as the leader can
    elect it in the next one (L1).
    """
    return epoch == state.epoch and state.role in (Role.LEADER, Role.RESIGNED)
