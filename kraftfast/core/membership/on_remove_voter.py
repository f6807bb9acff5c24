"""RemoveRaftVoter arrives: a voter is to be one no more (KIP-853).

The order of checks is that of Kafka's ``RemoveVoterHandler``, but a voter stays that the others
cannot do without: no majority could commit its removal, nor elect another leader. A leader that
removes itself goes on leading until that is committed, without counting itself, and resigns then
(I17).
"""

from __future__ import annotations

from kraftfast.core.events import RequestReceived
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal
from kraftfast.core.membership.voter_change import VoterChange, reply
from kraftfast.core.messages import RemoveRaftVoterRequest, RemoveRaftVoterResponse
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, uuid_text


def on_remove_voter(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Append the set without it; answered once that is committed."""
    request = event.request
    error, message = refusal(state, request, now_ms)
    if error is not NONE:
        reply(state, event.source, RemoveRaftVoterResponse, error, message)
        return
    leader = state.leader
    assert leader is not None
    deadline_ms = now_ms + state.config.request_timeout_ms
    change = VoterChange(RemoveRaftVoterResponse, event.source, deadline_ms)
    membership.append_voters(state, leader, change, state.voters.without(request.voter.id))


def refusal(state: QuorumState, request: RemoveRaftVoterRequest, now_ms: int) -> Refusal:
    """Return the error and message if the request must be refused."""
    for found in (
        membership.check_cluster_id(state, request.cluster_id),
        membership.check_leads(state),
    ):
        if found is not ACCEPTED:
            return found
    voter = request.voter
    if voter.id < 0 or voter.directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "a voter is removed by its id and its directory id"
    for check in (
        membership.check_nothing_pending,
        membership.check_dynamic,
        membership.check_set_committed,
    ):
        found = check(state)
        if found is not ACCEPTED:
            return found
    if voter not in state.voters.keys:
        name = f"{voter.id} with directory {uuid_text(voter.directory_id)}"
        return ErrorCode.VOTER_NOT_FOUND, f"{name} is no voter"
    if len(state.voters) == 1:
        return ErrorCode.VOTER_NOT_FOUND, "the last voter cannot be removed"
    if not membership.goes_on_without(state, voter.id, now_ms):
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            f"without {voter.id} no majority of the voters would be alive: "
            "remove those that are gone first",
        )
    return ACCEPTED
