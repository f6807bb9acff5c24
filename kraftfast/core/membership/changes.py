"""What all changes of the voter set have in common at the leader: when, how, and until when.

Each ``check_...`` returns ``ACCEPTED`` or why the change is refused; compare with ``is``, both are
true.

Kafka's ``AddVoterHandler``, ``RemoveVoterHandler``, ``UpdateVoterHandler`` and
``LeaderState.maybeAppendUpgradedKRaftVersion``.
"""

from __future__ import annotations

from kraftfast.core.effects import AppendControl, Probe
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.membership.voter_change import VoterChange
from kraftfast.core.membership.voter_controls import ControlRecord, VoterControls
from kraftfast.core.messages import UpdateRaftVoterResponse
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import NO_OFFSET, Endpoint, KRaftVersion, KRaftVoters, VoterSet, uuid_text

NONE = ErrorCode.NONE
Refusal = tuple[ErrorCode, str]
"""An error code and a sentence that helps."""

ACCEPTED: Refusal = (NONE, "")


def check_cluster_id(state: QuorumState, cluster_id: str | None) -> Refusal:
    """Refuse a request that names another cluster; it need not name one."""
    if None not in (cluster_id, state.cluster_id) and cluster_id != state.cluster_id:
        return (
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"this is cluster {state.cluster_id}, not {cluster_id}",
        )
    return ACCEPTED


def check_leads(state: QuorumState) -> Refusal:
    """Refuse a request at a replica that does not lead, or is shutting down."""
    if state.leader is None:
        known = f"ask {state.leader_id}" if state.leader_id >= 0 else "no leader is known"
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, f"this replica does not lead: {known}"
    if state.shutting_down:
        return ErrorCode.BROKER_NOT_AVAILABLE, "this leader is shutting down"
    return ACCEPTED


def check_default_listener(state: QuorumState, endpoints: tuple[Endpoint, ...]) -> Refusal:
    """Refuse a voter without an endpoint for the listener over which voters reach each other."""
    name = state.config.default_listener
    if any(endpoint.name.upper() == name.upper() for endpoint in endpoints):
        return ACCEPTED
    return ErrorCode.INVALID_REQUEST, f"the voter has no endpoint for listener {name}"


def check_nothing_pending(state: QuorumState) -> Refusal:
    """Refuse a change beside another one, or before a record of this epoch is committed (D17)."""
    leader = state.leader
    assert leader is not None
    if leader.change is not None:
        return ErrorCode.REQUEST_TIMED_OUT, "another change of the voters is under way: try again"
    if state.high_watermark == NO_OFFSET:
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "the leader has committed nothing in its epoch yet: try again",
        )
    return ACCEPTED


def check_set_committed(state: QuorumState) -> Refusal:
    """Refuse a change while the voter set in force is not committed (D17)."""
    latest = state.history.latest
    if latest is None or state.history.last_offset >= state.high_watermark:
        return (
            ErrorCode.REQUEST_TIMED_OUT,
            "the latest voter set is not committed yet: try again",
        )
    return ACCEPTED


def check_dynamic(state: QuorumState) -> Refusal:
    """Refuse a change below ``kraft.version`` 1, where the log holds no voters."""
    if state.kraft_version < 1:
        return (
            ErrorCode.UNSUPPORTED_VERSION,
            "kraft.version is 0: upgrade it to 1 before voters can be added or removed",
        )
    return ACCEPTED


def goes_on_without(state: QuorumState, voter_id: int, now_ms: int) -> bool:
    """Return whether a majority of the other voters is alive, with the latest voters on disk.

    Else the removal itself might wait for a voter that cannot fetch, perhaps for ever.
    """
    leader = state.leader
    assert leader is not None
    alive = int(voter_id != state.local.id)
    for progress in leader.voters.values():
        recently = now_ms - progress.last_fetch_ms < state.config.fetch_timeout_ms
        runs = recently and leader.successor_of(progress) is None  # D19
        follows = leader.acknowledged.get(progress.slot) > state.history.last_offset
        alive += progress.key.id != voter_id and runs and follows
    return alive > (len(state.voters) - 1) // 2


def begin_probe(state: QuorumState, leader: Leader, change: VoterChange) -> None:
    """Ask the voter's new endpoints which versions they support; ``Probed`` goes on."""
    assert leader.change is None and change.voter is not None
    change.probe = state.next_probe
    state.next_probe += 1
    leader.change = change
    state.effects.append(Probe(change.probe, change.voter.id, change.voter.endpoints))


def append_voters(
    state: QuorumState,
    leader: Leader,
    change: VoterChange,
    voters: VoterSet,
    kraft_version: int | None = None,
) -> None:
    """Append another voter set; a reassignment's target stays in it until it is reached."""
    latest = state.history.latest
    target = None if latest is None else latest.target
    if target is not None and sorted(target) == sorted(voters.ids):
        target = None
    append_controls(state, leader, change, KRaftVoters(voters, target), kraft_version)


def append_controls(
    state: QuorumState,
    leader: Leader,
    change: VoterChange,
    voters: KRaftVoters,
    kraft_version: int | None = None,
) -> None:
    """Append the change's records in one batch: ``Appended`` goes on."""
    assert leader.change in (None, change) and not change.appending
    leader.change = change
    change.appending = True
    change.probe = 0
    records: tuple[ControlRecord, ...] = (voters,)
    if kraft_version is not None:
        records = (KRaftVersion(kraft_version), voters)
    state.effects.append(AppendControl(state.epoch, records))


def change_appended(state: QuorumState, leader: Leader, controls: VoterControls) -> None:
    """Record the offset of the change's records, which were appended."""
    change = leader.change
    leader.watches_commit = True
    leader.assigning = True
    if change is None or not change.appending:
        return  # the voters beside the epoch's LeaderChange
    change.appending = False
    change.offset = controls[-1][0]
    if change.at_append:
        change.answer(state, NONE)


def tend_change(state: QuorumState, leader: Leader, now_ms: int) -> None:
    """Answer a change that is committed, or whose time is over."""
    change = leader.change
    if change is not None:
        if change.offset != NO_OFFSET and state.high_watermark > change.offset:
            change.answer(state, NONE)
            leader.change = None
            leader.move_at_ms = now_ms  # the next move of a reassignment
        elif now_ms >= change.deadline_ms:
            change.answer(state, ErrorCode.REQUEST_TIMED_OUT, what_is_late(change))
            if not change.appending:  # D17 holds what was appended until it is committed
                leader.change = None
    leader.watches_commit = (
        leader.change is not None
        or leader.slot < 0
        or state.history.last_offset >= state.high_watermark
    )


def what_is_late(change: VoterChange) -> str:
    """Return what a change still waited for at its deadline."""
    if change.probe:
        return "the voter did not answer in time"
    if change.probed and change.voter is not None:
        return (
            f"{change.voter.id} answered, but directory {uuid_text(change.voter.directory_id)} did "
            "not fetch since: see that it runs with that one, try again"
        )
    return "not committed in time; it may be yet"


def removed_itself(state: QuorumState, leader: Leader) -> bool:
    """Return whether the set without this leader is committed, so that it must resign (I17)."""
    return leader.slot < 0 and state.high_watermark > state.history.latest_offset


def change_due_ms(state: QuorumState, leader: Leader) -> int:
    """Return when ``tend_change`` has something to do, as far as time decides it."""
    change = leader.change
    if change is None or (change.answered and change.appending):
        return NEVER_MS
    return change.deadline_ms


def refuse_change(state: QuorumState, leader: Leader, error: ErrorCode, message: str) -> None:
    """Refuse the change under way: nothing of it was appended."""
    assert leader.change is not None and leader.change.offset == NO_OFFSET
    leader.change.answer(state, error, message)
    leader.change = None


def updated(state: QuorumState, leader: Leader, change: VoterChange, now_ms: int) -> None:
    """Count a voter that reported its endpoints for check-quorum."""
    assert change.answers is UpdateRaftVoterResponse and change.voter is not None
    if change.voter.id in leader.voters:
        leader.update_check_quorum(change.voter.id, now_ms, state.config.check_quorum_timeout_ms)
