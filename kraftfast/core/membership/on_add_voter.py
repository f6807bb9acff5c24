"""AddRaftVoter arrives: an operator, or the replica itself, wants it to be a voter (KIP-853).

The order of checks is that of Kafka's ``AddVoterHandler``. After the last of them
an operator's addition, and a reassignment's, waits for the new voter's next Fetch (D19).
"""

from __future__ import annotations

from collections.abc import Callable

from kraftfast import limits
from kraftfast.core.events import Probed, RequestReceived
from kraftfast.core.membership import changes as membership
from kraftfast.core.membership.changes import ACCEPTED, NONE, Refusal
from kraftfast.core.membership.voter_change import VoterChange, reply
from kraftfast.core.messages import AddRaftVoterRequest, AddRaftVoterResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, ReplicaKey, Voter, uuid_text


def on_add_voter(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Check what can be checked, then ask the new voter what it speaks."""
    request = event.request
    error, message = refusal(state, request)
    if error is not NONE:
        reply(state, event.source, AddRaftVoterResponse, error, message)
        return
    leader = state.leader
    assert leader is not None
    change = VoterChange(
        AddRaftVoterResponse,
        event.source,
        now_ms + state.config.request_timeout_ms,
        Voter(request.voter.id, request.voter.directory_id, request.endpoints),
        at_append=not request.ack_when_committed,
    )
    membership.begin_probe(state, leader, change)


def refusal(state: QuorumState, request: AddRaftVoterRequest) -> Refusal:
    """Return why this voter cannot be added now; ACCEPTED if it can."""
    for found in (
        membership.check_cluster_id(state, request.cluster_id),
        membership.check_leads(state),
    ):
        if found is not ACCEPTED:
            return found
    if request.voter.id < 0 or request.voter.directory_id == ZERO_UUID:
        return ErrorCode.INVALID_REQUEST, "a voter needs an id and a directory id"
    check: Callable[[], Refusal]
    for check in (
        lambda: membership.check_default_listener(state, request.endpoints),
        lambda: membership.check_nothing_pending(state),
        lambda: membership.check_dynamic(state),
        lambda: membership.check_set_committed(state),
    ):
        found = check()
        if found is not ACCEPTED:
            return found
    if request.voter.id in state.voters:
        return (
            ErrorCode.DUPLICATE_VOTER,
            f"{request.voter.id} is a voter: remove it first, if its directory is another",
        )
    found = runs_with_its_directory(state, request.voter)
    if found is not ACCEPTED:
        return found
    if len(state.voters) >= limits.VOTERS_MAX:
        return ErrorCode.INVALID_REQUEST, f"there are {limits.VOTERS_MAX} voters: no more fit"
    return ACCEPTED


def runs_with_its_directory(state: QuorumState, voter: ReplicaKey) -> Refusal:
    """Refuse a directory if the link, or a later request, named another one (D19)."""
    running = state.peers.directory_of(voter.id)
    leader = state.leader
    assert leader is not None
    progress = leader.observers.get(voter)
    if running == ZERO_UUID and progress is not None:
        successor = leader.successor_of(progress)
        running = ZERO_UUID if successor is None else successor.key.directory_id
    if running in (ZERO_UUID, voter.directory_id):
        return ACCEPTED
    return (
        ErrorCode.INVALID_REQUEST,
        f"replica {voter.id} runs with directory {uuid_text(running)}, not "
        f"{uuid_text(voter.directory_id)}",
    )


def on_probed_to_add(
    state: QuorumState, leader: Leader, change: VoterChange, event: Probed, now_ms: int
) -> None:
    """Judge what the new voter answered: does it speak this version, and has it the log?

    ApiVersions names no directory, so another disk may have answered under its id: unless it asked
    for itself, it is added only with its next Fetch, which names one (D19).
    """
    voter = change.voter
    assert voter is not None
    found = runs_with_its_directory(state, voter.key)  # it may be another since it was asked
    if found is not ACCEPTED:
        membership.refuse_change(state, leader, *found)
    elif event.error is not NONE:
        message = f"{voter.id} did not answer at its endpoints"
        membership.refuse_change(state, leader, ErrorCode.REQUEST_TIMED_OUT, message)
    elif not event.kraft_version_min <= state.kraft_version <= event.kraft_version_max:
        message = f"{voter.id} does not speak kraft.version {state.kraft_version}"
        membership.refuse_change(state, leader, ErrorCode.INVALID_REQUEST, message)
    elif not has_caught_up(state, leader, voter, change):
        message = f"{voter.id} has not caught up with the leader: start it, wait, try again"
        membership.refuse_change(state, leader, ErrorCode.REQUEST_TIMED_OUT, message)
    else:
        change.voter = Voter(
            voter.id,
            voter.directory_id,
            voter.endpoints,
            event.kraft_version_min,
            event.kraft_version_max,
        )
        change.probe = 0
        if change.at_append:
            append_addition(state, leader, change)
        else:
            change.probed = True


def tend_addition(state: QuorumState, leader: Leader) -> None:
    """Append a voter once it fetched after it was probed; refuse it if another disk runs (D19)."""
    change = leader.change
    if change is None or not change.probed:
        return
    assert change.voter is not None
    found = runs_with_its_directory(state, change.voter.key)
    if found is not ACCEPTED:
        membership.refuse_change(state, leader, *found)
    elif change.fetched:
        append_addition(state, leader, change)


def append_addition(state: QuorumState, leader: Leader, change: VoterChange) -> None:
    """Append the voter set with the new one."""
    assert change.voter is not None
    change.probed = False
    membership.append_voters(state, leader, change, state.voters.with_voter(change.voter))


def has_caught_up(state: QuorumState, leader: Leader, voter: Voter, change: VoterChange) -> bool:
    """Return whether this very replica had all of the log, and lived, when it was asked for.

    Kafka takes a Fetch of the last hour for that, of one that had all of the log once. A set with
    a voter that is gone, or takes nothing more (its disk is full), may never be committed, and
    until it is no voter can be removed: so the fetch timeout is all that is granted (L3).

    One that asks for itself (ack_when_committed is False) sends no Fetch while it waits for the
    answer, so none is waited for after its probe: it lived when it asked. What is left: if its disk
    is replaced after that, within the request timeout, and the new one answers the probe before its
    first Fetch, the directory that is gone is added. The same holds for any other sender of
    such a request.
    """
    asked_ms = change.deadline_ms - state.config.request_timeout_ms
    since_ms = max(asked_ms - state.config.fetch_timeout_ms, 0)
    progress = leader.observers.get(voter.key)
    return progress is not None and progress.last_caught_up_ms >= since_ms
