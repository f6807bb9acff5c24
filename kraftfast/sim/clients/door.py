"""The door of simulated producers, beside the ``Sockets`` of a replica."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from kraftfast.errors import ErrorCode
from kraftfast.node.tcp.sockets import Sockets
from kraftfast.sim.machines.paged_file import append_batch

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.node.loop import Loop
    from kraftfast.sim.clients.clients import Append
    from kraftfast.sim.machines.process import Process


class Door:
    """What producers handed over, until each is told what became of it."""

    # queue: what the log has not taken. runs: taken and not committed, in offset order.
    # answered: producers have answers for everything below.

    def __init__(self, process: Process) -> None:
        self.process = process
        self.queue: deque[Append] = deque()
        self.runs: deque[Append] = deque()
        self.answered = -1

    # --- what the node calls ------------------------------------------------------------------

    def drain(self, log: Log, epoch: int, bytes_max: int) -> None:
        """Append what waits, as long as there is room."""
        end = log.bytes_appended + bytes_max
        while self.queue and log.bytes_appended < end:
            if not self._append(log, self.queue[0], epoch):
                break
            self.queue.popleft()
        self.commit(self.answered)  # duplicates of what is committed already

    def _append(self, log: Log, append: Append, epoch: int) -> bool:
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
        """Note that what was appended has an unknown outcome now."""
        self.refuse_appends(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id)
        while self.runs:
            self.runs.popleft().lost_sight_of(self.process.world.now_us)

    def vanish(self) -> None:
        """End the process; all that it was given has an unknown outcome."""
        for append in (*self.runs, *self.queue):
            append.lost_sight_of(self.process.world.now_us)
        self.runs.clear()
        self.queue.clear()


class DoorSockets(Sockets):
    """The TCP side of a replica, with a door for simulated producers beside it."""

    def __init__(self, node: Process, loop: Loop) -> None:
        super().__init__(node, loop)
        self.door = node.door

    def appends_waiting(self) -> bool:
        return super().appends_waiting() or bool(self.door.queue)

    def drain(self, log: Log, epoch: int, bytes_max: int) -> None:
        before = log.bytes_appended
        super().drain(log, epoch, bytes_max)
        self.door.drain(log, epoch, before + bytes_max - log.bytes_appended)

    def refuse_appends(self, error: ErrorCode, leader_id: int) -> None:
        super().refuse_appends(error, leader_id)
        self.door.refuse_appends(error, leader_id)

    def left_leadership(self, leader_id: int) -> None:
        super().left_leadership(leader_id)
        self.door.left_leadership(leader_id)

    def commit(self, offset: int) -> None:
        super().commit(offset)
        self.door.commit(offset)
