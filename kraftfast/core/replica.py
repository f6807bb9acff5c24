"""Where the core is entered: ``step(event, now_ms)`` returns what is to be done."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

from kraftfast.core import describe_quorum, invariants, on_tick
from kraftfast.core.config import Durability, QuorumConfig
from kraftfast.core.effects import AdvanceHighWatermark, Effect, election_first
from kraftfast.core.elections.doubt import Doubt
from kraftfast.core.elections.leader_identity import listening_ms
from kraftfast.core.elections.leadership_transfer import on_transfer_requested
from kraftfast.core.elections.on_begin_quorum_epoch import on_begin_quorum_epoch
from kraftfast.core.elections.on_end_quorum_epoch import on_end_quorum_epoch
from kraftfast.core.elections.on_peer_ended import on_peer_ended
from kraftfast.core.elections.on_quorum_epoch_response import on_quorum_epoch_response
from kraftfast.core.elections.on_resign_requested import on_resign_requested
from kraftfast.core.elections.on_shutdown import (
    finish_shutdown,
    on_shutdown_requested,
)
from kraftfast.core.elections.on_vote import on_vote
from kraftfast.core.elections.on_vote_response import on_vote_response
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.events import (
    Appended,
    AppendsQueued,
    Event,
    FetchedWritten,
    Flushed,
    LinkDown,
    LinkUp,
    PeerEnded,
    Probed,
    ReadBarrierRequested,
    RequestFailed,
    RequestReceived,
    ResignRequested,
    ResponseReceived,
    RetentionDue,
    ShutdownRequested,
    SliceAnswered,
    SliceWritten,
    SnapshotCreated,
    SnapshotInstalled,
    StreamAnswered,
    Tick,
    TransferRequested,
)
from kraftfast.core.log_view import NEVER_MS, LogView
from kraftfast.core.membership.on_add_voter import on_add_voter
from kraftfast.core.membership.on_probed import on_probed
from kraftfast.core.membership.on_reassignment import on_alter_reassignments, on_list_reassignments
from kraftfast.core.membership.on_remove_voter import on_remove_voter
from kraftfast.core.membership.on_update_features import on_update_features
from kraftfast.core.membership.on_update_voter import on_update_voter
from kraftfast.core.membership.on_voter_response import on_join_response, on_update_response
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    AddRaftVoterResponse,
    AlterPartitionReassignmentsRequest,
    BeginQuorumEpochRequest,
    EndQuorumEpochRequest,
    FetchRequest,
    FetchResponse,
    FetchSnapshotRequest,
    FetchSnapshotResponse,
    ListPartitionReassignmentsRequest,
    QuorumEpochResponse,
    ReadBarrierRequest,
    ReadBarrierResponse,
    RemoveRaftVoterRequest,
    RemoveRaftVoterResponse,
    UpdateFeaturesRequest,
    UpdateRaftVoterRequest,
    UpdateRaftVoterResponse,
    VoteRequest,
    VoteResponse,
)
from kraftfast.core.on_link import (
    on_link_down,
    on_link_up,
    on_request_failed,
)
from kraftfast.core.read_barrier import (
    on_read_barrier,
    on_read_barrier_requested,
    on_read_barrier_response,
)
from kraftfast.core.replication.fetch_answers import on_stream_answered
from kraftfast.core.replication.fetching import bootstrap_ids
from kraftfast.core.replication.on_append import on_appended, on_appends_queued
from kraftfast.core.replication.on_fetch import on_fetch
from kraftfast.core.replication.on_fetch_response import (
    on_fetch_response,
    on_pushed,
    truncation_offset,
)
from kraftfast.core.replication.on_fetched_written import on_fetched_written
from kraftfast.core.replication.on_flushed import on_flushed
from kraftfast.core.snapshots.on_fetch_snapshot import on_fetch_snapshot, on_slice_answered
from kraftfast.core.snapshots.on_fetch_snapshot_response import on_fetch_snapshot_response
from kraftfast.core.snapshots.on_retention_due import on_retention_due
from kraftfast.core.snapshots.on_slice_written import on_slice_written
from kraftfast.core.snapshots.on_snapshot_created import may_create, on_snapshot_created
from kraftfast.core.snapshots.on_snapshot_installed import on_snapshot_installed
from kraftfast.core.state import AnyRole, QuorumState
from kraftfast.core.trail import EpochTrail
from kraftfast.core.transitions import initialize, new_follower
from kraftfast.errors import ForeignDirectory, InvalidOption
from kraftfast.types import (
    NO_NODE,
    ZERO_UUID,
    ElectionState,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
)


def _on_tick(state: QuorumState, event: Tick, now_ms: int) -> None:
    state.poll_due = True


FIRST_CAMPAIGN_MS = 2
"""After the start of the first voter of a quorum that was made just now. Each of the others is
asked for its pre-vote as soon as the link to it stands, and waited for."""


def begins_quorum(state: QuorumState, stored: ElectionState) -> bool:
    """Return whether this is the first voter, by id, of a quorum that had no leader yet."""
    fresh = state.config.new_quorum and stored.epoch == 0 and state.log.end_offset == 0
    return fresh and state.is_voter() and state.local.id == min(state.voters.ids)


_ON_REQUEST = {
    VoteRequest: on_vote,
    BeginQuorumEpochRequest: on_begin_quorum_epoch,
    EndQuorumEpochRequest: on_end_quorum_epoch,
    FetchRequest: on_fetch,
    FetchSnapshotRequest: on_fetch_snapshot,
    AddRaftVoterRequest: on_add_voter,
    RemoveRaftVoterRequest: on_remove_voter,
    UpdateRaftVoterRequest: on_update_voter,
    UpdateFeaturesRequest: on_update_features,
    AlterPartitionReassignmentsRequest: on_alter_reassignments,
    ListPartitionReassignmentsRequest: on_list_reassignments,
    ReadBarrierRequest: on_read_barrier,
}

_ON_RESPONSE = {
    VoteResponse: on_vote_response,
    QuorumEpochResponse: on_quorum_epoch_response,
    FetchResponse: on_fetch_response,
    FetchSnapshotResponse: on_fetch_snapshot_response,
    AddRaftVoterResponse: on_join_response,
    RemoveRaftVoterResponse: on_join_response,
    UpdateRaftVoterResponse: on_update_response,
}


def _on_request(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    _ON_REQUEST[type(event.request)](state, event, now_ms)


def _on_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Take an answer: a pushed one names its stream, any other must be the one waited for."""
    response = event.response
    if type(response) is FetchResponse and response.stream:
        on_pushed(state, event, now_ms)
    elif type(response) is ReadBarrierResponse:
        on_read_barrier_response(state, event, now_ms)
    elif state.peers.answered(event.peer_id, event.correlation):
        state.peers.peer(event.peer_id).ended = False  # it has just answered
        state.unheard.discard(event.peer_id)
        _ON_RESPONSE[type(response)](state, event, now_ms)
        state.poll_due = True


_ON_EVENT: dict[Any, Callable[..., None]] = {
    Tick: _on_tick,
    LinkUp: on_link_up,
    LinkDown: on_link_down,
    PeerEnded: on_peer_ended,
    RequestReceived: _on_request,
    ResponseReceived: _on_response,
    RequestFailed: on_request_failed,
    AppendsQueued: on_appends_queued,
    Appended: on_appended,
    FetchedWritten: on_fetched_written,
    Flushed: on_flushed,
    StreamAnswered: on_stream_answered,
    SnapshotCreated: on_snapshot_created,
    RetentionDue: on_retention_due,
    SliceAnswered: on_slice_answered,
    SliceWritten: on_slice_written,
    SnapshotInstalled: on_snapshot_installed,
    Probed: on_probed,
    TransferRequested: on_transfer_requested,
    ReadBarrierRequested: on_read_barrier_requested,
    ResignRequested: on_resign_requested,
    ShutdownRequested: on_shutdown_requested,
}


class Replica:
    """One replica of a quorum. It decides; its caller carries the effects out, in order.

    Args:
        local: id and directory id; id -1 for an observer without an id.
        static_voters: controller.quorum.voters; they count only while the log holds none.
        random: draws election timeouts and bootstrap servers.
        stored: the content of ``quorum-state``, None if there is no such file.
        trail, end_offset, flushed_end_offset, log_start_offset: what recovery found. The flushed
            end is only what is known to be on disk (D3).
        phantom_tail: upper bound of what may have been acknowledged and is damaged (D10).
        memory_lost: a ``durability=memory`` replica came back without its memory.
        cluster_id: None until it is known.
        history: the KRaftVersion and KRaftVoters records of the latest snapshot and of the whole
            log, committed or not; None: there are none.
        snapshots: those on disk but the bootstrap snapshot; a log that does not start at 0 starts
            at the earliest.
        floor_offset: everything below it is known to be committed; it must not exceed the log's
            end (D23).

    Raises ``InvalidOption`` for a zero directory id and a log that starts without a snapshot,
    ``ForeignDirectory`` for a stored vote of a replica without an id.
    """

    def __init__(
        self,
        config: QuorumConfig,
        local: ReplicaKey,
        static_voters: VoterSet,
        random: Random,
        now_ms: int,
        stored: ElectionState | None,
        trail: EpochTrail,
        end_offset: int,
        flushed_end_offset: int,
        log_start_offset: int = 0,
        phantom_tail: OffsetAndEpoch | None = None,
        memory_lost: bool = False,
        cluster_id: str | None = None,
        history: VoterHistory | None = None,
        snapshots: tuple[OffsetAndEpoch, ...] = (),
        floor_offset: int = 0,
    ) -> None:
        if local.directory_id == ZERO_UUID:
            raise InvalidOption("a replica needs a directory id of its own, not zero (D19)")
        if stored is not None and stored.voted is not None and local.id < 0:
            raise ForeignDirectory("quorum-state holds a vote, but this replica has no id")
        in_memory = config.durability is Durability.MEMORY
        if log_start_offset > 0 and log_start_offset not in (each.offset for each in snapshots):
            raise InvalidOption(f"the log starts at {log_start_offset}, where no snapshot ends")
        log = LogView(
            trail,
            log_start_offset,
            end_offset,
            flushed_end_offset,
            in_memory,
            now_ms,
            sorted(snapshots),
        )
        doubt = Doubt(phantom_tail, memory_lost)
        self._state = QuorumState(
            config,
            local,
            static_voters,
            VoterHistory() if history is None else history,
            random,
            log,
            doubt,
            cluster_id,
            floor_offset,
        )
        on_disk = max(floor_offset, log.snapshots[-1].offset if log.snapshots else 0)
        if self._state.history.last_offset >= on_disk:
            log.hold(flushed_end_offset)  # the voters record may not be on this disk yet (D10)
        self._stored = stored or ElectionState()
        self._state.superseded = self._stored.superseded
        self._state.was_voter = self._stored.was_voter

    # --- what is to be done -------------------------------------------------------------------

    def start(self, now_ms: int) -> list[Effect]:
        """Take up the first role (Kafka's ``QuorumState.initialize``), once and before ``step``."""
        state = self._state
        assert state.persisted is None, "a replica starts once"
        state.doubt.covered(state.log)  # the mark may have served, and not be removed yet
        first, quorum_state = self._first_role(now_ms)
        if self._stored.leader_id == state.local.id and state.local.id >= 0:
            state.resumed_epoch = self._stored.epoch
        initialize(state, first, quorum_state)
        if state.log.end_offset == 0 and state.voters.is_only_voter(state.local):
            state.unheard = set(bootstrap_ids(state))  # D23
            state.ask_until_ms = now_ms + listening_ms(state)
        if state.log.snapshots:  # what they hold was committed
            state.committed_offset = state.log.snapshots[-1].offset
            state.effects.append(AdvanceHighWatermark(state.committed_offset))
        return self._finish(now_ms)

    def step(self, event: Event, now_ms: int) -> list[Effect]:
        """Return what follows from this event, in order. ``now_ms`` is monotonic."""
        _ON_EVENT[type(event)](self._state, event, now_ms)
        return self._finish(now_ms)

    @property
    def deadline_ms(self) -> int:
        """When a ``Tick`` is due at the latest; in the past if there is something to do now."""
        return on_tick.due_ms(self._state)

    # --- what is known ------------------------------------------------------------------------

    @property
    def role(self) -> str:
        """What this replica is, as in ``RoleChanged``."""
        value: str = self._state.role._value_  # ``value`` is a slow property
        return value

    @property
    def epoch(self) -> int:
        """The present epoch."""
        return self._state.epoch

    @property
    def leader_id(self) -> int:
        """The leader of this epoch, -1 if unknown; a resigned leader names itself."""
        return self._state.leader_id

    @property
    def heard_leader_id(self) -> int:
        """The leader if it is this replica, or has answered it since it follows; else -1.

        For those who look: after a pre-vote that is lost a replica follows a dead leader again.
        """
        state = self._state
        heard = state.leader is not None or (
            state.follower is not None and state.follower.has_fetched
        )
        return state.leader_id if heard else NO_NODE

    @property
    def voted(self) -> ReplicaKey | None:
        """The replica that got its vote in this epoch, if any did."""
        return self._state.voted

    @property
    def last_epoch(self) -> int:
        """That of the log's last record, 0 if there is none."""
        return self._state.log.last_epoch()

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is known to be committed, -1 if unknown."""
        return self._state.high_watermark

    @property
    def leader_high_watermark(self) -> int:
        """What the leader that is followed last said is committed, -1 if unknown or none is."""
        follower = self._state.follower
        return -1 if follower is None else follower.leader_high_watermark

    @property
    def uncuttable_offset(self) -> int:
        """Exclusive end of what was ever known here to be committed: no cut goes below (D23)."""
        return self._state.uncuttable_offset()

    @property
    def end_offset(self) -> int:
        """Exclusive end of the log."""
        return self._state.log.end_offset

    @property
    def log_start_offset(self) -> int:
        """Where the log begins: 0, or where one of its snapshots ends."""
        return self._state.log.start_offset

    @property
    def snapshots(self) -> tuple[OffsetAndEpoch, ...]:
        """Those that followers can be sent to, ascending."""
        return tuple(self._state.log.snapshots)

    @property
    def flushed_end_offset(self) -> int:
        """Exclusive end of what is known to be on disk."""
        return self._state.log.flushed_end_offset

    @property
    def epoch_start_offset(self) -> int:
        """Where the epoch led by this replica begins; -1 where it does not lead."""
        leader = self._state.leader
        return -1 if leader is None else leader.epoch_start_offset

    @property
    def voters(self) -> VoterSet:
        """The voter set in force, committed or not."""
        return self._state.voters

    @property
    def kraft_version(self) -> int:
        """The ``kraft.version`` in force, committed or not."""
        return self._state.kraft_version

    @property
    def history(self) -> VoterHistory:
        """Voter sets and versions by offset; what a snapshot holds of them is asked there."""
        return self._state.history

    @property
    def warning(self) -> str:
        """The last thing that was refused and reported, empty if nothing was (D23)."""
        return self._state.warning

    @property
    def in_doubt(self) -> bool:
        """Whether the end of the log is uncertain (D10)."""
        return self._state.doubt.exists()

    @property
    def possible_loss(self) -> bool:
        """Whether this leader led out of doubt: committed records may be missing (D10)."""
        return self._state.doubt.possible_loss

    def may_create_snapshot(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether to make a snapshot there. Raises ``InvalidOption`` if it cannot be."""
        return may_create(self._state, snapshot_id)

    def truncation_offset(self, diverging: OffsetAndEpoch) -> int:
        """Return where a FetchResponse with this diverging epoch would cut the log.

        The core does not know where batches begin. The node must ask, and must not hand over an
        answer that would cut inside a batch: it ends the connection instead.
        """
        return truncation_offset(self._state, diverging)

    def describe(self, now_ms: int) -> describe_quorum.QuorumDescription:
        """Return the quorum as this replica knows it."""
        return describe_quorum.describe(self._state, now_ms)

    def check_invariants(self) -> None:
        """Assert what must hold between steps."""
        invariants.check_invariants(self._state)

    # --- inside -------------------------------------------------------------------------------

    def _finish(self, now_ms: int) -> list[Effect]:
        """Let new roles do what they do at once; hand over the effects."""
        state = self._state
        while state.poll_due:
            state.poll_due = False
            on_tick.poll(state, now_ms)
        if state.shutting_down:
            finish_shutdown(state, now_ms)
        effects = state.effects
        state.effects = []
        if state.quorum_state_due:
            state.quorum_state_due = False
            return election_first(effects)
        return effects

    def _first_role(self, now_ms: int) -> tuple[AnyRole, ElectionState]:
        """Return the first role and its quorum state, as Kafka's ``QuorumState.initialize``."""
        state = self._state
        stored = self._stored
        local = state.local
        last_epoch = state.log.last_epoch()
        counts_as_voter = state.counts_as_voter()
        deadline_ms = now_ms + state.election_timeout_ms() if counts_as_voter else NEVER_MS
        if begins_quorum(state, stored):
            deadline_ms = min(deadline_ms, now_ms + FIRST_CAMPAIGN_MS)
        if stored.epoch < last_epoch:
            return Unattached(deadline_ms), ElectionState(last_epoch)
        if stored.leader_id == local.id and local.id >= 0:
            others = set(state.voters.others(local))  # D4: never lead this epoch again
            return Resigned(now_ms + state.election_timeout_ms(), others, ()), stored
        if stored.leader_id in state.voters:
            return new_follower(state, now_ms), stored
        # D21: a candidacy is not resumed. The votes given for it were for a log that this
        # replica may no longer have; the own vote is kept, so no other gets it (I9).
        return Unattached(deadline_ms), stored
