"""Step down for another quorum of this cluster, or for a voter in a higher epoch (D23, L1)."""

from __future__ import annotations

from kraftfast.core.elections.epochs import request_goes_too_far
from kraftfast.core.elections.leader_identity import begun_alone, is_unconfirmed, rival_warning
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.messages import (
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    VoteRequest,
)
from kraftfast.core.roles import Role
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import (
    persist_quorum_state,
    transition_to_resigned,
    transition_to_unattached,
)
from kraftfast.core.warning import warn
from kraftfast.types import NO_NODE, NO_OFFSET, ZERO_UUID, ReplicaKey


def yield_to_quorum(
    state: QuorumState,
    request: FetchRequest | VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest,
    sender_id: int,
    now_ms: int,
) -> None:
    """Take the epoch of a request that shows another quorum of this cluster to a replica that only
    the configuration names as a voter, and that has no log: its disk was replaced (D23).

    The epoch is written, so that it is known after a restart too. One that goes too far is not
    taken, but this replica does not lead beside it before it is started again. A request that does
    not name the cluster shows nothing: anyone can send one.
    """
    epoch = request.epoch
    if epoch <= state.epoch or state.log.end_offset > 0 or not is_unconfirmed(state):
        return
    if request.cluster_id is None:
        return
    if not state.displaced:
        state.displaced_by = sender_id
    if request_goes_too_far(state, epoch, now_ms):
        if state.leader is not None:  # whose first record waits for room
            transition_to_resigned(state, now_ms)
        state.displaced = True
    else:
        state.request_epochs.spend(epoch - state.epoch, now_ms)
        transition_to_unattached(state, epoch, NO_NODE, now_ms)
    state.poll_due = True


def pause_for_rival(
    state: QuorumState,
    request: BeginQuorumEpochRequest | EndQuorumEpochRequest,
    now_ms: int,
) -> None:
    """Stop leading while a quorum of this cluster calls this id with another directory (D23).

    The only voter, with a log of its own, cannot know which of the two is the cluster. What it goes
    on acknowledging would be lost if it is the other. It leads again once that stops.
    """
    if not isinstance(request, BeginQuorumEpochRequest) or not begun_alone(state):
        return
    if request.cluster_id is None or request.voter.id != state.local.id:
        return
    if request.voter.directory_id in (ZERO_UUID, state.local.directory_id):
        return
    warn(state, rival_warning(state, request.epoch, request.leader_id))
    if state.leader is not None:
        transition_to_resigned(state, now_ms)
    state.rival_until_ms = now_ms + 2 * state.config.fetch_timeout_ms
    if isinstance(state.current, Prospective):  # it waits for its disk
        state.current.campaign_at_ms = state.rival_until_ms
    state.poll_due = True


def leave(state: QuorumState, leader_id: int, now_ms: int) -> None:
    """Stop following that leader, if this replica does; its epoch stays."""
    if state.follower is not None and state.leader_id == leader_id:
        transition_to_unattached(state, state.epoch, NO_NODE, now_ms)


def supersede_if_committed(state: QuorumState, committed: bool, now_ms: int) -> None:
    """Supersede this replica's configuration if an answer says that voters are committed."""
    if committed and may_be_superseded(state):
        supersede(state, now_ms)


def supersede_if_replaced(
    state: QuorumState,
    request: VoteRequest | BeginQuorumEpochRequest | EndQuorumEpochRequest,
    now_ms: int,
) -> None:
    """Supersede the configuration of a replica without a log whose disk was replaced.

    A leader of this cluster shows that, or a candidate with voters in its log, if its request calls
    this id with another directory. A request that does not name the cluster shows nothing.
    """
    if isinstance(request, EndQuorumEpochRequest) or request.cluster_id is None:
        return
    if isinstance(request, VoteRequest) and request.voters_at.offset < 0:
        return
    called = request.voter
    if called.id != state.local.id or called.directory_id in (ZERO_UUID, state.local.directory_id):
        return
    if state.log.end_offset == 0 and may_be_superseded(state):
        supersede(state, now_ms)


def may_be_superseded(state: QuorumState) -> bool:
    """Return whether this replica would vote, by its configuration or the bootstrap snapshot."""
    if state.superseded or state.history.latest_offset != NO_OFFSET:
        return False
    return state.is_voter()


def supersede(state: QuorumState, now_ms: int) -> None:
    """Persist that the configuration no longer counts; stop leading or campaigning by it."""
    state.superseded = True
    persist_quorum_state(state, state.epoch, state.leader_id, state.voted)
    if state.leader is not None:  # whose first record waits for room
        transition_to_resigned(state, now_ms)
    elif state.role in (Role.PROSPECTIVE, Role.CANDIDATE):
        transition_to_unattached(state, state.epoch, state.leader_id, now_ms)
    state.poll_due = True


def go_to_epoch_of_unreached(
    state: QuorumState, voter: ReplicaKey, epoch: int, now_ms: int
) -> None:
    """Have this leader give up for the higher epoch of a voter that it does not reach (L1).

    A voter in a higher epoch says so when it answers BeginQuorumEpoch. One that moved is asked
    where it was, so after a fetch timeout of silence its own requests must do instead.
    """
    leader = state.leader
    if leader is None or epoch <= state.epoch or not state.voters.is_voter(voter):
        return
    if voter.id == state.local.id:  # a copy of this directory, or a stranger
        return
    heard_ms = max(leader.began_ms, leader.voters[voter.id].last_fetch_ms)
    silent = now_ms - heard_ms >= state.config.fetch_timeout_ms
    if silent and not request_goes_too_far(state, epoch, now_ms):
        state.request_epochs.spend(epoch - state.epoch, now_ms)
        transition_to_unattached(state, epoch, NO_NODE, now_ms)
