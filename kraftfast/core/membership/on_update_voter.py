"""UpdateRaftVoter arrives: a voter tells where it listens, and what it speaks (KIP-853).

The order of checks is that of Kafka's ``UpdateVoterHandler``. While ``kraft.version`` is 0 the
leader only remembers it, for the upgrade.
"""

from __future__ import annotations

from kraftfast.core.events import Probed, RequestReceived
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal
from kraftfast.core.membership.voter_change import VoterChange, reply
from kraftfast.core.messages import UpdateRaftVoterRequest, UpdateRaftVoterResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, Voter


def on_update_voter(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Check what can be checked, then ask the voter at its new endpoints."""
    request = event.request
    error, message = refusal(state, request)
    if error is not NONE:
        reply(state, event.source, UpdateRaftVoterResponse, error, message)
        return
    leader = state.leader
    assert leader is not None
    change = VoterChange(
        UpdateRaftVoterResponse,
        event.source,
        now_ms + state.config.request_timeout_ms,
        Voter(
            request.voter.id,
            request.voter.directory_id,
            request.endpoints,
            request.kraft_version_min,
            request.kraft_version_max,
        ),
        at_append=True,
    )
    membership.begin_probe(state, leader, change)


def refusal(state: QuorumState, request: UpdateRaftVoterRequest) -> Refusal:
    """Return why this cannot be noted now; ACCEPTED if it can."""
    found = membership.check_cluster_id(state, request.cluster_id)
    if found is not ACCEPTED:
        return found
    if request.epoch < state.epoch:
        return ErrorCode.FENCED_LEADER_EPOCH, f"this is epoch {state.epoch}"
    if request.epoch > state.epoch:
        return ErrorCode.UNKNOWN_LEADER_EPOCH, f"this is only epoch {state.epoch}"
    found = membership.check_leads(state)
    if found is not ACCEPTED:
        return found
    if request.voter.id < 0 or request.voter.directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "a voter has an id and a directory id"
    if not 0 <= request.kraft_version_min <= request.kraft_version_max:
        return ErrorCode.INVALID_REQUEST, "that is no range of kraft.version"
    found = membership.check_nothing_pending(state)
    if found is not ACCEPTED:
        return found
    return membership.check_default_listener(state, request.endpoints)


def on_probed_to_update(
    state: QuorumState, leader: Leader, change: VoterChange, event: Probed, now_ms: int
) -> None:
    """Keep the endpoints at which the voter answered the probe."""
    voter = change.voter
    assert voter is not None
    error, message = refusal_after_probe(state, voter, event)
    if error is not NONE:
        membership.refuse_change(state, leader, error, message)
    elif state.kraft_version == 0:
        leader.reported[voter.id] = voter
        membership.updated(state, leader, change, now_ms)
        change.answer(state, NONE)
        leader.change = None
    else:
        membership.updated(state, leader, change, now_ms)
        membership.append_voters(state, leader, change, state.voters.with_voter(voter))


def refusal_after_probe(state: QuorumState, voter: Voter, event: Probed) -> Refusal:
    """Return why what the probe found cannot be noted; ACCEPTED if it can."""
    if event.error is not NONE:
        return ErrorCode.REQUEST_TIMED_OUT, f"{voter.id} did not answer at its endpoints"
    found = (event.kraft_version_min, event.kraft_version_max)
    if found != (voter.kraft_version_min, voter.kraft_version_max):
        return (
            ErrorCode.INVALID_REQUEST,
            f"{voter.id} reported another range of kraft.version than it supports",
        )
    if not voter.kraft_version_min <= state.kraft_version <= voter.kraft_version_max:
        return ErrorCode.INVALID_REQUEST, f"{voter.id} must speak {state.kraft_version}"
    if state.kraft_version > 0:
        committed = membership.check_set_committed(state)
        if committed is not ACCEPTED:
            return committed
    if not state.voters.is_voter(voter.key):
        return ErrorCode.VOTER_NOT_FOUND, f"{voter.id} with that directory is no voter"
    return ACCEPTED
