"""A state machine and a producer that are the user's own: for ``kraftfast.testing.simulated``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraftfast.errors import KraftfastError
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.state_machine import StateMachine, makes_snapshots
from kraftfast.record import pure
from kraftfast.record.batch import BatchView
from kraftfast.sim.clients.idempotent import PRODUCER_ID, Batch, IdempotentProducer


class UsersMachine(StateMachine):
    """Hands everything to the user's own object: what that raises is no error of the replica."""

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine

    def apply(self, batch: BatchView) -> None:
        _call(self.machine.apply, batch)

    def query(self, *args: Any, **never: Any) -> Any:
        return self.machine.query(*args, **never)

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        _call(self.machine.leader_changed, leader_id, epoch)

    def begin_shutdown(self) -> None:
        _call(self.machine.begin_shutdown)


class UsersSnapshotMachine(UsersMachine):
    """One whose state goes into snapshots."""

    def snapshot(self, writer: SnapshotWriter) -> None:
        self.machine.snapshot(writer)

    def restore(self, reader: SnapshotReader) -> None:
        _call(self.machine.restore, reader)


def users_machine(machine: StateMachine) -> UsersMachine:
    """Return what a replica applies its log to."""
    return (UsersSnapshotMachine if makes_snapshots(machine) else UsersMachine)(machine)


def _call(method: Callable[..., object], *arguments: Any) -> None:
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
