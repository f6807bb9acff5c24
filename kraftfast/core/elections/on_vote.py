"""Vote arrives: a candidate asks for a vote, or a prospective one for a pre-vote.

The order of checks is Kafka's (``KafkaRaftClient.handleVoteRequest``), with three departures, since
nothing that a stranger sends may end a process: a pre-vote moves only the epoch of a leader that
does not reach the sender, a voter; a Vote moves it only so far (``epochs``), and not beside a live
leader, unless the sender knows no pre-vote; a Vote from outside every known voter set moves it only
if it is granted.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import Persisted, Reply
from kraftfast.core.elections.epochs import is_known, is_shielded, request_goes_too_far
from kraftfast.core.elections.leader_identity import identity_of_leader, is_impostor
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.step_down import (
    go_to_epoch_of_unreached,
    supersede_if_replaced,
    yield_to_quorum,
)
from kraftfast.core.elections.superseded import asks_by_configuration, knows_committed_voters
from kraftfast.core.events import RequestReceived
from kraftfast.core.messages import UNSAID, VoteRequest, VoteResponse
from kraftfast.core.requests import is_addressed_here, top_level_error
from kraftfast.core.roles import Role
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import grant_vote, transition_to_unattached
from kraftfast.core.warning import warn_of_shorter_log
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_NODE, ZERO_UUID


def on_vote(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Grant or reject it; a granted vote is on disk before the answer leaves (D5, I10)."""
    request = event.request
    error = top_level_error(state, request)
    if error is not ErrorCode.NONE:
        state.effects.append(Reply(event.source, VoteResponse(error=error)))
        return
    supersede_if_replaced(state, request, now_ms)  # D23
    if request.replica.id != state.leader_id:  # L4: a leader that was restarted leads no more
        state.peers.note_life(request.replica.id)
    error = error_of_vote(state, request, now_ms)
    if shows_quorum(state, request):
        yield_to_quorum(state, request, request.replica.id, now_ms)  # D23
    if error is not ErrorCode.NONE:
        refuse(state, event, error)
    elif request.pre_vote:
        on_pre_vote(state, event, now_ms)
    else:
        on_standard_vote(state, event, now_ms)


def shows_quorum(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether the sender has a log, so that its cluster has elected a leader before."""
    return request.replica.id not in (NO_NODE, state.local.id) and request.last_offset > 0


def error_of_vote(state: QuorumState, request: VoteRequest, now_ms: int) -> ErrorCode:
    """Return what is wrong with the request itself, or its epoch."""
    last_epoch_max = request.epoch if request.pre_vote else request.epoch - 1
    if request.last_offset < 0 or not 0 <= request.last_epoch <= last_epoch_max:
        return ErrorCode.INVALID_REQUEST
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if request.replica.id < 0 or request.replica.id == state.local.id:
        return ErrorCode.INVALID_REQUEST
    if request.pre_vote:
        return ErrorCode.INVALID_REQUEST if request.epoch > limits.EPOCH_MAX else ErrorCode.NONE
    if request_goes_too_far(state, request.epoch, now_ms):
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.NONE


def refuse(state: QuorumState, event: RequestReceived, error: ErrorCode) -> None:
    """Reply with an error, the epoch and the leader."""
    response = VoteResponse(
        partition_error=error,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        voters_committed=knows_committed_voters(state),
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
    )
    state.effects.append(Reply(event.source, response))


def is_barred(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether the sender may not lead, whatever its log is (D23)."""
    return is_impostor(state, request) or asks_by_configuration(state, request)


def is_long_enough(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether the sender may lead, as far as this replica can tell by log and voters.

    An ordinary election must also cover what this replica may have acknowledged and lost (D10); a
    unanimous one compares what is left. With durability=memory a replica that is certain of its log
    must lead instead of one that is not; but one without a log must lead none that has a log (D23).
    """
    if is_barred(state, request):
        return False
    if not state.has_log_up_to(request.last_epoch, request.last_offset):
        return False
    if request.unanimous:
        return state.doubt.exists() or not state.log.in_memory or state.log.end_offset == 0
    return state.doubt.allows(request.last_epoch, request.last_offset)


def lacks_only_certainty(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether this replica, without a log, refuses for its doubt alone (D10, D23).

    Then it knows of no log that another one could be begun beside.
    """
    if state.log.end_offset > 0 or is_barred(state, request):
        return False
    return state.doubt.exists() and state.current.grants_pre_vote()


def report_if_shorter(state: QuorumState, request: VoteRequest) -> None:
    """Report a voter that a witness refuses for its log: the witness does not lead in its place."""
    if state.config.campaign or not state.voters.is_voter(request.replica):
        return
    if not state.has_log_up_to(request.last_epoch, request.last_offset):
        warn_of_shorter_log(state, request.replica.id, request.last_offset)


def leader_is_silent(state: QuorumState, now_ms: int) -> bool:
    """Return whether the fetch timeout of this follower expired, or its leader is known dead.

    Witnesses never campaign, and observers have no timer but may be voters by a later set: both
    must grant here, or no leader may be elected.
    """
    follower = state.follower
    if follower is None:
        return False
    if state.leader_is_dead():
        return True
    return now_ms >= follower.fetch_deadline_ms and not state.writing


def on_pre_vote(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Grant or reject a pre-vote by the present role.

    Epoch and role do not change, but for a leader that does not reach a voter in a higher epoch.
    To a sender of a higher epoch the answer says what Kafka's would, "no leader in your epoch":
    else it would be dropped as one of the past.
    """
    request = event.request
    if not is_addressed_here(state, request.voter):
        refuse(state, event, ErrorCode.INVALID_VOTER_KEY)
        return
    go_to_epoch_of_unreached(state, request.replica, request.epoch, now_ms)
    unled = state.current.grants_pre_vote() or leader_is_silent(state, now_ms)
    granted = unled and is_long_enough(state, request)
    if unled and not granted:
        report_if_shorter(state, request)
    has_no_log = not granted and lacks_only_certainty(state, request)
    if granted and isinstance(state.current, Prospective) and state.leader_is_dead():
        granted = let_go_first(state, state.current, request, now_ms)
    ahead = request.epoch > state.epoch
    response = VoteResponse(
        leader_id=NO_NODE if ahead else state.leader_id,
        leader_epoch=request.epoch,
        vote_granted=granted,
        in_doubt=state.doubt.exists(),
        has_no_log=has_no_log,
        voters_committed=knows_committed_voters(state),
        leader_endpoints=() if ahead else state.leader_endpoints,
        leader_identity=UNSAID if ahead else identity_of_leader(state),
    )
    state.effects.append(Reply(event.source, response))


def let_go_first(
    state: QuorumState, current: Prospective, request: VoteRequest, now_ms: int
) -> bool:
    """Decide which of two replicas that know of the leader's death and ask each other goes first.

    Else both would win pre-votes and split the votes. The longer log goes first, then the lower
    id; a replica that has not asked yet, or still waits for its disk (D21), lets any other go. If
    granted, this replica's campaign is delayed; if refused, the other's fails.
    """
    on_disk = state.log.ackable_end_offset() == state.log.end_offset
    begun = on_disk and now_ms >= current.campaign_at_ms
    theirs = request.last_epoch, request.last_offset
    equal = theirs == (state.log.last_epoch(), state.log.end_offset)
    if begun and equal and state.local.id < request.replica.id:
        return False
    current.yield_to(now_ms, state.config.failover_step_ms * len(state.voters))
    return True


def on_standard_vote(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Move to a higher epoch, then judge, then have a granted vote written."""
    request = event.request
    here = is_addressed_here(state, request.voter)
    ahead = request.epoch > state.epoch
    if ahead and is_shielded(state, request, now_ms):
        refuse_for_leader(state, event, here)
        return
    if ahead:
        granted = here and state.local.id >= 0 and is_long_enough(state, request)
        if granted or is_known(state, request.replica):
            vote = request.replica if granted else None
            state.request_epochs.spend(request.epoch - state.epoch, now_ms)
            transition_to_unattached(state, request.epoch, NO_NODE, now_ms, vote)
    if not here:
        refuse(state, event, ErrorCode.INVALID_VOTER_KEY)
        return
    granted = request.epoch == state.epoch and grants(state, request)
    if not granted:
        report_if_shorter(state, request)
    elif state.voted is None:
        grant_vote(state, request.replica, now_ms)
    response = VoteResponse(
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        vote_granted=granted,
        in_doubt=state.doubt.exists(),
        voters_committed=knows_committed_voters(state),
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
    )
    state.effects.append(Reply(event.source, response, Persisted(state.epoch)))


def refuse_for_leader(state: QuorumState, event: RequestReceived, here: bool) -> None:
    """Refuse a vote without moving to its epoch: there is a live leader (dissertation, 4.2.3).

    As to a pre-vote, the answer is of the sender's epoch, so that it counts there. A voter that
    really is ahead moves the leader when it answers that one's BeginQuorumEpoch.
    """
    if not here:
        refuse(state, event, ErrorCode.INVALID_VOTER_KEY)
        return
    response = VoteResponse(
        leader_epoch=event.request.epoch,
        in_doubt=state.doubt.exists(),
        voters_committed=knows_committed_voters(state),
    )
    state.effects.append(Reply(event.source, response))


def grants(state: QuorumState, request: VoteRequest) -> bool:
    """Return whether the request gets this replica's vote in the present epoch (I1, I9).

    One vote an epoch, none once a leader is known. The logs are compared at every grant (D21),
    also where the vote was given before: the candidate may have lost its tail since. Kafka does
    not compare again, which is safe only because its followers flush every append.
    """
    if state.role not in (Role.UNATTACHED, Role.PROSPECTIVE) or state.local.id < 0:
        return False
    if not is_long_enough(state, request):
        return False
    voted = state.voted
    if voted is not None:
        same_directory = voted.directory_id in (ZERO_UUID, request.replica.directory_id)
        return voted.id == request.replica.id and same_directory
    return state.leader_id == NO_NODE
