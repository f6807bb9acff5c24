"""One process of a test: a replica, and what its executor acts on: values, in place of a log,
links and clients.

What becomes of an effect says ``kraftfast/node/executor.py``, as in production.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.messages import FetchRequest, Request, Response
from kraftfast.core.replica import Replica
from kraftfast.errors import ErrorCode
from kraftfast.node.executor import Executor
from kraftfast.types import ElectionState, KRaftVersion, KRaftVoters, LeaderChange, OffsetAndEpoch
from tests.core.disk import (
    GONE,
    RECORD_BYTES,
    Disk,
    Message,
    Origin,
    Record,
    controls_of,
    filed_from,
    splits_batch,
)

if TYPE_CHECKING:
    from tests.core.world import World

BETWEEN_STEPS = (
    "stalled", "stalled_ms", "control", "persisted_epoch", "flush_wanted", "stopped",
)  # fmt: skip
"""What an executor remembers, in a copy of a host."""
MADE_ANEW = {"_events", "_handlers", "_running", "lost"}
"""What a copy of an executor has of its own; it stands in ``vars`` of one that is interpreted."""


class Wire:
    """A link to a peer: what it takes is under way in the world."""

    def __init__(self, host: Host, peer_id: int) -> None:
        self.host, self.peer_id = host, peer_id

    def send_request(self, correlation: int, request: Request) -> bool:
        host = self.host
        if isinstance(request, FetchRequest) and not request.in_memory:
            assert request.fetch_offset <= host.disk.flushed, "I11"
        host.world.send(Message(host.id, self.peer_id, correlation, request, True))
        return True

    def failed(self, error: Exception) -> None:
        raise error

    def publish(self) -> None:
        """It is under way."""

    def close(self) -> None:
        """It stands as long as the world."""


class Host(Executor):
    """One process: a replica, its disk, and what the loop around it would hold.

    In this world a host is found by its id, and no test looks at what is reported to operators.
    """

    def __init__(self, world: World, id: int) -> None:
        super().__init__()
        self.world = world
        self.id = id
        self.disk = Disk()
        self.replica: Replica | None = None
        self.queued = 0  # records that producers have waiting
        self.flushing: tuple[int, int] | None = None  # end and truncations when it began
        self.reject_next = False
        self.no_room = False  # the log has no room
        self.applied = -1  # the highest committed offset that was handed out
        self.probing: fx.Probe | None = None  # the latest
        self.fetched_bytes = 0  # of the snapshot on its way here
        self.fetched_content: tuple[KRaftVersion | KRaftVoters, ...] = ()
        self.slices_held = 0  # AnswerSnapshots that have not left yet
        self.title = ""  # of the next step, where a test says more than its event does
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
        self.forget()
        self.persisted_epoch = self.disk.quorum_state.epoch if self.disk.quorum_state else 0
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
        self.begin_with(self.looked_at("start", self.replica.start(world.now_of(self.id))))

    def crash(self, keep: int | None = 0) -> None:
        """The process dies; ``keep`` unflushed records survive, all of them if None."""
        self.replica = None
        self.flushing = None
        self.forget()
        if keep is not None:
            self.disk.lose_power(keep)
        self.world.forget(self.id)

    def forget(self) -> None:
        """Forget what an executor remembers, as its process ends with it."""
        self._events.clear()
        self.stalled = self.control = None
        self.stalled_ms = self.persisted_epoch = 0
        self.flush_wanted = self.stopped = self.lost = False

    def __getstate__(self) -> dict[str, Any]:
        """Return what a copy is made of: what this holds, and what the executor remembers."""
        state = {name: getattr(self, name) for name in BETWEEN_STEPS}
        own = vars(self).items()
        return state | {name: value for name, value in own if name not in MADE_ANEW}

    def __setstate__(self, state: dict[str, Any]) -> None:
        Executor.__init__(self)
        for name, value in state.items():
            setattr(self, name, value)

    # --- the core ---

    def now_ms(self) -> int:
        return self.world.now_of(self.id)

    def step(self, event: ev.Event, title: str = "") -> None:
        """Let an event happen; a host that is down notices none."""
        if self.replica is not None:
            self.title = title
            super().step(event)

    def run_events(self) -> None:
        """Handle what was queued; then what the core wants flushed at once is."""
        super().run_events()
        if not self._running:
            self.flush_inline()

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        assert self.replica is not None
        now_ms = self.now_ms()
        if isinstance(event, ev.Tick):
            self.ticks = (now_ms, self.ticks[1] + 1 if self.ticks[0] == now_ms else 1)
            assert self.ticks[1] < 100, f"L7: replica {self.id} is busy for ever"
        title, self.title = self.title or self.world.describe_event(event), ""
        return self.looked_at(title, self.replica.step(event, now_ms))

    def looked_at(self, title: str, effects: list[fx.Effect]) -> list[fx.Effect]:
        """Check and note one step of the core, before anything that it wants is done."""
        assert self.replica is not None
        self.replica.check_invariants()
        self.check_history()
        self.world.log_step(self.id, title, effects)
        return effects

    def _carry_out(self, effects: list[fx.Effect]) -> None:
        super()._carry_out(effects)
        if self.world.keeps_floors and self.replica is not None:
            known = min(self.replica.uncuttable_offset, self.disk.flushed)
            self.disk.floor = max(self.disk.floor, known)

    def check_history(self) -> None:
        """I16: the voter sets are those of snapshot and log, up to what the core knows of."""
        assert self.replica is not None
        replayed = self.disk.history()
        replayed.truncate_to(self.replica.end_offset)
        if self.replica.log_start_offset == self.disk.start:  # else DeleteBefore is on its way
            assert filed_from(self.replica.history, self.disk.start) == replayed, "I16"

    # --- messages ---

    def _assert_after(self, after: fx.After) -> None:
        super()._assert_after(after)
        if isinstance(after, fx.Persisted):  # by the disk, not by what the executor noted
            assert self.disk.quorum_state is not None
            assert self.disk.quorum_state.epoch >= after.epoch, "I10"

    def write_quorum_state(self, effect: fx.PersistQuorumState) -> None:
        self.disk.quorum_state = ElectionState(
            effect.epoch, effect.leader_id, effect.voted, effect.superseded, effect.was_voter
        )

    def link_for(self, effect: fx.Send) -> Wire:
        return Wire(self, effect.peer_id)

    def reply_to(self, source: Origin, response: Response) -> None:
        self.world.send(Message(self.id, source.peer_id, source.correlation, response, False))

    def answer_fetch(self, effect: fx.AnswerFetch) -> None:
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
                self.queue(ev.StreamAnswered(origin.peer_id, effect.response.stream, end))
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

    def answer_read_barrier(self, effect: fx.AnswerReadBarrier) -> None:
        if effect.error == ErrorCode.NONE:
            self.world.barrier_passed(effect.source, effect.offset)

    def read_barrier(self, timeout_ms: int = 2000) -> None:
        """A reader here asks for what is committed by now, anywhere."""
        barrier = (self.id, len(self.world.log_of_all))
        self.step(ev.ReadBarrierRequested(barrier, timeout_ms))

    def probe(self, effect: fx.Probe) -> None:
        self.probing = effect
        if self.world.answers_probes:
            there = self.world.hosts[effect.voter_id].running
            error = ErrorCode.NONE if there else ErrorCode.NETWORK_EXCEPTION
            self.queue(ev.Probed(effect.probe, error, *((0, 1) if there else ())))

    # --- producers, and what is reported ---

    def _drain(self, effect: fx.DrainAppends) -> None:
        super()._drain(effect)
        if self.queued:
            self.queue(ev.AppendsQueued())

    def take_appends(self, effect: fx.DrainAppends) -> int:
        count = min(self.queued, max(1, effect.max_bytes // RECORD_BYTES))
        self.queued -= count
        for _ in range(count):
            self.disk.records.append(Record(effect.epoch, self.world.new_value(self.id)))
        return count * RECORD_BYTES

    def refuse_appends(self, effect: fx.RefuseAppends) -> None:
        self.queued = 0

    def advance_high_watermark(self, effect: fx.AdvanceHighWatermark) -> None:
        assert effect.offset > self.applied, "I6"
        self.world.committed(self, max(self.applied, 0), effect.offset)
        self.applied = effect.offset

    def acknowledged_by_all(self, effect: fx.AcknowledgedByAll) -> None:
        self.world.on_all(self, effect.offset)

    def _of_no_consequence(self, effect: fx.Effect) -> None:
        pass

    role_changed = voters_changed = leader_moved = warn = _of_no_consequence

    # --- the log ---

    def end_offset(self) -> int:
        return len(self.disk.records)

    def flushed_end_offset(self) -> int:
        return self.disk.flushed

    def append_control(self, effect: fx.AppendControl) -> ev.Appended | None:
        if self.no_room:
            return None
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
        size, controls = len(effect.records) * RECORD_BYTES, controls_of(self.disk.records, began)
        return ev.Appended(effect.epoch, len(self.disk.records), size, controls)

    def copy_fetched(self, effect: fx.WriteFetched) -> ev.FetchedWritten | None:
        if self.no_room:
            return None
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
        end, controls = len(self.disk.records), controls_of(self.disk.records, began)
        return ev.FetchedWritten(end, written * RECORD_BYTES, tuple(epochs), rejected, controls)

    def room_again(self) -> None:
        """The log has room: what waited for it is written."""
        self.no_room = False
        self.go_on_with_waiting()

    def truncate_log(self, end_offset: int) -> int:
        disk = self.disk
        assert end_offset >= max(self.applied, disk.start), "I7"
        assert not splits_batch(disk.records, end_offset)
        del disk.records[end_offset:]
        disk.flushed = min(disk.flushed, end_offset)
        disk.truncations += 1
        return disk.truncations

    def begin_flush(self) -> None:
        assert self.flushing is None, "one flush at a time"
        self.flushing = (len(self.disk.records), self.disk.truncations)

    def run_flush(self) -> None:
        if self.world.disk_held(self.id):
            self.begin_flush()
            return
        self.disk.flushed = len(self.disk.records)
        self.queue(ev.Flushed(self.disk.flushed, self.disk.truncations))

    def wait_for_flush(self) -> None:
        """Let it end after the cut, which the core must bear (D2)."""

    def finish_flush(self) -> None:
        """The flush under way completes: what was cut and written anew meanwhile is not in it."""
        if self.flushing is None:
            return
        end_offset, truncations = self.flushing
        self.flushing = None
        if truncations == self.disk.truncations:
            self.disk.flushed = max(self.disk.flushed, end_offset)
        self.step(ev.Flushed(end_offset, truncations))

    # --- snapshots ---

    def answer_slice(self, effect: fx.AnswerSlice) -> None:
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
            self.queue(ev.SliceAnswered())

    def write_slice(self, effect: fx.WriteSlice) -> None:
        assert effect.position == (self.fetched_bytes if effect.position else 0)
        rejected, self.reject_next = self.reject_next, False
        self.fetched_bytes = effect.position + effect.payload.body.records_bytes
        self.fetched_content = effect.payload.snapshot
        self.queue(ev.SliceWritten(effect.snapshot_id, self.fetched_bytes, rejected))

    def install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        snapshot_id = effect.snapshot_id
        assert self.fetched_bytes == self.world.snapshot_bytes(snapshot_id)
        rejected, self.reject_next = self.reject_next, False
        if rejected:
            self.queue(ev.SnapshotInstalled(snapshot_id, VoterHistory(), True))
            return
        assert snapshot_id.offset >= self.applied, "I7"
        disk = self.disk
        disk.records = [GONE] * snapshot_id.offset
        disk.start = disk.flushed = snapshot_id.offset
        disk.snapshots = {snapshot_id: self.fetched_content}
        disk.truncations += 1
        assert disk.truncations == effect.truncations, "D2: the core counts along"
        self.queue(ev.SnapshotInstalled(snapshot_id, disk.history()))

    def delete_before(self, effect: fx.DeleteBefore) -> None:
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
