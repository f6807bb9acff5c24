"""What a replica remembers, and what is often asked of that.

It changes its role in ``transitions``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from random import Random

from kraftfast import limits
from kraftfast.core.config import Durability, QuorumConfig
from kraftfast.core.effects import (
    Effect,
)
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.doubt import Doubt
from kraftfast.core.elections.epochs import EpochBudget
from kraftfast.core.elections.leader_identity import (
    is_displaced,
)
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.log_view import NEVER_MS, LogView
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import (
    UNSAID,
    LeaderIdentity,
)
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Barrier, Leader
from kraftfast.core.request_manager import RequestManager
from kraftfast.core.roles import Role
from kraftfast.types import (
    NO_NODE,
    NO_OFFSET,
    ElectionState,
    Endpoint,
    ReplicaKey,
    VoterSet,
)

UNATTACHED = Role.UNATTACHED
AnyRole = Unattached | Prospective | Candidate | Leader | Follower | Resigned


@dataclass(eq=False, repr=False)
class QuorumState:
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
    persisted: ElectionState | None = None  # what is on disk; None before the start
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
