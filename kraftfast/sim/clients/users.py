"""A state machine and a producer that are the user's own: for ``kraftfast.testing.simulated``."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.errors import KraftfastError
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.state_machine import StateMachine, makes_snapshots
from kraftfast.record import pure
from kraftfast.record.batch import batch_at
from kraftfast.sim.clients.idempotent import PRODUCER_ID, Batch, IdempotentProducer
from kraftfast.sim.clients.state_machine import SimStateMachine

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process


class UsersMachine(SimStateMachine):
    """A process's own object of the user's class, told what the node's applier would tell it."""

    # _changes: (after offset, leader id, epoch), in order; _told: the last of them.

    def __init__(self, process: Process, machine: StateMachine) -> None:
        self.machine = machine
        self.makes_snapshots = makes_snapshots(machine)
        self._changes: deque[tuple[int, int, int]] = deque()
        self._told = (-1, 0)
        super().__init__(process)
        process.on_role.append(self._role_changed)

    def close(self) -> None:
        super().close()
        self.machine.begin_shutdown()

    def _take(self, batch: bytes) -> None:
        view = batch_at(batch)
        if not view.is_control:
            self._call(self.machine.apply, view)
        self._pass_on_changes()

    def _write(self, writer: SnapshotWriter) -> None:
        with writer.lent():
            self.machine.snapshot(writer)

    def _read(self, reader: SnapshotReader) -> tuple[int, int]:
        with reader.lent():
            self._call(self.machine.restore, reader)
        reader.check()
        assert reader.snapshot_id is not None
        offset = reader.snapshot_id.offset
        return offset, self.world.oracle.snapshots.states[offset]

    def _role_changed(self, effect: Any) -> None:
        told = effect.leader_id, effect.epoch
        if told != self._told and effect.role != "resigned":
            self._told = told
            after = max(self.process.core.epoch_start_offset, 0)
            self._changes.append((after, *told))
            self.process.beside_later(self._pass_on_changes)

    def _pass_on_changes(self) -> None:
        while self._changes and self._changes[0][0] <= self.applied:
            _, leader_id, epoch = self._changes.popleft()
            self._call(self.machine.leader_changed, leader_id, epoch)

    def _call(self, method: Callable[..., object], *arguments: Any) -> None:
        """Call the user's code: what it raises is its own, and no end of a replica."""
        try:
            method(*arguments)
        except KraftfastError as error:
            raise RuntimeError(f"the state machine raised {error!r}") from error


class UsersProducer(IdempotentProducer):
    """Appends what it is told to, and nothing of its own account."""

    def start(self) -> None:
        """Wait to be told."""

    def place_of(self, logical: Batch) -> int:
        """Return the offset of a batch that is committed, -1 of another."""
        oracle = self.world.oracle
        for batch in pure.batches(oracle.content(0, oracle.committed_end)):
            if batch.producer_id == PRODUCER_ID + self.id:
                if batch.base_sequence == logical.sequence:
                    return batch.base_offset
        return -1
