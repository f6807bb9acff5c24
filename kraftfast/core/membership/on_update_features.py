"""UpdateFeatures arrives: ``kraft.version`` goes from 0 to 1, and the voters into the log.

Kafka's ``LeaderState.maybeAppendUpgradedKRaftVersion``. There is no way back.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.events import RequestReceived
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal
from kraftfast.core.membership.own_entry import own_voter
from kraftfast.core.membership.voter_change import VoterChange, reply
from kraftfast.core.messages import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, KRaftVoters, VoterSet


def on_update_features(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Append version and voters in one batch; answered once that is committed."""
    request = event.request
    error, message = refusal(state, request)
    nothing_to_do = request.kraft_version == state.kraft_version
    if error is not NONE or nothing_to_do or request.validate_only:
        reply(state, event.source, UpdateFeaturesResponse, error, message or None)
        return
    leader = state.leader
    assert leader is not None
    deadline_ms = now_ms + max(request.timeout_ms, 0)
    change = VoterChange(UpdateFeaturesResponse, event.source, deadline_ms)
    voters = KRaftVoters(reported_voters(state, leader))
    membership.append_controls(state, leader, change, voters, request.kraft_version)


def refusal(state: QuorumState, request: UpdateFeaturesRequest) -> Refusal:
    """Return why this version is refused; ACCEPTED if it is not."""
    if state.leader is None or state.shutting_down:
        return ErrorCode.NOT_CONTROLLER, f"this replica does not lead, {state.leader_id} may"
    wanted = request.kraft_version
    if not limits.KRAFT_VERSION_MIN <= wanted <= limits.KRAFT_VERSION_MAX:
        return ErrorCode.INVALID_UPDATE_VERSION, f"there is no kraft.version {wanted}"
    if wanted < state.kraft_version:
        return (
            ErrorCode.INVALID_UPDATE_VERSION,
            f"kraft.version cannot go back from {state.kraft_version} to {wanted}",
        )
    if wanted == state.kraft_version:
        if wanted == 0 or request.validate_only:
            return ACCEPTED
        return membership.check_set_committed(state)
    found = membership.check_nothing_pending(state)
    if found is not ACCEPTED:
        return found
    voters = reported_voters(state, state.leader)
    silent = [voter.id for voter in voters if voter.directory_id == ZERO_UUID]
    if silent or not voters.supports(wanted):
        return (
            ErrorCode.INVALID_UPDATE_VERSION,
            f"voters that have not reported support for kraft.version {wanted}: "
            + str(silent or voters.ids),
        )
    return ACCEPTED


def reported_voters(state: QuorumState, leader: Leader) -> VoterSet:
    """Return the static voters, with what they reported to this leader by UpdateRaftVoter."""
    voters = state.voters
    if leader.slot >= 0:
        voters = voters.with_voter(own_voter(state.config, state.local, voters))
    for voter_id, voter in leader.reported.items():
        if voter_id in voters:
            voters = voters.with_voter(voter)
    return voters
