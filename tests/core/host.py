"""One process of a test: a replica, its disk, and whoever carries the core's effects out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import FetchRequest
from kraftfast.core.replica import Replica
from kraftfast.errors import ErrorCode
from kraftfast.types import ElectionState, KRaftVersion, KRaftVoters, LeaderChange, OffsetAndEpoch
from tests.core.disk import (
    GONE,
    RECORD_BYTES,
    Disk,
    Message,
    Record,
    controls_of,
    filed_from,
    splits_batch,
)

if TYPE_CHECKING:
    from tests.core.world import World

OF_NO_CONSEQUENCE = fx.LeaderMoved, fx.VotersChanged, fx.Warn, fx.Stopped
"""In this world a host is found by its id, and no test looks at what these effects say."""


class Host:
    """One process: a replica, its disk, and what the loop around it would hold."""

    def __init__(self, world: World, id: int) -> None:
        self.world = world
        self.id = id
        self.disk = Disk()
        self.replica: Replica | None = None
        self.queued = 0  # records that producers have waiting
        self.flushing: tuple[int, int] | None = None  # end and truncations when it began
        self.reject_next = False
        self.no_room = False  # the log has no room
        self.stalled: fx.WriteFetched | None = None
        self.control: fx.AppendControl | None = None
        self.applied = -1  # the highest committed offset that was handed out
        self.probing: fx.Probe | None = None  # the latest
        self.fetched_bytes = 0  # of the snapshot on its way here
        self.fetched_content: tuple[KRaftVersion | KRaftVoters, ...] = ()
        self.slices_held = 0  # AnswerSnapshots that have not left yet
        self.told: list[ev.Event] = []  # what effects led to, on its way to the core
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
        self.no_room = False
        self.stalled = self.control = None
        self.slices_held = 0
        self.replica = world.replica_class(
            world.config_of(self.id),
            world.key(self.id),
            world.configured.get(self.id, world.voters),
            world.random,
            world.now_of(self.id),
            self.disk.quorum_state,
            self.disk.trail(),
            len(self.disk.records),
            self.disk.flushed,
            cluster_id=world.cluster_id,
            log_start_offset=self.disk.start,
            history=self.disk.history(),
            snapshots=tuple(self.disk.snapshots),
            **{"floor_offset": self.disk.floor, **options},
        )
        self.run("start", lambda replica: replica.start(world.now_of(self.id)))

    def crash(self, keep: int | None = 0) -> None:
        """The process dies; ``keep`` unflushed records survive, all of them if None."""
        self.replica = None
        self.flushing = None
        self.told.clear()
        if keep is not None:
            self.disk.lose_power(keep)
        self.world.forget(self.id)

    def step(self, event: ev.Event, text: str | None = None) -> None:
        if self.replica is None:
            return
        now_ms = self.world.now_of(self.id)
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
        for effect in effects:
            self.execute(effect)
        if self.world.keeps_floors and self.replica is not None:
            known = min(self.replica.uncuttable_offset, self.disk.flushed)
            self.disk.floor = max(self.disk.floor, known)
        self.go_on()

    def tell(self, event: ev.Event) -> None:
        """Have the core told behind what is handled now, as ``Node`` does."""
        self.told.append(event)

    def go_on(self) -> None:
        """Tell the core what effects led to."""
        while self.told:
            self.step(self.told.pop(0))

    def check_history(self) -> None:
        """I16: the voter sets are those of snapshot and log, up to what the core knows of."""
        assert self.replica is not None
        replayed = self.disk.history()
        replayed.truncate_to(self.replica.end_offset)
        if self.replica.log_start_offset == self.disk.start:  # else DeleteBefore is on its way
            assert filed_from(self.replica.history, self.disk.start) == replayed, "I16"

    # --- effects ---

    def execute(self, effect: fx.Effect) -> None:
        if not isinstance(effect, OF_NO_CONSEQUENCE):
            getattr(self, f"do_{type(effect).__name__}")(effect)

    def holds(self, after: Any) -> None:
        """Whoever carries an effect out asserts the durability it names."""
        if isinstance(after, fx.Persisted):
            assert self.disk.quorum_state is not None
            assert self.disk.quorum_state.epoch >= after.epoch, "I10"
        elif isinstance(after, fx.FlushedTo):
            assert self.disk.flushed >= after.end_offset, "D3"

    def do_PersistQuorumState(self, effect: fx.PersistQuorumState) -> None:
        self.disk.quorum_state = ElectionState(
            effect.epoch, effect.leader_id, effect.voted, effect.superseded, effect.was_voter
        )

    def do_Send(self, effect: fx.Send) -> None:
        self.holds(effect.after)
        if isinstance(effect.request, FetchRequest) and not effect.request.in_memory:
            assert effect.request.fetch_offset <= self.disk.flushed, "I11"
        self.world.send(Message(self.id, effect.peer_id, effect.correlation, effect.request, True))

    def do_Reply(self, effect: fx.Reply) -> None:
        self.holds(effect.after)
        origin = effect.source
        self.world.send(
            Message(self.id, origin.peer_id, origin.correlation, effect.response, False)
        )

    def do_AnswerFetch(self, effect: fx.AnswerFetch) -> None:
        origin = effect.source
        records: tuple[Record, ...] = ()
        if effect.read_offset >= 0:
            end = len(self.disk.records)
            if effect.end_offset_max >= 0:
                end = min(end, effect.end_offset_max)
            limit = max(1, min(effect.max_bytes // RECORD_BYTES, self.world.turn_records))
            end = min(end, effect.read_offset + limit)
            while splits_batch(self.disk.records, end):
                end += 1
            records = tuple(self.disk.records[effect.read_offset : end])
            assert records, "an answer with records has some"
            if effect.response.stream and self.world.ring_full(self.id, origin.peer_id):
                records = ()
            if effect.response.stream:
                end = effect.read_offset + len(records)
                told = ev.StreamAnswered(origin.peer_id, effect.response.stream, end)
                self.tell(told)
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

    def do_DrainAppends(self, effect: fx.DrainAppends) -> None:
        count = min(self.queued, max(1, effect.max_bytes // RECORD_BYTES))
        self.queued -= count
        for _ in range(count):
            self.disk.records.append(Record(effect.epoch, self.world.new_value(self.id)))
        self.tell(ev.Appended(effect.epoch, len(self.disk.records), count * RECORD_BYTES))
        if self.queued:
            self.tell(ev.AppendsQueued())

    def do_RefuseAppends(self, effect: fx.RefuseAppends) -> None:
        self.queued = 0

    def do_AppendControl(self, effect: fx.AppendControl) -> None:
        if self.no_room:
            self.control = effect
            return
        began = len(self.disk.records)
        batch = self.world.new_batch() if len(effect.records) > 1 else 0
        for record in effect.records:
            if isinstance(record, LeaderChange):
                self.world.elected(effect.epoch, record.leader_id)
                value = f"leader {record.leader_id}"
                self.disk.records.append(Record(effect.epoch, value, None, batch))
            else:
                value = self.world.new_value(self.id)
                self.disk.records.append(Record(effect.epoch, value, record, batch))
        self.tell(
            ev.Appended(
                effect.epoch,
                len(self.disk.records),
                len(effect.records) * RECORD_BYTES,
                controls_of(self.disk.records, began),
            )
        )

    def do_WriteFetched(self, effect: fx.WriteFetched) -> None:
        assert effect.offset == len(self.disk.records)
        if self.no_room:
            self.stalled = effect
            return
        records = effect.payload.records
        # D20: contiguity
        rejected = self.reject_next or effect.payload.base_offset != effect.offset
        self.reject_next = False
        if rejected:
            records = records[:0]
        epochs = []
        last_epoch = self.disk.records[-1].epoch if self.disk.records else 0
        written = 0
        began = len(self.disk.records)
        for record in records:
            if record.epoch > effect.epoch or record.epoch < last_epoch:
                rejected = True
                break
            if record.epoch != last_epoch or not self.disk.records:
                epochs.append((record.epoch, len(self.disk.records)))
                last_epoch = record.epoch
            self.disk.records.append(record)
            written += 1
        self.tell(
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
        self.no_room = False
        effect, self.stalled = self.stalled, None
        control, self.control = self.control, None
        if effect is not None:
            self.do_WriteFetched(effect)
        if control is not None:
            self.do_AppendControl(control)
        self.go_on()

    def do_AnswerSlice(self, effect: fx.AnswerSlice) -> None:
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
            self.tell(ev.SliceAnswered())

    def do_WriteSlice(self, effect: fx.WriteSlice) -> None:
        assert effect.position == (self.fetched_bytes if effect.position else 0)
        rejected, self.reject_next = self.reject_next, False
        self.fetched_bytes = effect.position + effect.payload.body.records_bytes
        self.fetched_content = effect.payload.snapshot
        self.tell(ev.SliceWritten(effect.snapshot_id, self.fetched_bytes, rejected))

    def do_InstallSnapshot(self, effect: fx.InstallSnapshot) -> None:
        snapshot_id = effect.snapshot_id
        assert self.fetched_bytes == self.world.snapshot_bytes(snapshot_id)
        rejected, self.reject_next = self.reject_next, False
        if rejected:
            self.tell(ev.SnapshotInstalled(snapshot_id, VoterHistory(), True))
            return
        assert snapshot_id.offset >= self.applied, "I7"
        disk = self.disk
        disk.records = [GONE] * snapshot_id.offset
        disk.start = disk.flushed = snapshot_id.offset
        disk.snapshots = {snapshot_id: self.fetched_content}
        disk.truncations = effect.truncations
        self.tell(ev.SnapshotInstalled(snapshot_id, disk.history()))

    def do_DeleteBefore(self, effect: fx.DeleteBefore) -> None:
        disk = self.disk
        assert any(each.offset == effect.offset for each in disk.snapshots), "I15"
        disk.snapshots = {i: c for i, c in disk.snapshots.items() if i.offset >= effect.offset}
        disk.records[: effect.offset] = [GONE] * effect.offset
        disk.start = effect.offset
        disk.flushed = max(disk.flushed, effect.offset)

    def make_snapshot(self, offset: int) -> None:
        """The state machine makes a snapshot of the records below ``offset``.

        It sees whole batches.
        """
        replica = self.replica
        assert replica is not None
        if splits_batch(self.disk.records, offset):
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

    def do_Truncate(self, effect: fx.Truncate) -> None:
        assert effect.end_offset >= max(self.applied, self.disk.start), "I7"
        assert not splits_batch(self.disk.records, effect.end_offset)
        del self.disk.records[effect.end_offset :]
        self.disk.flushed = min(self.disk.flushed, effect.end_offset)
        self.disk.truncations = effect.truncations

    def do_Flush(self, effect: fx.Flush) -> None:
        assert self.flushing is None, "one flush at a time"
        began = (len(self.disk.records), self.disk.truncations)
        if effect.inline and not self.world.disk_held(self.id):
            self.disk.flushed = began[0]
            self.tell(ev.Flushed(*began))
        else:
            self.flushing = began

    def finish_flush(self) -> None:
        """The flush under way completes: what was cut and written anew meanwhile is not in it."""
        if self.flushing is None:
            return
        end_offset, truncations = self.flushing
        self.flushing = None
        if truncations == self.disk.truncations:
            self.disk.flushed = max(self.disk.flushed, end_offset)
        self.step(ev.Flushed(end_offset, truncations))

    def do_AdvanceHighWatermark(self, effect: fx.AdvanceHighWatermark) -> None:
        assert effect.offset > self.applied, "I6"
        self.world.committed(self, max(self.applied, 0), effect.offset)
        self.applied = effect.offset

    def do_AcknowledgedByAll(self, effect: fx.AcknowledgedByAll) -> None:
        self.world.on_all(self, effect.offset)

    def do_RoleChanged(self, effect: fx.RoleChanged) -> None:
        self.stalled = self.control = None

    def do_AnswerReadBarrier(self, effect: fx.AnswerReadBarrier) -> None:
        if effect.error == ErrorCode.NONE:
            self.world.barrier_passed(effect.source, effect.offset)

    def read_barrier(self, timeout_ms: int = 2000) -> None:
        """A reader here asks for what is committed by now, anywhere."""
        barrier = (self.id, len(self.world.log_of_all))
        self.step(ev.ReadBarrierRequested(barrier, timeout_ms))

    def do_Probe(self, effect: fx.Probe) -> None:
        self.probing = effect
        if self.world.answers_probes:
            there = self.world.hosts[effect.voter_id].running
            error = ErrorCode.NONE if there else ErrorCode.NETWORK_EXCEPTION
            self.tell(ev.Probed(effect.probe, error, *((0, 1) if there else ())))
