"""The process under the eyes of the oracles, which see each decision as it is carried out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core.messages import VoteRequest, VoteResponse
from kraftfast.errors import DiskFull, KraftfastError
from kraftfast.log.snapshots.newest_snapshot import clip
from kraftfast.node.failures import Failures
from kraftfast.node.storage.own_directory import stored_state
from kraftfast.sim.machines.process import Process
from kraftfast.sim.oracles.answers import Answers
from kraftfast.sim.require import Violation, require

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.workers import WorkerProcess

STEPS_IN_A_ROW_MAX = 2_000


def leads(process: Process, epoch: int) -> bool:
    """Return whether it leads that epoch, or led it, on the disk that its machine has now."""
    if process.core._state.local != process.machine.key:
        return False
    return process.core.epoch == epoch and process.core.leader_id == process.id


class WatchedFailures(Failures):
    """Ends sessions for what other processes did; what this one should never do ends the run."""

    def end(self, error: Exception, who: str, end: Callable[[], Any]) -> None:
        if isinstance(error, AssertionError) or not isinstance(error, (KraftfastError, OSError)):
            raise error
        super().end(error, who, end)


class WatchedProcess(Process):
    """A process that shows the oracles of its world what it does; else it is a process."""

    # on_all_disks: the core reported that every voter has it on disk.
    # _when_flushed: called once no flush is under way: a cut, or a snapshot in place of the log,
    # comes next. checks_itself: what the core asserts of itself is asked. _asked: votes that were
    # asked of it and not answered, by source. answers: all that it was asked and has not answered.

    on_all_disks = 0
    ticked = False
    checks_itself = True
    _when_flushed: Callable[[], None] | None = None

    def __init__(self, machine: Machine, worker: WorkerProcess | None = None) -> None:
        self._asked: dict[Any, VoteRequest] = {}
        self.answers = Answers(self)
        super().__init__(machine, worker)
        self.failures = WatchedFailures(self)
        self.note_persisted()

    def note_persisted(self) -> None:
        """Note what quorum-state holds (D5)."""
        floor = self.floor.stored
        self.persisted = stored_state(self.disk, self.directory, self.recovered, floor)

    # --- the core -----------------------------------------------------------------------------

    def _decide(self, event: ev.Event) -> list[Any]:
        self.world.trace_step(self, "event", event)
        self.answers.asked(event)
        self.ticked |= type(event) is ev.Tick
        self.world.hand_overs += type(event) is ev.TransferRequested
        if type(event) is ev.SnapshotCreated and self.applier is not None:
            self.world.count("snapshots made")
            if event.snapshot_id.offset > self.log.log_start_offset:
                self.world.oracle.snapshots.created(self, event.snapshot_id)
        if type(event) is ev.RequestReceived and isinstance(event.request, VoteRequest):
            self._asked[event.source] = event.request
        role = self.core.role
        if role == "candidate":
            self.world.oracle.counts_votes(self, self.core.epoch)
        if self.world.early.hears_disks:
            self.world.early.hears(self, event)
        asks = self.core._state.current if role == "prospective" else None
        leader = self.core._state.leader if type(event) is ev.Tick else None
        hands_over = leader is not None and leader.transfer is not None
        effects = super()._decide(event)
        if leader is not None and not hands_over and self.core.role == "resigned":
            self.world.oracle.flushes.resigns(self, leader)
        if asks is not None:
            self.world.early.campaigns(self, asks)
        return effects

    def _check(self, effects: list[Any]) -> None:
        self.steps += 1
        self.steps_in_a_row += 1
        assert self.steps_in_a_row < STEPS_IN_A_ROW_MAX, "L7: one event leads to steps without end"
        if self.checks_itself:
            self.core.check_invariants()
        self.world.trace_effects(self, effects)

    def _carry_out(self, effects: list[Any]) -> None:
        self._check(effects)
        super()._carry_out(effects)

    # --- what leaves --------------------------------------------------------------------------

    def _persist(self, effect: fx.PersistQuorumState) -> None:
        super()._persist(effect)
        self.note_persisted()
        self.world.oracle.persisted(self)

    def _send(self, effect: fx.Send) -> None:
        self.world.oracle.request_leaves(self, effect.request)
        super()._send(effect)

    def _reply(self, effect: fx.Reply) -> None:
        self.answers.answered(effect.source)
        asked = self._asked.pop(effect.source, None)
        if asked and type(effect.response) is VoteResponse and effect.response.vote_granted:
            self.world.early.grants(self, asked)
        if type(effect.response) is VoteResponse and effect.response.has_no_log:
            self.world.early.refuses_without_log(self)
        self.world.oracle.response_leaves(self, asked, effect.response)
        super()._reply(effect)

    def answer_fetch(self, effect: fx.AnswerFetch) -> None:
        self.answers.answered(effect.source)
        self.world.oracle.response_leaves(self, None, effect.response)
        super().answer_fetch(effect)

    def answer_slice(self, effect: fx.AnswerSlice) -> None:
        self.answers.answered(effect.source)
        super().answer_slice(effect)

    def answer_read_barrier(self, effect: fx.AnswerReadBarrier) -> None:
        self.answers.answered(effect.source)
        super().answer_read_barrier(effect)

    def tend(self) -> None:
        super().tend()
        self.world.early.floors(self)

    # --- the log ------------------------------------------------------------------------------

    def close(self) -> None:
        """Let the oracle look at the log once more: a process that paused ends in one turn."""
        self.world.oracle.observe(self)
        super().close()

    def _drain(self, effect: fx.DrainAppends) -> None:
        self.world.oracle.appends(self, effect.epoch)
        self.world.oracle.flushes.drains(self)
        super()._drain(effect)

    def _append_control(self, effect: fx.AppendControl) -> None:
        self.world.oracle.appends(self, effect.epoch)
        self.world.oracle.voters.appends(self, effect)
        super()._append_control(effect)

    def _write_fetched(self, effect: fx.WriteFetched) -> None:
        leader = self.world.machine(self.core.leader_id).process
        if leader is not None and leads(leader, self.core.epoch):
            self.world.early.copies(self, leader)  # else they are of its disk before this one
        super()._write_fetched(effect)
        if self.log.damaged():
            self.world.count("rejected copies")

    def _flush(self, effect: fx.Flush) -> None:
        super()._flush(effect)
        self.world.oracle.flushes.began(self)

    def wait_for_flush(self) -> None:
        super().wait_for_flush()
        call, self._when_flushed = self._when_flushed, None
        if call is not None:
            call()

    def _truncate(self, effect: fx.Truncate) -> None:
        self.world.early.asks(self)
        self.world.early.cuts(self, effect.end_offset)
        self._when_flushed = lambda: self.world.oracle.truncates(self, effect.end_offset)
        super()._truncate(effect)
        self.world.oracle.truncated(self)

    def install_snapshot(self, effect: fx.InstallSnapshot) -> None:
        oracle = self.world.oracle.snapshots
        self.world.early.cuts(self, effect.snapshot_id.offset)
        self._when_flushed = lambda: oracle.installs(self, effect.snapshot_id)
        super().install_snapshot(effect)
        oracle.installed(self, effect.snapshot_id)

    def delete_before(self, effect: fx.DeleteBefore) -> None:
        try:
            super().delete_before(effect)
        except DiskFull as error:
            raise Violation(
                f"D25: {self.id} ends of a full disk that it makes room on: {error}"
            ) from error
        if clip(self.log.epochs, self.log.segments[0].base_offset, 1 << 62) != self.log.epochs:
            self.world.count("log starts moved on a full disk")
        self.world.oracle.snapshots.deleted_before(self, effect.offset)

    # --- what others see ----------------------------------------------------------------------

    def advance_high_watermark(self, effect: fx.AdvanceHighWatermark) -> None:
        self.world.oracle.advances(self, effect.offset)
        super().advance_high_watermark(effect)

    def acknowledged_by_all(self, effect: fx.AcknowledgedByAll) -> None:
        self.world.oracle.acknowledged_by_all(self, effect.offset)
        self.on_all_disks = effect.offset
        super().acknowledged_by_all(effect)

    def _commit(self, offset: int) -> None:
        told_early = self.durability == "all" and offset > self.on_all_disks
        require(not told_early, f"durability=all: {self.id} tells {offset} by {self.on_all_disks}")
        super()._commit(offset)

    def _role_changed(self, effect: fx.RoleChanged) -> None:
        if effect.role == "leader":
            self.world.oracle.elected(self, effect.epoch)
        super()._role_changed(effect)

    def voters_changed(self, effect: fx.VotersChanged) -> None:
        super().voters_changed(effect)
        self.world.oracle.voters.changed(self, effect)

    def warn(self, effect: fx.Warn) -> None:
        self.world.count("refusals that were reported")
        super().warn(effect)
