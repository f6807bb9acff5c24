"""What a replica remembers, and how it changes its role.

Every transition is here; each checks the table in ``roles``, has ``quorum-state`` written before
anything that depends on it (D5, I10), and leaves no answer of the old role to be taken for one of
the new.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kraftfast import limits
from kraftfast.core.config import Durability, QuorumConfig
from kraftfast.core.effects import (
    AppendControl,
    Effect,
    LeaderMoved,
    PersistQuorumState,
    RoleChanged,
)
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.doubt import Doubt
from kraftfast.core.elections.election import Election
from kraftfast.core.elections.epochs import EpochBudget
from kraftfast.core.elections.leader_identity import (
    another_made_epoch,
    identity_of_leader,
    is_displaced,
)
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.log_view import NEVER_MS, LogView
from kraftfast.core.membership.own_entry import first_records
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import (
    UNSAID,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    LeaderIdentity,
)
from kraftfast.core.replication.dismissing import dismiss
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Barrier, Leader
from kraftfast.core.request_manager import RequestManager
from kraftfast.core.roles import Role, check_transition
from kraftfast.errors import ErrorCode
from kraftfast.types import (
    NO_NODE,
    NO_OFFSET,
    Endpoint,
    LeaderChange,
    QuorumState,
    ReplicaKey,
    VoterSet,
)

UNATTACHED = Role.UNATTACHED
AnyRole = Unattached | Prospective | Candidate | Leader | Follower | Resigned


@dataclass(eq=False, repr=False)
class ReplicaState:
    """The state of a replica. The ``on_...`` files act on it; ``Replica`` calls them.

    Invariants: ``persisted`` names this epoch and this vote (D5); exactly ``current`` is the role,
    ``leader`` and ``follower`` are it or None; ``high_watermark <= committed_offset <= end``.
    """

    config: QuorumConfig
    local: ReplicaKey  # id -1: an observer without an id
    static_voters: VoterSet  # count only while the log holds none and kraft.version is 0
    history: VoterHistory  # of the latest snapshot and the log
    random: Random  # the only chance there is
    log: LogView
    doubt: Doubt
    cluster_id: str | None  # None: not known, not checked
    floor_offset: int = 0  # committed before the start: nothing below is ever cut (D23)
    # the highest offset known to be committed since the start: nor is anything below it cut (I7)
    committed_offset: int = NO_OFFSET
    voters: VoterSet = field(init=False)  # in force: the latest, committed or not (D16)
    kraft_version: int = field(init=False)  # in force
    for_all: bool = field(init=False)  # durability=all: producers wait for every voter
    peers: RequestManager = field(init=False)
    role: Role = UNATTACHED
    current: AnyRole = field(init=False)
    leader: Leader | None = None
    follower: Follower | None = None
    epoch: int = 0
    leader_id: int = NO_NODE  # of this epoch, -1 unknown; a resigned leader names itself
    # where it is, if a message or the voter set said
    leader_endpoints: tuple[Endpoint, ...] = ()
    # which directory it is, as far as a message said (D23)
    leader_identity: LeaderIdentity = UNSAID
    voted: ReplicaKey | None = None  # in this epoch
    persisted: QuorumState | None = None  # what is on disk; None before the start
    resumed_epoch: int = -1  # led before the restart: never again (D4, I13); -1 if none
    # as this role knows it; -1: unknown, as after an election or a resignation
    high_watermark: int = NO_OFFSET
    effects: list[Effect] = field(default_factory=list)  # what this step wants done, in order
    poll_due: bool = False  # the role has something to do at once
    quorum_state_due: bool = False  # this step has ``quorum-state`` written
    writing: bool = False  # the log copies a Fetch answer: FetchedWritten will tell
    fetch_at_ms: int = 0  # no Fetch before this
    fetch_failures: int = 0  # in a row, for the pause between Fetches
    ask_others: bool = False  # the leader failed to answer: the next Fetch goes to another replica
    displaced: bool = False  # an only voter by configuration whose cluster another led (D23)
    displaced_by: int = NO_NODE  # the sender that showed it first since the start, -1 if none
    # voters of the configuration do not count: others are committed (D23)
    superseded: bool = False
    # peers that an only voter without a log asks before it leads (D23)
    unheard: set[int] = field(default_factory=set)
    ask_until_ms: int = 0  # for so long
    slices_under_way: int = 0  # of snapshots: handed to the node and not sent yet
    # readers here that the leader is to be asked for
    barriers: list[Barrier] = field(default_factory=list)
    barriers_correlation: int = 0  # of the last request for some of them
    barriers_asked_ms: int = 0  # when that went out
    # an observer that could be a voter says where it can be reached
    tells_endpoints: bool = field(init=False)
    # a committed set that may have left the log named it; only kept if it could join by itself
    was_voter: bool = False
    warning: str = ""  # the last refusal that was reported
    next_stream: int = 1  # no number is used twice
    next_probe: int = 1  # nor this
    request_epochs: EpochBudget = field(init=False)  # how far requests may move the epoch
    answer_epochs: EpochBudget = field(init=False)  # and answers
    failover_round: int = 0  # campaigns lost since the leader is known dead
    rival_until_ms: int = 0  # the only voter does not lead before: another quorum calls it (D23)
    shutdown_deadline_ms: int = NEVER_MS  # a graceful end waits until then
    shutting_down: bool = False
    stopped: bool = False  # the graceful end is complete

    def __post_init__(self) -> None:
        config = self.config
        self.voters = self.voters_in_force()
        self.kraft_version = self.history.kraft_version
        self.for_all = config.durability is Durability.ALL
        self.peers = RequestManager(config.request_timeout_ms, config.retry_backoff_ms)
        self.current = Unattached(NEVER_MS)
        self.tells_endpoints = self.could_be_voter()
        self.request_epochs = EpochBudget(limits.EPOCHS_ASKED_MAX)
        self.answer_epochs = EpochBudget(limits.EPOCH_JUMP_MAX)

    # --- what is often asked ------------------------------------------------------------------

    def voters_in_force(self) -> VoterSet:
        """Return the latest of the log, else the static ones; none if the log should have some."""
        latest = self.history.latest
        if latest is not None:
            return latest.voters
        return VoterSet() if self.history.kraft_version else self.static_voters

    def is_voter(self) -> bool:
        """Return whether this replica is in the voter set in force."""
        return self.voters.is_voter(self.local)

    def counts_as_voter(self) -> bool:
        """Return whether this replica is a voter, or was until a removal that may not be committed.

        Its log may then be the only one that can lead: it campaigns without a vote of its own
        (Ongaro's dissertation, 4.2.2; Kafka's observers do not, and two voters can get stuck).
        ``config.campaign`` says whether it ever does.
        """
        counts = self.is_voter() or self.history.may_count(self.local, self.uncuttable_offset())
        return counts and not is_displaced(self)  # D23

    def uncuttable_offset(self) -> int:
        """Return the end of what is known to be committed, from before the start too (I7, D23)."""
        return max(self.committed_offset, self.floor_offset)

    def could_be_voter(self) -> bool:
        """Return whether this observer has all that a voter needs."""
        return not self.is_voter() and self.local.id >= 0 and bool(self.config.endpoints)

    def has_log_up_to(self, last_epoch: int, last_offset: int) -> bool:
        """Return whether a log with this end is at least as long as the own one, epoch before
        offset.

        The own unflushed tail counts: that is the cautious side (D7).
        """
        return (last_epoch, last_offset) >= (self.log.last_epoch(), self.log.end_offset)

    def election_timeout_ms(self) -> int:
        """Return a fresh one: T to 2T, at random."""
        timeout_ms = self.config.election_timeout_ms
        return timeout_ms + self.random.randrange(timeout_ms)

    def is_reachable(self, leader_id: int, endpoints: tuple[Endpoint, ...]) -> bool:
        """Return whether the node can find this leader."""
        return bool(endpoints) or leader_id in self.voters or self.peers.is_up(leader_id)

    def known_endpoints(self, leader_id: int, told: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
        """Return a leader's endpoints as a message told them, else as the voter set has them."""
        return told or self.voters.endpoints(leader_id)

    def is_consistent(self, epoch: int, leader_id: int) -> bool:
        """Return whether "``leader_id`` leads ``epoch``" can be true, as far as is known here."""
        if leader_id == NO_NODE or epoch < self.epoch:
            return True
        if leader_id == self.local.id:
            return epoch == self.epoch and self.role in (Role.LEADER, Role.RESIGNED)
        return epoch != self.epoch or self.leader_id in (NO_NODE, leader_id)

    def may_fail_over(self) -> bool:
        """Return whether a leader known dead may be replaced before any timer says so.

        Not if some voter is known to take no pre-votes, which shield a leader that is alive after
        all; and not with an uncertain end (D10).
        """
        may = self.config.campaign and self.counts_as_voter()
        if not may or self.doubt.exists() or self.shutting_down:
            return False
        return all([self.peers.peer(id).pre_vote for id in self.voters.others(self.local)])

    def leader_is_dead(self) -> bool:
        """Return whether the kernel reported the end of the process of the known leader."""
        return self.leader_id != NO_NODE and self.peers.is_ended(self.leader_id)

    def failover_delay_ms(self) -> int:
        """Return how long this voter lets those of lower id go first."""
        return self.config.failover_step_ms * self.voters.rank(self.local.id, self.leader_id)

    def remember_voting(self, offset: int) -> None:
        """Persist, before committed records below ``offset`` leave the log, whether one named us.

        A removed voter must not rejoin by itself, also after a restart, and nothing else here
        records the removal.
        """
        if self.config.auto_join and not self.was_voter:
            self.was_voter = self.history.named_below(self.local, offset)
            self.persist(self.epoch, self.leader_id, self.voted)

    # --- transitions --------------------------------------------------------------------------

    def learn(
        self,
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
        assert epoch >= self.epoch
        endpoints = self.known_endpoints(leader_id, told)
        self.peers.note_place(leader_id, endpoints)
        followable = (
            leader_id != NO_NODE
            and leader_id != self.local.id
            and self.is_reachable(leader_id, endpoints)
            and not self.peers.is_ended(leader_id)
        )
        if epoch > self.epoch:
            if followable:
                self.to_follower(epoch, leader_id, endpoints, now_ms)
            else:
                self.to_unattached(epoch, leader_id, now_ms)
        elif followable and self.role not in (Role.LEADER, Role.RESIGNED):
            found = self.leader_id == NO_NODE or self.role is Role.UNATTACHED
            if found or len(endpoints) > len(self.leader_endpoints):
                self.to_follower(epoch, leader_id, endpoints, now_ms)
            elif told_there or not self.peers.is_up(leader_id):
                self._look_for_leader_at(told)
        if identity is not UNSAID and self.leader_id == leader_id:
            self.leader_identity = identity

    def _look_for_leader_at(self, endpoints: tuple[Endpoint, ...]) -> None:
        """Reach the leader at these endpoints from now on, if they differ; no timer restarts (L1).

        A replica that learnt of the leader from one with an old voter set would ask in vain where
        it was, for as long as it leads: it stays at one place in an epoch.
        """
        known = {endpoint.name: endpoint for endpoint in self.leader_endpoints}
        if any([known.get(endpoint.name, endpoint) != endpoint for endpoint in endpoints]):
            self.leader_endpoints = endpoints
            self.effects.append(LeaderMoved(self.leader_id, endpoints))

    def to_unattached(
        self, epoch: int, leader_id: int, now_ms: int, vote: ReplicaKey | None = None
    ) -> None:
        """Become unattached: the leader is unknown or not in reach. ``vote``: given with the epoch.

        Voters pause before they ask others for the leader: a new one will send BeginQuorumEpoch.
        """
        old = self.current
        keeps_timer = self.role in (Role.UNATTACHED, Role.CANDIDATE, Role.RESIGNED) or (
            isinstance(old, Prospective) and not old.election.is_lost()
        )
        if not self.counts_as_voter():
            deadline_ms = NEVER_MS
        elif self.peers.is_ended(leader_id) and self.may_fail_over():
            deadline_ms = now_ms + self.next_failover_ms()
        elif keeps_timer and vote is None:
            deadline_ms = old.election_deadline_ms  # type: ignore[union-attr]
        else:
            deadline_ms = now_ms + self.election_timeout_ms()
        voted = self.voted if epoch == self.epoch else vote
        self.persist(epoch, leader_id, voted)
        self._enter(Unattached(deadline_ms), epoch, leader_id, (), voted)
        if self.counts_as_voter():
            self.fetch_at_ms = now_ms + self.config.retry_backoff_ms

    def to_follower(
        self, epoch: int, leader_id: int, endpoints: tuple[Endpoint, ...], now_ms: int
    ) -> None:
        """Follow the leader, which is known and can be reached."""
        assert leader_id != self.local.id, "a replica must not follow itself"
        assert self.is_reachable(leader_id, endpoints), f"no way to leader {leader_id} is known"
        voted = self.voted if epoch == self.epoch else None
        self.persist(epoch, leader_id, voted)
        follower = self.new_follower(now_ms)
        self._enter(follower, epoch, leader_id, endpoints, voted)

    def new_follower(self, now_ms: int) -> Follower:
        """Return a follower whose fetch timeout begins now."""
        follower = Follower(now_ms + self.config.fetch_timeout_ms)
        if self.config.endpoints:
            follower.membership_at_ms = now_ms + self.config.membership_period_ms
        return follower

    def to_prospective(self, now_ms: int, failover: bool = False) -> None:
        """Ask for pre-votes: now, or after those of lower id if the leader is known dead."""
        unanimous = self.doubt.calls_for_unanimity()
        election = Election(self.voters, self.local, unanimous, may_flip=True)
        campaign_at_ms = now_ms + (self.failover_delay_ms() if failover else 0)
        deadline_ms = now_ms + self.election_timeout_ms()
        prospective = Prospective(election, deadline_ms, campaign_at_ms, failover)
        self._enter(prospective, self.epoch, self.leader_id, self.leader_endpoints, self.voted)

    def to_candidate(self, now_ms: int) -> None:
        """Vote for itself in the next epoch, on disk before it counts (D5)."""
        assert isinstance(self.current, Prospective)
        assert self.log.ackable_end_offset() == self.log.end_offset, "the tail is on disk (D21)"
        unanimous = self.current.election.unanimous
        election = Election(self.voters, self.local, unanimous, may_flip=False)
        self.persist(self.epoch + 1, NO_NODE, self.local)
        candidate = Candidate(election, now_ms + self.election_timeout_ms())
        self._enter(candidate, self.epoch + 1, NO_NODE, (), self.local)

    def to_leader(self, now_ms: int) -> None:
        """Become leader; the epoch begins at the log's end, with a LeaderChange record."""
        assert isinstance(self.current, Candidate) and self.current.election.is_won()
        assert self.epoch > self.resumed_epoch, "an epoch led before a restart is over (D4, I13)"
        assert self.epoch > self.log.last_epoch(), "no record of this epoch exists yet (I1, I2)"
        granting = tuple(sorted(self.current.election.granted))
        leader = Leader.elected(self.voters, self.local, self.log.end_offset, now_ms)
        if leader.needed_of_others > 0:
            leader.check_quorum_deadline_ms = now_ms + self.config.check_quorum_timeout_ms
        self.persist(self.epoch, self.local.id, None)
        self.high_watermark = NO_OFFSET
        if self.current.election.unanimous:
            self.doubt.led_out()
        endpoints = self.config.endpoints or self.voters.endpoints(self.local.id)
        self._enter(leader, self.epoch, self.local.id, endpoints, None)
        self.log.trail.assign(self.epoch, self.log.end_offset)
        if leader.slot >= 0:
            leader.acknowledged.put(leader.slot, self.log.ackable_end_offset())
        change = LeaderChange.of(self.local.id, self.voters.ids, granting)
        records = first_records(self.config, self.local, self.history, change)
        self.effects.append(AppendControl(self.epoch, records))

    def to_resigned(self, now_ms: int, preferred_id: int = NO_NODE) -> None:
        """Step down; name the preferred voter first, then those with the longest logs."""
        assert self.leader is not None
        resigned = Resigned(
            now_ms + self.election_timeout_ms(),
            set(self.voters.others(self.local)),
            self.leader.successors(preferred_id),
        )
        self.high_watermark = NO_OFFSET
        self._enter(resigned, self.epoch, self.leader_id, self.leader_endpoints, self.voted)

    def begin(self, current: AnyRole, state: QuorumState) -> None:
        """Take the first role after a start; it is written to disk again at once."""
        self.persisted = None
        self.persist(state.epoch, state.leader_id, state.voted)
        endpoints = self.voters.endpoints(state.leader_id)
        self._settle_in(current, state.epoch, state.leader_id, endpoints, state.voted)

    def grant_vote(self, candidate: ReplicaKey, now_ms: int) -> None:
        """Vote for another replica in this epoch, on disk before the answer leaves (D5, I10)."""
        assert candidate.id != self.local.id, "a Vote request from this replica itself"
        assert self.local.id >= 0, "a replica without an id has no vote"
        assert isinstance(self.current, Unattached | Prospective)
        self.persist(self.epoch, self.leader_id, candidate)
        self.voted = candidate
        if self.counts_as_voter():
            self.current.election_deadline_ms = now_ms + self.election_timeout_ms()

    def persist(self, epoch: int, leader_id: int, voted: ReplicaKey | None) -> None:
        """Have ``quorum-state`` written before the step's other effects (D5), unless it stands.

        Requests for votes and BeginQuorumEpoch may leave before (``election_first``).
        """
        wanted = QuorumState(epoch, leader_id, voted, self.superseded, self.was_voter)
        standing = self.persisted
        if wanted == standing:
            return
        if standing is not None:
            assert epoch >= standing.epoch, "the epoch never falls (I9)"
            if epoch == standing.epoch and standing.voted is not None:
                assert voted == standing.voted or leader_id == self.local.id, (
                    "one vote in an epoch (I9)"
                )
        self.persisted = wanted
        self.effects.append(PersistQuorumState(*wanted[:3], self.kraft_version, *wanted[3:]))
        self.quorum_state_due = True

    def next_failover_ms(self) -> int:
        """Return how long after a lost campaign the next goes, while the leader is known dead.

        The others may have learnt of the death later, or be the better candidates: wait for all
        of them once, twice as long each time, up to the election timeout.
        """
        delay_ms = self.config.failover_step_ms * len(self.voters) + self.failover_delay_ms()
        delay_ms <<= min(self.failover_round, 16)
        self.failover_round += 1
        return min(delay_ms, self.election_timeout_ms())

    def _enter(
        self,
        current: AnyRole,
        epoch: int,
        leader_id: int,
        endpoints: tuple[Endpoint, ...],
        voted: ReplicaKey | None,
    ) -> None:
        check_transition(self.role, current.role, self.epoch, epoch, self.counts_as_voter())
        left = self.leader
        if current.role in (Role.FOLLOWER, Role.LEADER) or (
            epoch > self.epoch and current.role is not Role.CANDIDATE
        ):
            self.failover_round = 0
        self._settle_in(current, epoch, leader_id, endpoints, voted)
        if left is not None:
            dismiss(self, left)

    def _settle_in(
        self,
        current: AnyRole,
        epoch: int,
        leader_id: int,
        endpoints: tuple[Endpoint, ...],
        voted: ReplicaKey | None,
    ) -> None:
        for barrier in self.barriers:
            barrier.correlation = 0  # the next leader is asked
        if (epoch, leader_id) != (self.epoch, self.leader_id):
            self.leader_identity = UNSAID
        self.current = current
        self.role = current.role
        self.leader = current if isinstance(current, Leader) else None
        self.follower = current if isinstance(current, Follower) else None
        self.epoch = epoch
        self.leader_id = leader_id
        self.leader_endpoints = endpoints
        self.voted = voted
        self.displaced = self.displaced or another_made_epoch(self)
        self.writing = False
        self.fetch_at_ms = 0
        self.fetch_failures = 0
        self.ask_others = False
        self.peers.reset((*self.voters.ids, *self.config.bootstrap_ids, leader_id))
        self.poll_due = True
        self.effects.append(RoleChanged(current.role.value, epoch, leader_id, endpoints))

    def snapshot_response(
        self, request: FetchSnapshotRequest, error: ErrorCode
    ) -> FetchSnapshotResponse:
        """Return the response to a FetchSnapshot, without its bytes."""
        return FetchSnapshotResponse(
            partition_error=error,
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            snapshot_id=request.snapshot_id,
            position=request.position,
            leader_endpoints=self.leader_endpoints,
            leader_identity=identity_of_leader(self),
        )

    def fetch_refusal(self, error: ErrorCode, stream: int) -> FetchResponse:
        """Return the response to a Fetch with an error, the epoch and the leader."""
        return FetchResponse(
            partition_error=error,
            leader_id=self.leader_id,
            leader_epoch=self.epoch,
            leader_endpoints=self.leader_endpoints,
            leader_identity=identity_of_leader(self),
            stream=stream,
        )
