"""AlterPartitionReassignments and ListPartitionReassignments arrive: target sets (KIP-642)."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import Reply
from kraftfast.core.events import RequestReceived
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal
from kraftfast.core.membership.reassignment import can_be_voter
from kraftfast.core.membership.voter_change import VoterChange, reply
from kraftfast.core.messages import (
    AlterPartitionReassignmentsResponse,
    ListPartitionReassignmentsResponse,
)
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import KRaftVoters


def on_alter_reassignments(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Write the target down; answered once that is committed, the moves come after."""
    request = event.request
    answers = AlterPartitionReassignmentsResponse
    error, message = refusal(state, request.target)
    if error is not NONE:
        reply(state, event.source, answers, error, message)
        return
    leader, latest = state.leader, state.history.latest
    assert leader is not None and latest is not None
    target = None if request.target is None else tuple(sorted(request.target))
    if target == latest.voters.ids:
        target = None
    if target == latest.target:
        reply(state, event.source, answers, NONE)
        return
    change = VoterChange(answers, event.source, now_ms + max(request.timeout_ms, 0))
    membership.append_controls(state, leader, change, KRaftVoters(latest.voters, target))


def refusal(state: QuorumState, target: tuple[int, ...] | None) -> Refusal:
    """Return why this cannot be the target now; ACCEPTED if it can."""
    leader = state.leader
    if leader is None or state.shutting_down:
        return ErrorCode.NOT_CONTROLLER, f"this replica does not lead, {state.leader_id} may"
    found = membership.check_dynamic(state)
    if found is not ACCEPTED:
        return found
    latest = state.history.latest
    if target is None:
        if latest is None or latest.target is None:
            found = membership.check_set_committed(state)
            if found is not ACCEPTED:
                return found  # the one that ended it may be undone
            return ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "no reassignment is under way"
    else:
        found = check_target(state, leader, target)
        if found is not ACCEPTED:
            return found
    found = membership.check_nothing_pending(state)
    return found if found is not ACCEPTED else membership.check_set_committed(state)


def check_target(state: QuorumState, leader: Leader, target: tuple[int, ...]) -> Refusal:
    """Refuse a target in which not each is a voter, or an observer that could be one."""
    invalid = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if not target or len(set(target)) != len(target) or min(target) < 0:
        return invalid, "a target is one or more different ids, none of them negative"
    if len(target) > limits.VOTERS_MAX:
        return invalid, f"at most {limits.VOTERS_MAX} voters fit"
    for voter_id in sorted(set(target) - set(state.voters.ids)):
        named = [each for key, each in leader.observers.items() if key.id == voter_id]
        if not named:
            return invalid, f"{voter_id} is neither voter nor observer: start it first"
        if not any(can_be_voter(state, each) for each in named):
            return invalid, f"{voter_id} has not reported its address: add it with add-controller"
    return ACCEPTED


def on_list_reassignments(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Answer with the voters and the target, as the leader has them."""
    if state.leader is None:
        message = f"this replica does not lead, {state.leader_id} may"
        response = ListPartitionReassignmentsResponse(ErrorCode.NOT_CONTROLLER, message)
    else:
        latest = state.history.latest
        response = ListPartitionReassignmentsResponse(
            voter_ids=state.voters.ids, target=None if latest is None else latest.target
        )
    state.effects.append(Reply(event.source, response))
