"""The door of producers: what ``Sockets`` is to a replica in production, for simulated clients."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode
from kraftfast.sim.paged_file import append_batch

if TYPE_CHECKING:
    from kraftfast.sim.clients import Append
    from kraftfast.sim.process import Process


class Door:
    """What producers handed over, until each is told what became of it."""

    # queue: what the log has not taken. runs: taken and not committed, in offset order.
    # answered: producers were told of everything below.

    def __init__(self, process: Process) -> None:
        self.process = process
        self.queue: deque[Append] = deque()
        self.runs: deque[Append] = deque()
        self.answered = -1

    def turn(self) -> None:
        """Have the core look at producers (``Loop.turn``)."""
        process = self.process
        if self.queue and not process.appends_held:
            before = process.log.bytes_appended
            process.step(ev.AppendsQueued())
            if process.log.bytes_appended == before and self.queue:
                process.hold_appends()  # the core takes none now (D14)

    # --- what the node calls ------------------------------------------------------------------

    def goes_first(self) -> bool:
        """Whether these producers come before those with rings, of which there are none."""
        return True

    def drain(self, log: Any, epoch: int, bytes_max: int) -> None:
        """Append what waits, as long as there is room."""
        end = log.bytes_appended + bytes_max
        while self.queue and log.bytes_appended < end:
            if not self._append(log, self.queue[0], epoch):
                break
            self.queue.popleft()
        self.commit(self.answered)  # duplicates of what is committed already

    def _append(self, log: Any, append: Append, epoch: int) -> bool:
        """Try to append one batch; False if there is no room for it yet."""
        world, base_offset = self.process.world, log.end_offset
        if append_batch(log, append.batch, epoch):
            assert not append.poisoned, "D20: a batch that does not check was taken"
            append.taken(base_offset, log.end_offset)
            self.runs.append(append)
        elif log.refusal == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            world.count("duplicates")
            append.taken(log.producers.original_offset, log.producers.original_end)
            self.runs.append(append)
        elif log.refusal:
            append.refused_by(ErrorCode(log.refusal), world.now_us)
        elif log.damaged() or log.cut_off():  # a batch that does not check is refused
            assert append.poisoned, f"a good batch was refused: {log.fault_text()}"
            append.refused(world.now_us)
        else:
            return False
        return True

    def commit(self, offset: int) -> None:
        """Acknowledge everything below ``offset``."""
        self.answered = offset
        while self.runs and self.runs[0].end_offset <= offset:
            self.runs.popleft().acknowledged(self.process.world.now_us)

    def refuse_appends(self, error: ErrorCode, leader_id: int) -> None:
        """Refuse what waits: nothing of it was appended."""
        while self.queue:
            self.queue.popleft().refused(self.process.world.now_us, leader_id)

    def left_leadership(self, leader_id: int) -> None:
        """What was appended has an unknown outcome now."""
        self.refuse_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id)
        while self.runs:
            self.runs.popleft().lost_sight_of(self.process.world.now_us)

    def vanish(self) -> None:
        """The process is no more; all that it was given has an unknown outcome."""
        for append in (*self.runs, *self.queue):
            append.lost_sight_of(self.process.world.now_us)
        self.runs.clear()
        self.queue.clear()


class SimProber:
    """Asks voters for their versions: ``kraftfast.node.prober.Prober``."""

    def __init__(self, process: Process) -> None:
        self.process = process

    def probe(self, effect: fx.Probe) -> None:
        """Ask; ``Probed`` follows."""
        self.process.world.network.probe(self.process, effect)
