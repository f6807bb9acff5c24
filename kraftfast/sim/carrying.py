"""What a simulated process does about each effect of its core, in order.

The counterpart of the handlers in ``kraftfast.node.node``; what it reports back are further events.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.messages import FetchResponse
from kraftfast.core.quorum_state import QuorumState
from kraftfast.core.replica import Replica
from kraftfast.errors import ErrorCode
from kraftfast.node.control_records import appended, batch_of
from kraftfast.node.own_directory import state_to_write, stored_state
from kraftfast.node.voter_records import copied_controls
from kraftfast.sim.network import Link, Source
from kraftfast.sim.paged_file import SteppedFlush, append_batch
from kraftfast.sim.records import Records, Reference

if TYPE_CHECKING:
    from kraftfast.core.config import QuorumConfig
    from kraftfast.log.directory import ReplicaDirectory
    from kraftfast.log.recovery import Recovered
    from kraftfast.node.floor import CommittedFloor
    from kraftfast.node.producer_ids import ProducerIds
    from kraftfast.node.snapshots import Snapshots
    from kraftfast.sim.beside import Around
    from kraftfast.sim.clients import Append
    from kraftfast.sim.disk import SimDisk
    from kraftfast.sim.machine import Machine
    from kraftfast.sim.settings import Settings
    from kraftfast.sim.state_machine import SimStateMachine
    from kraftfast.sim.world import World
    from kraftfast.types import OffsetAndEpoch

BLOCKED = object()
"""What a handler returns whose process waits for its disk; it is called again then."""
HANGS_US = 2_000  # until a flush that hangs is looked at again
INLINE_BYTES_MAX = 512  # answers up to here travel as bytes


def log_is_full(log: Any) -> bool:
    """Whether the nursery could not prepare what it was asked for."""
    return log.error is not None


class Carrying:
    """The half of a :class:`~kraftfast.sim.process.Process` that carries effects out."""

    id: int
    world: World
    settings: Settings
    machine: Machine
    disk: SimDisk
    durability: str
    directory: ReplicaDirectory
    recovered: Recovered
    floor: CommittedFloor
    log: Any  # the real Log
    config: QuorumConfig
    core: Replica
    flush: SteppedFlush
    links: dict[int, Link]
    at_hand: tuple[Link, Records] | None  # of the answer that is being handled, for WriteFetched
    stalled: tuple[Link, Records, fx.WriteFetched] | None  # a copy that waits for the nursery
    stalled_ms: int  # since when
    control: fx.AppendControl | None  # a control batch of this epoch, while the log has no room
    appends_held: bool  # producers are left alone until there is room
    answered: int  # producers were told of everything below
    queue: deque[Append]  # what producers handed over and the log has not taken
    runs: deque[Append]  # taken and not committed, in offset order
    around: Around  # what the node's parts see of this process
    snapshots: Snapshots  # the real one
    names: ProducerIds  # likewise
    state_machine: SimStateMachine | None
    persisted: QuorumState | None  # what quorum-state holds (D5)
    state_path: str  # of quorum-state
    stopped: bool  # a graceful shutdown is complete
    _events: deque[ev.Event]  # for the core, once the effects before them are carried out

    # --- effects: what leaves -----------------------------------------------------------------

    def _assert_after(self, after: fx.After) -> None:
        if type(after) is fx.Persisted:
            assert self.persisted is not None and self.persisted.epoch >= after.epoch, "D5"
        elif type(after) is fx.FlushedTo:
            assert self.log.flushed_end_offset >= after.end_offset, "D3"

    def _do_PersistQuorumState(self, effect: fx.PersistQuorumState) -> None:
        data = state_to_write(effect, self.machine.voters.ids)
        self.disk.replace_file(self.state_path, data)
        floor = self.floor.stored
        self.persisted = stored_state(self.disk, self.directory, self.recovered, floor)
        self.world.oracle.persisted(self)

    def _do_Send(self, effect: fx.Send) -> None:
        self._assert_after(effect.after)
        self.world.oracle.request_leaves(self, effect.request)
        link = self.links.get(effect.peer_id)
        if link is None or not link.ask(self, effect.correlation, effect.request):
            if effect.correlation:
                error = ErrorCode.BROKER_NOT_AVAILABLE
                self._events.append(ev.RequestFailed(effect.peer_id, effect.correlation, error))

    def _do_Reply(self, effect: fx.Reply) -> None:
        self._assert_after(effect.after)
        self.world.oracle.response_leaves(self, effect.source, effect.response)
        effect.source.reply(effect.response)

    def _do_AnswerFetch(self, effect: fx.AnswerFetch) -> None:
        response, source = effect.response, effect.source
        self.world.oracle.response_leaves(self, source, response)
        if response.stream:
            end_offset = self._push(source, response, effect)
            if effect.read_offset >= 0:
                self.core.sent(source.peer_id, response.stream, end_offset)
            return
        records = None
        if effect.read_offset >= 0:
            bound = min(effect.max_bytes, self.settings.fetch_max_bytes)
            found = self.log.locate(effect.read_offset, bound, effect.read_end_offset)
            if found is not None:
                segment, position, length = found
                records = Records(bytes(segment.file.view(position, position + length)), False)
        self._answer(source, response, records)

    def _push(self, source: Source, response: FetchResponse, effect: fx.AnswerFetch) -> int:
        """Onto a ring; how far the records go that it took."""
        read_offset, link = effect.read_offset, source.link
        if not link.has_room(self):
            return read_offset
        records, end_offset = None, read_offset
        if 0 <= read_offset < self.log.end_offset:
            below = effect.read_end_offset
            found = self.log.locate(read_offset, effect.max_bytes, below)
            if found is None:
                return read_offset
            segment, position, length = found
            end_offset = self.log.span(segment, position, length, below)[1]
            by_reference = self.settings.references and segment is self.log.active
            if by_reference and length > INLINE_BYTES_MAX:
                records = Reference(self.machine, segment, position, length)
                response.records_bytes = length
            else:
                records = Records(bytes(segment.file.view(position, position + length)), True)
        self._answer(source, response, records)
        return end_offset

    def _answer(self, source: Source, response: FetchResponse, records: Records | None) -> None:
        if records is not None and records.data:
            records.data = self.world.nemesis.on_the_wire(source, records.data)
            response.records_bytes = len(records.data)
        source.reply(response, records)

    # --- effects: the log ---------------------------------------------------------------------

    def _do_DrainAppends(self, effect: fx.DrainAppends) -> None:
        log, before = self.log, self.log.bytes_appended
        self.world.oracle.appends(self, effect.epoch)
        self.world.oracle.flushes.drains(self)
        self.names.drain(log, effect.epoch)
        while self.queue and log.bytes_appended - before < effect.max_bytes:
            append = self.queue[0]
            base_offset = log.end_offset
            if append_batch(log, append.batch, effect.epoch):
                assert not append.poisoned, "D20: a batch that does not check was taken"
                append.taken(base_offset, log.end_offset)
                self.runs.append(append)
            elif log.refusal == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                self.world.count("duplicates")
                append.taken(log.producers.original_offset, log.producers.original_end)
                self.runs.append(append)
            elif log.refusal:
                append.refused_by(ErrorCode(log.refusal), self.world.now_us)
            elif log.damaged() or log.cut_off():  # a batch that does not check is refused
                assert append.poisoned, f"a good batch was refused: {log.fault_text()}"
                append.refused(self.world.now_us)
            else:
                break
            self.queue.popleft()
        taken = log.bytes_appended - before
        self._commit(self.answered)  # duplicates of what is committed already
        if taken == 0:
            self.hold_appends()
        self._events.append(ev.Appended(effect.epoch, log.end_offset, taken))

    def hold_appends(self) -> None:
        """Leave producers alone until there is room; on a full disk they are refused."""
        self.appends_held = True
        if log_is_full(self.log):
            self._refuse_queue(-1)

    def _do_RefuseAppends(self, effect: fx.RefuseAppends) -> None:
        self._refuse_queue(effect.leader_id)

    def _do_AppendControl(self, effect: fx.AppendControl) -> None:
        """The first of an epoch, or another voter set; it waits for room like any other."""
        batch = batch_of(effect, self.now_ms())
        self.world.oracle.appends(self, effect.epoch)
        self.world.oracle.voters.appends(self, effect)
        if self.log.append(batch, effect.epoch, True):
            self.control = None
            self._events.append(appended(effect, self.log.end_offset, len(batch)))
        else:
            self.control = effect

    def _do_WriteFetched(self, effect: fx.WriteFetched) -> None:
        assert self.log.end_offset == effect.offset, "a copy goes to the log's end"
        assert self.at_hand is not None
        link, records = self.at_hand
        self.at_hand = None
        self.copy(link, records, effect)

    def copy(self, link: Link, records: Records, effect: fx.WriteFetched) -> None:
        """Into the log, if it has room; else this is called again."""
        log = self.log
        before, began_at = log.bytes_appended, log.end_offset
        whole, rejected = records.copy(self, effect.epoch)
        if not whole and not rejected and log.end_offset == began_at:
            if self.stalled is None:
                self.stalled_ms = self.now_ms()
            self.stalled = (link, records, effect)  # the nursery is behind
            return
        self.stalled = None
        if rejected:
            self.world.count("rejected copies")
        epochs = tuple(entry for entry in log.epochs if entry[1] >= began_at)
        size = log.bytes_appended - before
        controls = copied_controls(log, began_at)
        self._events.append(ev.FetchedWritten(log.end_offset, size, epochs, not whole, controls))

    def _do_Truncate(self, effect: fx.Truncate) -> Any:
        if self.flush.running:
            return BLOCKED  # its end would raise `flushed` again above the cut (D2)
        self.world.oracle.truncates(self, effect.end_offset)
        self.log.truncate(effect.end_offset)
        self.world.oracle.truncated(self)
        assert self.log.truncations == effect.truncations, "D2: the core counts along"
        return None

    # --- effects: snapshots -------------------------------------------------------------------

    def _do_AnswerSnapshot(self, effect: fx.AnswerSnapshot) -> None:
        self.snapshots.answer(effect)

    def _do_WriteSnapshot(self, effect: fx.WriteSnapshot) -> None:
        self.snapshots.write(effect)

    def _do_InstallSnapshot(self, effect: fx.InstallSnapshot) -> Any:
        if self.flush.running:
            return BLOCKED  # its end would call flushed what is gone (D2)
        oracle = self.world.oracle.snapshots
        oracle.installs(self, effect.snapshot_id)
        self.snapshots.install(effect)
        oracle.installed(self, effect.snapshot_id)
        return None

    def _do_DeleteBefore(self, effect: fx.DeleteBefore) -> None:
        self.snapshots.delete_before(effect)
        self.world.oracle.snapshots.deleted_before(self, effect.offset)

    def snapshot_made(self, snapshot_id: OffsetAndEpoch) -> None:
        """By the state machine: the core is told, if nothing later took its place meanwhile."""
        if snapshot_id.offset > self.log.log_start_offset:
            self.world.oracle.snapshots.created(self, snapshot_id)
        self.snapshots.created(snapshot_id)

    # --- effects: flushes ---------------------------------------------------------------------

    def _do_Flush(self, effect: fx.Flush) -> None:
        self.flush.ask(self.log)
        self.world.oracle.flushes.began(self)  # type: ignore[arg-type]
        if not effect.inline:
            self._flush_later()
            return
        state = 1
        while state > 0:
            state = self.flush.step(self.disk)
        self._flushed(-state)

    def _flush_later(self) -> None:
        self.world.later(self.disk_delay_us(), self.enter, self.flush_step)

    def flush_step(self) -> None:
        """One step of the flusher's thread."""
        if self.machine.flushes_hang:
            self.world.later(HANGS_US, self.enter, self.flush_step)
            return
        state = self.flush.step(self.disk)
        if state > 0:
            self._flush_later()
            return
        self._flushed(-state)
        self.go_on()

    def _flushed(self, error: int) -> None:
        self.flush.finish(self.log, error)
        self._events.append(ev.Flushed(self.log.flushed_end_offset, self.flush.truncations))

    # --- effects: what others see -------------------------------------------------------------

    def _do_AdvanceHighWatermark(self, effect: fx.AdvanceHighWatermark) -> None:
        self.world.oracle.advances(self, effect.offset)
        if self.state_machine is not None:
            self.state_machine.committed(effect.offset)
        if self.durability != "all":
            self._commit(effect.offset)
        for callback in self.around.on_commit:
            callback(effect.offset)

    def _do_AcknowledgedByAll(self, effect: fx.AcknowledgedByAll) -> None:
        self.world.oracle.acknowledged_by_all(self, effect.offset)
        self._commit(min(effect.offset, self.core.high_watermark))

    def _commit(self, offset: int) -> None:
        self.answered = offset
        while self.runs and self.runs[0].end_offset <= offset:
            self.runs.popleft().acknowledged(self.world.now_us)
        self.names.commit(offset)

    def _do_RoleChanged(self, effect: fx.RoleChanged) -> None:
        if effect.role == "leader":
            self.world.oracle.elected(self, effect.epoch)
        else:
            self._refuse_queue(effect.leader_id)
            while self.runs:
                self.runs.popleft().lost_sight_of(self.world.now_us)
        self.control = None
        for callback in self.around.on_role:
            callback(effect)
        if self.stalled is not None:  # what was not written by now is not wanted any more
            self.stalled = None
            self.world.later(1, self.enter, self.read_on)

    def _refuse_queue(self, leader_id: int) -> None:
        while self.queue:
            self.queue.popleft().refused(self.world.now_us, leader_id)

    def _do_VotersChanged(self, effect: fx.VotersChanged) -> None:
        self.world.oracle.voters.changed(self, effect)

    def _do_Probe(self, effect: fx.Probe) -> None:
        self.world.network.probe(self, effect)

    def _do_AnswerReadBarrier(self, effect: fx.AnswerReadBarrier) -> None:
        effect.source.answered(effect.offset, effect.error)

    def _do_Warn(self, effect: fx.Warn) -> None:
        self.world.count("refusals that were reported")

    def _do_Stopped(self, effect: fx.Stopped) -> None:
        self.stopped = True
