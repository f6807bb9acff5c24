"""How a replica changes its role, and what it writes down first (Kafka's ``QuorumState``).

Every transition is here; each checks the table in ``roles``, has ``quorum-state`` written before
anything that depends on it (D5, I10), and leaves no answer of the old role to be taken for one of
the new.
"""

from __future__ import annotations

from kraftfast.core.effects import AppendControl, LeaderMoved, PersistQuorumState, RoleChanged
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.election import Election
from kraftfast.core.elections.first_records import first_records
from kraftfast.core.elections.leader_identity import another_made_epoch
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.messages import UNSAID, LeaderIdentity
from kraftfast.core.replication.dismissing import dismiss
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Leader
from kraftfast.core.roles import Role, check_transition
from kraftfast.core.state import AnyRole, QuorumState
from kraftfast.types import NO_NODE, NO_OFFSET, ElectionState, Endpoint, LeaderChange, ReplicaKey


def remember_voting(state: QuorumState, offset: int) -> None:
    """Persist, before committed records below ``offset`` leave the log, whether one named us.

    A removed voter must not rejoin by itself, also after a restart, and nothing else here
    records the removal.
    """
    if state.config.auto_join and not state.was_voter:
        state.was_voter = state.history.named_below(state.local, offset)
        persist_quorum_state(state, state.epoch, state.leader_id, state.voted)


def maybe_transition(
    state: QuorumState,
    epoch: int,
    leader_id: int,
    told: tuple[Endpoint, ...],
    now_ms: int,
    identity: LeaderIdentity = UNSAID,
    told_there: bool = False,
) -> None:
    """Adopt epoch and leader of a message (``is_consistent`` was asked before).

    ``told``: the leader's endpoints, () if the message does not say them. ``told_there``: the
    leader says so, or the replica that was found in its place. A leader that the kernel
    said is dead is not followed again until a link to it stands, or a message says that it is
    elsewhere.
    """
    assert epoch >= state.epoch
    endpoints = state.known_endpoints(leader_id, told)
    state.peers.note_place(leader_id, endpoints)
    followable = (
        leader_id != NO_NODE
        and leader_id != state.local.id
        and state.is_reachable(leader_id, endpoints)
        and not state.peers.is_ended(leader_id)
    )
    if epoch > state.epoch:
        if followable:
            transition_to_follower(state, epoch, leader_id, endpoints, now_ms)
        else:
            transition_to_unattached(state, epoch, leader_id, now_ms)
    elif followable and state.role not in (Role.LEADER, Role.RESIGNED):
        found = state.leader_id == NO_NODE or state.role is Role.UNATTACHED
        if found or len(endpoints) > len(state.leader_endpoints):
            transition_to_follower(state, epoch, leader_id, endpoints, now_ms)
        elif told_there or not state.peers.is_up(leader_id):
            _look_for_leader_at(state, told)
    if identity is not UNSAID and state.leader_id == leader_id:
        state.leader_identity = identity


def _look_for_leader_at(state: QuorumState, endpoints: tuple[Endpoint, ...]) -> None:
    """Reach the leader at these endpoints from now on, if they differ; no timer restarts (L1).

    A replica that learnt of the leader from one with an old voter set would ask in vain where
    it was, for as long as it leads: it stays at one place in an epoch.
    """
    known = {endpoint.name: endpoint for endpoint in state.leader_endpoints}
    if any([known.get(endpoint.name, endpoint) != endpoint for endpoint in endpoints]):
        state.leader_endpoints = endpoints
        state.effects.append(LeaderMoved(state.leader_id, endpoints))


def transition_to_unattached(
    state: QuorumState, epoch: int, leader_id: int, now_ms: int, vote: ReplicaKey | None = None
) -> None:
    """Become unattached: the leader is unknown or not in reach. ``vote``: given with the epoch.

    Voters pause before they ask others for the leader: a new one will send BeginQuorumEpoch.
    """
    old = state.current
    keeps_timer = state.role in (Role.UNATTACHED, Role.CANDIDATE, Role.RESIGNED) or (
        isinstance(old, Prospective) and not old.election.is_lost()
    )
    if not state.counts_as_voter():
        deadline_ms = NEVER_MS
    elif state.peers.is_ended(leader_id) and state.may_fail_over():
        deadline_ms = now_ms + next_failover_ms(state)
    elif keeps_timer and vote is None:
        deadline_ms = old.election_deadline_ms  # type: ignore[union-attr]
    else:
        deadline_ms = now_ms + state.election_timeout_ms()
    voted = state.voted if epoch == state.epoch else vote
    persist_quorum_state(state, epoch, leader_id, voted)
    _enter(state, Unattached(deadline_ms), epoch, leader_id, (), voted)
    if state.counts_as_voter():
        state.fetch_at_ms = now_ms + state.config.retry_backoff_ms


def transition_to_follower(
    state: QuorumState, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int
) -> None:
    """Follow the leader, which is known and can be reached."""
    assert leader_id != state.local.id, "a replica must not follow itself"
    assert state.is_reachable(leader_id, endpoints), f"no way to leader {leader_id} is known"
    voted = state.voted if epoch == state.epoch else None
    persist_quorum_state(state, epoch, leader_id, voted)
    follower = new_follower(state, now_ms)
    _enter(state, follower, epoch, leader_id, endpoints, voted)


def new_follower(state: QuorumState, now_ms: int) -> Follower:
    """Return a follower whose fetch timeout begins now."""
    follower = Follower(now_ms + state.config.fetch_timeout_ms)
    if state.config.endpoints:
        follower.membership_at_ms = now_ms + state.config.membership_period_ms
    return follower


def transition_to_prospective(state: QuorumState, now_ms: int, failover: bool = False) -> None:
    """Ask for pre-votes: now, or after those of lower id if the leader is known dead."""
    unanimous = state.doubt.calls_for_unanimity()
    election = Election(state.voters, state.local, unanimous, may_flip=True)
    campaign_at_ms = now_ms + (state.failover_delay_ms() if failover else 0)
    deadline_ms = now_ms + state.election_timeout_ms()
    prospective = Prospective(election, deadline_ms, campaign_at_ms, failover)
    _enter(state, prospective, state.epoch, state.leader_id, state.leader_endpoints, state.voted)


def transition_to_candidate(state: QuorumState, now_ms: int) -> None:
    """Vote for itself in the next epoch, on disk before it counts (D5)."""
    assert isinstance(state.current, Prospective)
    assert state.log.ackable_end_offset() == state.log.end_offset, "the tail is on disk (D21)"
    unanimous = state.current.election.unanimous
    election = Election(state.voters, state.local, unanimous, may_flip=False)
    persist_quorum_state(state, state.epoch + 1, NO_NODE, state.local)
    candidate = Candidate(election, now_ms + state.election_timeout_ms())
    _enter(state, candidate, state.epoch + 1, NO_NODE, (), state.local)


def transition_to_leader(state: QuorumState, now_ms: int) -> None:
    """Become leader; the epoch begins at the log's end, with a LeaderChange record."""
    assert isinstance(state.current, Candidate) and state.current.election.is_won()
    assert state.epoch > state.resumed_epoch, "an epoch led before a restart is over (D4, I13)"
    assert state.epoch > state.log.last_epoch(), "no record of this epoch exists yet (I1, I2)"
    granting = tuple(sorted(state.current.election.granted))
    leader = Leader.elected(state.voters, state.local, state.log.end_offset, now_ms)
    if leader.needed_of_others > 0:
        leader.check_quorum_deadline_ms = now_ms + state.config.check_quorum_timeout_ms
    persist_quorum_state(state, state.epoch, state.local.id, None)
    state.high_watermark = NO_OFFSET
    if state.current.election.unanimous:
        state.doubt.led_out()
    endpoints = state.config.endpoints or state.voters.endpoints(state.local.id)
    _enter(state, leader, state.epoch, state.local.id, endpoints, None)
    state.log.trail.assign(state.epoch, state.log.end_offset)
    if leader.slot >= 0:
        leader.acknowledged.put(leader.slot, state.log.ackable_end_offset())
    change = LeaderChange.of(state.local.id, state.voters.ids, granting)
    records = first_records(state.config, state.local, state.history, change)
    state.effects.append(AppendControl(state.epoch, records))


def transition_to_resigned(state: QuorumState, now_ms: int, preferred_id: int = NO_NODE) -> None:
    """Step down; name the preferred voter first, then those with the longest logs."""
    assert state.leader is not None
    resigned = Resigned(
        now_ms + state.election_timeout_ms(),
        set(state.voters.others(state.local)),
        state.leader.successors(preferred_id),
    )
    state.high_watermark = NO_OFFSET
    _enter(state, resigned, state.epoch, state.leader_id, state.leader_endpoints, state.voted)


def initialize(state: QuorumState, current: AnyRole, stored: ElectionState) -> None:
    """Take the first role after a start; it is written to disk again at once."""
    state.persisted = None
    persist_quorum_state(state, stored.epoch, stored.leader_id, stored.voted)
    endpoints = state.voters.endpoints(stored.leader_id)
    _settle_in(state, current, stored.epoch, stored.leader_id, endpoints, stored.voted)


def grant_vote(state: QuorumState, candidate: ReplicaKey, now_ms: int) -> None:
    """Vote for another replica in this epoch, on disk before the answer leaves (D5, I10)."""
    assert candidate.id != state.local.id, "a Vote request from this replica itself"
    assert state.local.id >= 0, "a replica without an id has no vote"
    assert isinstance(state.current, Unattached | Prospective)
    persist_quorum_state(state, state.epoch, state.leader_id, candidate)
    state.voted = candidate
    if state.counts_as_voter():
        state.current.election_deadline_ms = now_ms + state.election_timeout_ms()


def persist_quorum_state(
    state: QuorumState, epoch: int, leader_id: int, voted: ReplicaKey | None
) -> None:
    """Have ``quorum-state`` written before the step's other effects (D5), unless it stands.

    Requests for votes and BeginQuorumEpoch may leave before (``election_first``).
    """
    wanted = ElectionState(epoch, leader_id, voted, state.superseded, state.was_voter)
    standing = state.persisted
    if wanted == standing:
        return
    if standing is not None:
        assert epoch >= standing.epoch, "the epoch never falls (I9)"
        if epoch == standing.epoch and standing.voted is not None:
            assert voted == standing.voted or leader_id == state.local.id, (
                "one vote in an epoch (I9)"
            )
    state.persisted = wanted
    state.effects.append(PersistQuorumState(*wanted[:3], state.kraft_version, *wanted[3:]))
    state.quorum_state_due = True


def next_failover_ms(state: QuorumState) -> int:
    """Return how long after a lost campaign the next goes, while the leader is known dead.

    The others may have learnt of the death later, or be the better candidates: wait for all
    of them once, twice as long each time, up to the election timeout.
    """
    delay_ms = state.config.failover_step_ms * len(state.voters) + state.failover_delay_ms()
    delay_ms <<= min(state.failover_round, 16)
    state.failover_round += 1
    return min(delay_ms, state.election_timeout_ms())


def _enter(
    state: QuorumState,
    current: AnyRole,
    epoch: int,
    leader_id: int,
    endpoints: tuple[Endpoint, ...],
    voted: ReplicaKey | None,
) -> None:
    check_transition(state.role, current.role, state.epoch, epoch, state.counts_as_voter())
    left = state.leader
    if current.role in (Role.FOLLOWER, Role.LEADER) or (
        epoch > state.epoch and current.role is not Role.CANDIDATE
    ):
        state.failover_round = 0
    _settle_in(state, current, epoch, leader_id, endpoints, voted)
    if left is not None:
        dismiss(state, left)


def _settle_in(
    state: QuorumState,
    current: AnyRole,
    epoch: int,
    leader_id: int,
    endpoints: tuple[Endpoint, ...],
    voted: ReplicaKey | None,
) -> None:
    for barrier in state.barriers:
        barrier.correlation = 0  # the next leader is asked
    if (epoch, leader_id) != (state.epoch, state.leader_id):
        state.leader_identity = UNSAID
    state.current = current
    state.role = current.role
    state.leader = current if isinstance(current, Leader) else None
    state.follower = current if isinstance(current, Follower) else None
    state.epoch = epoch
    state.leader_id = leader_id
    state.leader_endpoints = endpoints
    state.voted = voted
    state.displaced = state.displaced or another_made_epoch(state)
    state.writing = False
    state.fetch_at_ms = 0
    state.fetch_failures = 0
    state.ask_others = False
    state.peers.reset((*state.voters.ids, *state.config.bootstrap_ids, leader_id))
    state.poll_due = True
    state.effects.append(RoleChanged(current.role.value, epoch, leader_id, endpoints))
