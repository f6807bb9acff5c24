"""Several replicas over a wiring that the test controls: time, messages, disks and crashes.

The log is a list of records in memory with a flushed end; what is not flushed goes with a crash.
A record's value names the epoch and a number that is never used twice, so that two logs that hold
the same (offset, epoch) can be compared (I2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, NamedTuple

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.config import QuorumConfig
from kraftfast.core.control import KRaftVersion, KRaftVoters, LeaderChange, VoterControls
from kraftfast.core.messages import FetchRequest, FetchResponse, FetchSnapshotResponse
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.replica import Replica
from kraftfast.core.trail import EpochTrail
from kraftfast.core.voter_history import VoterHistory
from kraftfast.core.voters import VoterSet
from kraftfast.errors import ErrorCode
from kraftfast.types import Endpoint, OffsetAndEpoch, ReplicaKey, Voter

RECORD_BYTES = 100


class Record(NamedTuple):
    epoch: int
    value: str
    control: KRaftVersion | KRaftVoters | None = None


GONE = Record(0, "in a snapshot")
"""Stands where the log's start has moved on."""


class NoJitter(Random):
    """Chance that a script controls: the next draws, then always the lowest."""

    def __init__(self) -> None:
        super().__init__(0)
        self.draws: deque[int] = deque()

    def randrange(self, start: int, *_: Any) -> int:  # only randrange(n) is used
        return self.draws.popleft() if self.draws else 0

    def choice(self, options: Any) -> Any:
        return options[0]


@dataclass
class Disk:
    """What one replica has: the log in memory, and what of it and of quorum-state is on disk.

    ``records`` holds ``GONE`` below ``start``; ``bootstrap`` is what the 0-0 snapshot says.
    """

    records: list[Record] = field(default_factory=list)
    flushed: int = 0
    quorum_state: QuorumState | None = None
    truncations: int = 0
    start: int = 0
    bootstrap: tuple[KRaftVersion | KRaftVoters, ...] = ()
    snapshots: dict[OffsetAndEpoch, tuple[KRaftVersion | KRaftVoters, ...]] = field(
        default_factory=dict
    )

    def trail(self) -> EpochTrail:
        trail = EpochTrail()
        for offset, record in enumerate(self.records[self.start:], self.start):
            trail.assign(record.epoch, offset)
        return trail

    def history(self) -> VoterHistory:
        """What a replay of snapshot and log says of the voters (I16)."""
        first = self.bootstrap
        for snapshot_id, controls in self.snapshots.items():
            if snapshot_id.offset == self.start:
                first = controls
        history = VoterHistory([(self.start - 1, control) for control in first])
        for offset, control in controls_of(self.records, self.start):
            history.add(offset, control)
        return history

    def lose_power(self, keep: int | None = None) -> None:
        """Unflushed records are lost, but for ``keep`` of them."""
        del self.records[self.flushed + (keep or 0):]
        self.flushed = min(self.flushed, len(self.records))


def controls_of(records: list[Record], start: int) -> VoterControls:
    """The records from ``start`` on that change who counts, with their offsets."""
    return tuple(
        (offset, record.control)
        for offset, record in enumerate(records[start:], start)
        if record.control is not None
    )


def filed_from(history: VoterHistory, start: int) -> VoterHistory:
    """The same, with what stands below ``start`` filed where a snapshot's records are."""
    filed = VoterHistory()
    filed.versions = [(max(offset, start - 1), each) for offset, each in history.versions]
    filed.voter_sets = [(max(offset, start - 1), each) for offset, each in history.voter_sets]
    return filed


@dataclass
class Message:
    """On its way from one replica to another."""

    source: int
    target: int
    correlation: int
    body: Any
    is_request: bool
    records: tuple[Record, ...] = ()
    base_offset: int = -1  # of the first record, as a batch says it
    snapshot: tuple[KRaftVersion | KRaftVoters, ...] = ()  # what its slices will amount to


class Origin(NamedTuple):
    """What a request's ``source`` is here: who asked, under which correlation."""

    peer_id: int
    correlation: int


class Host:
    """One process: a replica, its disk, and what the loop around it would hold."""

    def __init__(self, world: World, id: int) -> None:
        self.world = world
        self.id = id
        self.disk = Disk()
        self.replica: Replica | None = None
        self.queued = 0  # records that producers have waiting
        self.flushing: tuple[int, int] | None = None  # end and truncations when it began
        self.at_hand: tuple[Record, ...] = ()
        self.at_hand_offset = -1
        self.reject_next = False
        self.stalled = False  # the log has no room
        self.waiting_write: fx.WriteFetched | None = None
        self.applied = -1  # the highest committed offset that was handed out
        self.probing: fx.Probe | None = None  # the latest
        self.slice_bytes = 0  # of the snapshot's slice at hand
        self.slice_content: tuple[KRaftVersion | KRaftVoters, ...] = ()
        self.fetched_bytes = 0  # of the snapshot on its way here
        self.slices_held = 0  # AnswerSnapshots that have not left yet
        self.ticks = (-1, 0)  # the last tick's time, and how many came at it

    @property
    def running(self) -> bool:
        return self.replica is not None

    # --- life ---

    def start(self, **options: Any) -> None:
        world = self.world
        self.queued = 0
        self.flushing = None
        self.applied = -1
        self.disk.truncations = 0
        self.stalled = False
        self.waiting_write = None
        self.slices_held = 0
        self.replica = world.replica_class(
            world.config_of(self.id),
            world.key(self.id),
            world.voters,
            world.random,
            world.now_ms,
            self.disk.quorum_state,
            self.disk.trail(),
            len(self.disk.records),
            self.disk.flushed,
            cluster_id=world.cluster_id,
            log_start_offset=self.disk.start,
            history=self.disk.history(),
            snapshots=tuple(self.disk.snapshots),
            **options,
        )
        self.run("start", lambda replica: replica.start(world.now_ms))

    def crash(self, keep: int | None = 0) -> None:
        """The process dies; ``keep`` unflushed records survive, all of them if None."""
        self.replica = None
        self.flushing = None
        if keep is not None:
            self.disk.lose_power(keep)
        self.world.forget(self.id)

    def step(self, event: ev.Event, text: str | None = None) -> None:
        if self.replica is None:
            return
        now_ms = self.world.now_ms
        if isinstance(event, ev.Tick):
            self.ticks = (now_ms, self.ticks[1] + 1 if self.ticks[0] == now_ms else 1)
            assert self.ticks[1] < 100, f"L7: replica {self.id} is busy for ever"
        self.run(text or self.world.describe_event(event), lambda r: r.step(event, now_ms))

    def run(self, text: str, call: Callable[[Replica], list[fx.Effect]]) -> None:
        """One step, everything it wants done, and what follows from that."""
        assert self.replica is not None
        effects = call(self.replica)
        self.replica.check_invariants()
        self.check_history()
        self.world.log_step(self.id, text, effects)
        follow_on: list[ev.Event] = []
        for effect in effects:
            self.execute(effect, follow_on)
        self.world.after_step(self)
        for event in follow_on:
            self.step(event)

    def check_history(self) -> None:
        """I16: the voter sets are those of snapshot and log, up to what the core knows of."""
        assert self.replica is not None
        replayed = self.disk.history()
        replayed.truncate_to(self.replica.end_offset)
        if self.replica.log_start_offset == self.disk.start:  # else DeleteBefore is on its way
            assert filed_from(self.replica.history, self.disk.start) == replayed, "I16"

    # --- effects ---

    def execute(self, effect: fx.Effect, follow_on: list[ev.Event]) -> None:
        getattr(self, f"do_{type(effect).__name__}")(effect, follow_on)

    def holds(self, after: Any) -> None:
        """Whoever carries an effect out asserts the durability it names."""
        if isinstance(after, fx.Persisted):
            assert self.disk.quorum_state is not None
            assert self.disk.quorum_state.epoch >= after.epoch, "I10"
        elif isinstance(after, fx.FlushedTo):
            assert self.disk.flushed >= after.end_offset, "D3"

    def do_PersistQuorumState(self, effect: fx.PersistQuorumState, follow_on: list) -> None:
        self.disk.quorum_state = QuorumState(effect.epoch, effect.leader_id, effect.voted)

    def do_Send(self, effect: fx.Send, follow_on: list) -> None:
        self.holds(effect.after)
        if isinstance(effect.request, FetchRequest) and not effect.request.in_memory:
            assert effect.request.fetch_offset <= self.disk.flushed, "I11"
        self.world.send(
            Message(self.id, effect.peer_id, effect.correlation, effect.request, True)
        )

    def do_Reply(self, effect: fx.Reply, follow_on: list) -> None:
        self.holds(effect.after)
        origin = effect.source
        self.world.send(
            Message(self.id, origin.peer_id, origin.correlation, effect.response, False)
        )

    def do_AnswerFetch(self, effect: fx.AnswerFetch, follow_on: list) -> None:
        origin = effect.source
        records: tuple[Record, ...] = ()
        if effect.read_offset >= 0:
            end = len(self.disk.records)
            if effect.read_end_offset >= 0:
                end = min(end, effect.read_end_offset)
            limit = max(1, min(effect.max_bytes // RECORD_BYTES, self.world.turn_records))
            records = tuple(self.disk.records[effect.read_offset:end][:limit])
            assert records, "an answer with records has some"
            if effect.response.stream and self.world.ring_full(self.id, origin.peer_id):
                records = ()
            if effect.response.stream:
                assert self.replica is not None
                self.replica.sent(
                    origin.peer_id, effect.response.stream, effect.read_offset + len(records)
                )
                if not records:
                    return
        response = effect.response
        response.records_bytes = len(records) * RECORD_BYTES
        correlation = 0 if response.stream else origin.correlation
        self.world.send(
            Message(
                self.id, origin.peer_id, correlation, response, False, records, effect.read_offset
            )
        )

    def do_DrainAppends(self, effect: fx.DrainAppends, follow_on: list) -> None:
        count = min(self.queued, max(1, effect.max_bytes // RECORD_BYTES))
        self.queued -= count
        for _ in range(count):
            self.disk.records.append(Record(effect.epoch, self.world.new_value(self.id)))
        follow_on.append(
            ev.Appended(effect.epoch, len(self.disk.records), count * RECORD_BYTES)
        )
        if self.queued:
            follow_on.append(ev.AppendsQueued())

    def do_RefuseAppends(self, effect: fx.RefuseAppends, follow_on: list) -> None:
        self.queued = 0

    def do_AppendControl(self, effect: fx.AppendControl, follow_on: list) -> None:
        began = len(self.disk.records)
        for record in effect.records:
            if isinstance(record, LeaderChange):
                self.world.elected(effect.epoch, record.leader_id)
                self.disk.records.append(Record(effect.epoch, f"leader {record.leader_id}"))
            else:
                value = self.world.new_value(self.id)
                self.disk.records.append(Record(effect.epoch, value, record))
        follow_on.append(
            ev.Appended(
                effect.epoch,
                len(self.disk.records),
                len(effect.records) * RECORD_BYTES,
                controls_of(self.disk.records, began),
            )
        )

    def do_WriteFetched(self, effect: fx.WriteFetched, follow_on: list) -> None:
        assert effect.offset == len(self.disk.records)
        if self.stalled:
            self.waiting_write = effect
            return
        records = self.at_hand
        self.at_hand = ()
        rejected = self.reject_next or self.at_hand_offset != effect.offset  # D20: contiguity
        self.reject_next = False
        if rejected:
            records = records[:0]
        epochs = []
        last_epoch = self.disk.records[-1].epoch if self.disk.records else 0
        written = 0
        began = len(self.disk.records)
        for record in records:
            if record.epoch > effect.epoch or record.epoch < last_epoch:
                break
            if record.epoch != last_epoch or not self.disk.records:
                epochs.append((record.epoch, len(self.disk.records)))
                last_epoch = record.epoch
            self.disk.records.append(record)
            written += 1
        follow_on.append(
            ev.FetchedWritten(
                len(self.disk.records),
                written * RECORD_BYTES,
                tuple(epochs),
                rejected,
                controls_of(self.disk.records, began),
            )
        )

    def room_again(self) -> None:
        """The log has room: what waited for it is written."""
        self.stalled = False
        effect, self.waiting_write = self.waiting_write, None
        if effect is not None:
            follow_on: list[ev.Event] = []
            self.do_WriteFetched(effect, follow_on)
            for event in follow_on:
                self.step(event)

    def do_AnswerSnapshot(self, effect: fx.AnswerSnapshot, follow_on: list) -> None:
        response = effect.response
        response.size = self.world.snapshot_bytes(effect.snapshot_id)
        response.records_bytes = min(effect.max_bytes, response.size - effect.position)
        if response.records_bytes <= 0:
            response.partition_error = ErrorCode.POSITION_OUT_OF_RANGE
        origin = effect.source
        self.world.send(
            Message(
                self.id,
                origin.peer_id,
                origin.correlation,
                response,
                False,
                snapshot=self.disk.snapshots[effect.snapshot_id],
            )
        )
        if self.id in self.world.held_slices:
            self.slices_held += 1
        else:
            follow_on.append(ev.SnapshotAnswered())

    def do_WriteSnapshot(self, effect: fx.WriteSnapshot, follow_on: list) -> None:
        assert effect.position == (self.fetched_bytes if effect.position else 0)
        rejected, self.reject_next = self.reject_next, False
        self.fetched_bytes = effect.position + self.slice_bytes
        follow_on.append(ev.SnapshotWritten(effect.snapshot_id, self.fetched_bytes, rejected))

    def do_InstallSnapshot(self, effect: fx.InstallSnapshot, follow_on: list) -> None:
        snapshot_id = effect.snapshot_id
        assert self.fetched_bytes == self.world.snapshot_bytes(snapshot_id)
        rejected, self.reject_next = self.reject_next, False
        if rejected:
            follow_on.append(ev.SnapshotInstalled(snapshot_id, VoterHistory(), True))
            return
        assert snapshot_id.offset >= self.applied, "I7"
        disk = self.disk
        disk.records = [GONE] * snapshot_id.offset
        disk.start = disk.flushed = snapshot_id.offset
        disk.snapshots = {snapshot_id: self.slice_content}
        disk.truncations = effect.truncations
        follow_on.append(ev.SnapshotInstalled(snapshot_id, disk.history()))

    def do_DeleteBefore(self, effect: fx.DeleteBefore, follow_on: list) -> None:
        disk = self.disk
        assert any(each.offset == effect.offset for each in disk.snapshots), "I15"
        disk.snapshots = {i: c for i, c in disk.snapshots.items() if i.offset >= effect.offset}
        disk.records[:effect.offset] = [GONE] * effect.offset
        disk.start = effect.offset
        disk.flushed = max(disk.flushed, effect.offset)

    def make_snapshot(self, offset: int) -> None:
        """The state machine makes a snapshot of the records below ``offset``.

        It sees whole batches, and control records stand in one with what is before them.
        """
        replica = self.replica
        assert replica is not None
        if offset < len(self.disk.records) and self.disk.records[offset].control is not None:
            return
        snapshot_id = OffsetAndEpoch(offset, self.disk.records[offset - 1].epoch)
        if not replica.may_create_snapshot(snapshot_id):
            return
        assert offset <= min(replica.high_watermark, self.disk.flushed) or (
            not self.world.durable
        ), "I15"
        history = replica.history
        content: list[KRaftVersion | KRaftVoters] = []
        if history.version_at(offset):
            content.append(KRaftVersion(history.version_at(offset)))
        voters = history.voters_at(offset)
        if voters is not None:
            content.append(voters)
        self.world.snapshot_made(snapshot_id, tuple(content))
        self.disk.snapshots[snapshot_id] = tuple(content)
        self.step(ev.SnapshotCreated(snapshot_id))

    def do_Truncate(self, effect: fx.Truncate, follow_on: list) -> None:
        assert effect.end_offset >= max(self.applied, self.disk.start), "I7"
        del self.disk.records[effect.end_offset:]
        self.disk.flushed = min(self.disk.flushed, effect.end_offset)
        self.disk.truncations = effect.truncations

    def do_Flush(self, effect: fx.Flush, follow_on: list) -> None:
        assert self.flushing is None, "one flush at a time"
        began = (len(self.disk.records), self.disk.truncations)
        if effect.inline and not self.world.disk_held(self.id):
            self.disk.flushed = began[0]
            follow_on.append(ev.Flushed(*began))
        else:
            self.flushing = began
            self.world.flush_began(self.id)

    def finish_flush(self) -> None:
        """The flush under way completes: what was cut and written anew meanwhile is not in it."""
        if self.flushing is None:
            return
        end_offset, truncations = self.flushing
        self.flushing = None
        if truncations == self.disk.truncations:
            self.disk.flushed = max(self.disk.flushed, end_offset)
        self.step(ev.Flushed(end_offset, truncations))

    def do_AdvanceHighWatermark(self, effect: fx.AdvanceHighWatermark, follow_on: list) -> None:
        assert effect.offset > self.applied, "I6"
        self.world.committed(self, max(self.applied, 0), effect.offset)
        self.applied = effect.offset

    def do_AcknowledgedByAll(self, effect: fx.AcknowledgedByAll, follow_on: list) -> None:
        self.world.on_all(effect.offset)

    def do_RoleChanged(self, effect: fx.RoleChanged, follow_on: list) -> None:
        self.waiting_write = None

    def do_AnswerReadBarrier(self, effect: fx.AnswerReadBarrier, follow_on: list) -> None:
        if effect.error == ErrorCode.NONE:
            self.world.barrier_passed(effect.source, effect.offset)

    def read_barrier(self, timeout_ms: int = 2000) -> None:
        """A reader here asks for what is committed by now, anywhere."""
        barrier = (self.id, len(self.world.log_of_all))
        self.step(ev.ReadBarrierRequested(barrier, timeout_ms))

    def do_Probe(self, effect: fx.Probe, follow_on: list) -> None:
        self.probing = effect
        if self.world.answers_probes:
            there = self.world.hosts[effect.voter_id].running
            error = ErrorCode.NONE if there else ErrorCode.NETWORK_EXCEPTION
            follow_on.append(ev.Probed(effect.probe, error, *((0, 1) if there else ())))

    def do_VotersChanged(self, effect: fx.VotersChanged, follow_on: list) -> None:
        pass

    def do_Stopped(self, effect: fx.Stopped, follow_on: list) -> None:
        pass


class World:
    """All replicas, the messages between them, and the time."""

    replica_class = Replica

    def __init__(self, *voter_ids: int, random: Random | None = None) -> None:
        self.now_ms = 0
        self.random = random or NoJitter()
        self.config = QuorumConfig()
        self.configs: dict[int, QuorumConfig] = {}
        self.voters = VoterSet.of(*voter_ids)  # static
        self.answers_probes = False
        self.with_endpoints = False  # replicas know where they are reached (KIP-853)
        self.cluster_id: str | None = None
        self.directory_ids: dict[int, bytes] = {}
        self.hosts: dict[int, Host] = {}
        self.messages: deque[Message] = deque()
        self.cut: set[tuple[int, int]] = set()  # (from, to) that loses messages
        self.held_disks: set[int] = set()
        self.full_rings: set[tuple[int, int]] = set()  # (from, to)
        self.held_slices: set[int] = set()  # replicas whose slices are slow to leave
        self.snapshots: dict[OffsetAndEpoch, tuple[KRaftVersion | KRaftVoters, ...]] = {}
        self.turn_records = 1 << 30
        self.leaders: dict[int, int] = {}  # epoch -> who led it (I1)
        self.log_of_all: list[Record] = []  # what was ever committed, by offset (I8)
        self.durable: bool = True  # acknowledged means on disk
        self._values = 0
        for id in voter_ids:
            self.add(id)

    # --- set-up ---

    def add(self, id: int) -> Host:
        host = self.hosts[id] = Host(self, id)
        return host

    def key(self, id: int) -> ReplicaKey:
        return ReplicaKey(id, self.directory_ids.get(id, bytes([64 + id]) * 16))

    def config_of(self, id: int) -> QuorumConfig:
        config = self.configs.get(id, self.config)
        if self.with_endpoints and not config.endpoints:
            config = replace(config, endpoints=(endpoint_of(id),))
        return config

    def new_value(self, id: int) -> str:
        self._values += 1
        return f"{self._values} by {id}"

    # --- what tests of a kind replace ---

    def describe_event(self, event: ev.Event) -> str:
        return type(event).__name__

    def log_step(self, id: int, text: str, effects: list[fx.Effect]) -> None:
        pass

    def after_step(self, host: Host) -> None:
        pass

    def disk_held(self, id: int) -> bool:
        return id in self.held_disks

    def ring_full(self, source: int, target: int) -> bool:
        return (source, target) in self.full_rings

    # --- what all replicas together must keep to ---

    def elected(self, epoch: int, leader_id: int) -> None:
        assert self.leaders.setdefault(epoch, leader_id) == leader_id, "I1"

    def committed(self, host: Host, start: int, end: int) -> None:
        """I5, I8: committed on a majority's disks, and the same records everywhere."""
        for offset in range(max(start, host.disk.start), end):
            record = host.disk.records[offset]
            if offset < len(self.log_of_all):
                assert self.log_of_all[offset] == record, f"I8 at {offset}"
                continue
            assert offset == len(self.log_of_all)
            assert host.replica is not None
            voters = host.replica.voters  # in force where it is committed first: at the leader
            holders = [
                each.id
                for each in self.hosts.values()
                if voters.is_voter(self.key(each.id))
                and len(each.disk.records) > offset
                and each.disk.records[offset] in (record, GONE)
                and (each.disk.flushed > offset or not self.durable)
            ]
            assert len(holders) >= voters.majority, f"I5: {offset} only on {holders}"
            self.log_of_all.append(record)

    def snapshot_made(
        self, snapshot_id: OffsetAndEpoch, content: tuple[KRaftVersion | KRaftVoters, ...]
    ) -> None:
        """I8: the same snapshot everywhere."""
        assert self.snapshots.setdefault(snapshot_id, content) == content, "I8"

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int:
        return 100 * (1 + snapshot_id.offset % 4)

    def barrier_passed(self, barrier: tuple[int, int], offset: int) -> None:
        """ReadIndex: it covers whatever was committed when the reader asked."""
        assert barrier[1] <= offset <= len(self.log_of_all), "a stale read"

    def on_all(self, end_offset: int) -> None:
        """durability=all: every voter's disk holds the records below this."""
        for host in self.hosts.values():
            assert host.id not in self.voters or host.disk.flushed >= end_offset

    # --- messages ---

    def send(self, message: Message) -> None:
        if message.target in self.hosts:
            self.messages.append(message)

    def forget(self, id: int) -> None:
        """A process died: what was on its way to it or from it is lost."""
        lost = [each for each in self.messages if id in (each.source, each.target)]
        for message in lost:
            self.messages.remove(message)

    def flush_began(self, id: int) -> None:
        pass

    def deliver(self, message: Message) -> None:
        """Hand one message over, or tell the sender that it cannot be."""
        host = self.hosts[message.target]
        if (message.source, message.target) in self.cut:
            return
        if not host.running:
            if message.is_request and message.correlation:
                self.hosts[message.source].step(
                    ev.RequestFailed(
                        message.target, message.correlation, ErrorCode.BROKER_NOT_AVAILABLE
                    )
                )
            return
        if message.is_request:
            origin = Origin(message.source, message.correlation)
            host.step(ev.RequestReceived(origin, message.body))
            return
        if isinstance(message.body, FetchResponse):
            if host.waiting_write is not None:  # later answers wait behind the one at hand
                self.messages.appendleft(message)
                return
            host.at_hand = message.records
            host.at_hand_offset = message.base_offset
        if isinstance(message.body, FetchSnapshotResponse):
            host.slice_bytes = message.body.records_bytes
            host.slice_content = message.snapshot
        host.step(ev.ResponseReceived(message.source, message.correlation, message.body))

    def links_up(self, streaming: bool, among: list[int] | None = None) -> None:
        """Every running replica gets a link to every other."""
        ids = [id for id in (among or self.hosts) if self.hosts[id].running]
        for id in ids:
            for other in ids:
                if other != id:
                    self.hosts[id].step(ev.LinkUp(other, streaming))


def endpoint_of(id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"host{id}", 9000 + id)


def voter_of(key: ReplicaKey) -> Voter:
    """A voter's entry as it writes it itself."""
    return Voter(key.id, key.directory_id, (endpoint_of(key.id),), 0, 1)


def log_of(*runs: tuple[int, int]) -> list[Record]:
    """Records of (epoch, end offset) runs: ``log_of((1, 5), (3, 10))``."""
    records: list[Record] = []
    for epoch, end in runs:
        while len(records) < end:
            records.append(Record(epoch, f"{len(records)}@{epoch}"))
    return records


def phantom(offset: int, epoch: int) -> OffsetAndEpoch:
    return OffsetAndEpoch(offset, epoch)
