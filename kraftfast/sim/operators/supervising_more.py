"""A program with a supervisor that does more with its quorum than others: closes it under clients,
stops and adds observers, keeps processes ready, runs out of descriptors, finds directories held.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from random import Random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from kraftfast.errors import Closed, InvalidOption, KraftfastError, StorageError
from kraftfast.node.processes.launching import SpareWorker
from kraftfast.node.processes.supervisor import SIGBUS_EXIT_CODE, Supervisor
from kraftfast.node.storage.local_layout import add_to_description
from kraftfast.sim.clients.clients import UNKNOWN, Told
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.clients.using import UsingHere
from kraftfast.sim.machines.quorum_disk import QUORUM
from kraftfast.sim.machines.workers import WorkerProcess
from kraftfast.sim.operators.making_more import MakingMore
from kraftfast.sim.operators.supervising import (
    PATIENT_S,
    START_S,
    SimHeldDirectory,
    SimQuorum,
    Supervising,
    SupervisorHost,
)
from kraftfast.sim.require import expect
from kraftfast.sim.settings import OPERATED_FROM
from kraftfast.sim.swarm import SWARM_FROM

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

DOES_MORE = 0.6
HOLDS, HELD_US_MAX = 0.3, 3_000_000
"""How likely an operator's program holds a replica's directory as its supervisor has died."""
READY = 0.4
"""How likely processes are kept ready for the next quorum."""
WORK_S_MAX = 0.4
TWO_REPLACE = 0.4
"""How likely two operators replace a replica at once."""
STRANGER = 77
WAYS = (
    "look", "look", "produce", "produce", "close_under", "observer", "observer", "refused",
    "signal", "unmapped", "ready", "change",
)  # fmt: skip


class HostOfFew(SupervisorHost):
    """A host on which a process has no descriptor left at times."""

    def open_pidfd(self, pid: int) -> int:
        self._refuse_at_times()
        return super().open_pidfd(pid)


class SupervisingMore(Supervising):
    """See the module."""

    # chance: its own. spare: processes for its next quorum. stopped: observers that it stopped.

    host_type = HostOfFew
    acts, act_every_s = 0.4, 0.04
    making_type = MakingMore

    def __init__(self, world: World, id: int) -> None:
        self.chance = Random(world.seed * 2 + 1 + (1 << 61))
        self.stopped: set[int] = set()
        self._appended = 0
        super().__init__(world, id)

    def begin_anew(self) -> None:
        super().begin_anew()
        self.spare = SpareWorker(self.host)

    def spare_processes(self) -> SpareWorker:
        return self.spare

    def restart(self) -> None:
        self.end()
        if self.running and self.chance.random() < HOLDS:
            self._hold_one()
        super().restart()

    def _hold_one(self) -> None:
        """Have another program hold a directory for a while, as ``storage recover`` does."""
        world, held = self.world, self.world.local.held
        operator = SimpleNamespace(world=world)
        operator.pid = world.local.began(operator)
        path = self.chance.choice(world.machines).path
        if path in held and held[path]._pid in world.local.processes:
            return
        SimHeldDirectory(operator).take(path)  # type: ignore[arg-type]
        world.count("directories held by others")
        world.later(self.chance.randint(1, HELD_US_MAX), world.local.ended, operator.pid)

    # --- what it does -----------------------------------------------------------------------------

    def _supervise(self) -> None:
        self.acting = False
        while not self.running and self.stopped:  # a start may wait for others for long
            add_to_description(QUORUM, self.stopped.pop(), self.host)
        super()._supervise()

    def _mend(self, found: Supervisor) -> None:
        super()._mend(found)
        if not self.running and self.quorum is not None:
            for id in sorted(self.stopped):
                self._add_observer(self.quorum, id)

    @contextmanager
    def _at_work(self) -> Iterator[None]:
        """Do what may stop workers, perhaps as the world has healed: till then nothing is idle.

        What raises ends the quorum, too: it goes on until another one is started.
        """
        self.acting = self.world.seed >= SWARM_FROM
        yield
        self.acting = False

    def _act(self, found: Supervisor) -> None:
        with self._at_work():
            super()._act(found)

    def _use(self, made: SimQuorum) -> None:
        if not self.running or self.chance.random() >= DOES_MORE:
            super()._use(made)
            return
        with self._at_work():
            self._do_more(made)

    def _do_more(self, made: SimQuorum) -> None:
        what = self.chance.choice(WAYS)
        self.world.count(f"done with a quorum: {what}")
        self.world.trace(f"supervisor: {what}")
        try:
            getattr(self, f"_{what}")(made)
        except KraftfastError as error:
            self.world.count(f"done with a quorum: {what}: {type(error).__name__}")
            if what == "close_under":
                raise

    def _using(self, made: SimQuorum) -> UsingHere:
        self._produced += 1
        return UsingHere(self, made, self.chance, self._produced, lambda: self.running)

    def _look(self, made: SimQuorum) -> None:
        self._using(made).look()

    def _produce(self, made: SimQuorum) -> None:
        self._using(made).run()

    def _signal(self, made: SimQuorum) -> None:
        """Send a signal to a worker by the quorum, and one that is none."""
        id = self.chance.choice(self.world.machines).id
        made.kill(id, self.chance.choice((signal.SIGKILL, signal.SIGTERM)))
        for wrong in ((STRANGER,), (id, -5)):
            try:
                made.kill(*wrong)
            except InvalidOption:
                continue
            expect(False, "a signal is sent to nobody")

    def _unmapped(self, made: SimQuorum) -> None:
        """A page of a worker's log cannot be read: it ends by that, and stays down (D9)."""
        supervisor, world = made.supervisor, self.world
        running = [id for id in supervisor.workers if world.machine(id).process is not None]
        if not running:
            return
        id = self.chance.choice(sorted(running))
        replica = world.machine(id).process
        worker: Any = None if replica is None else replica.worker
        if not isinstance(worker, WorkerProcess) or worker.parent_pid != self.pid:
            return
        worker.error, worker._code = StorageError("a page cannot be read"), SIGBUS_EXIT_CODE
        self.note_failed(id, worker.error)
        world.end(world.machine(id), power=False)

    def _ready(self, _made: SimQuorum) -> None:
        """Keep processes ready for the quorum after this one; perhaps too few."""
        try:
            few = self.chance.random() < 0.2
            self.spare.make(max(1, len(self.world.machines) - few))
        except OSError:
            self.world.count("no processes kept ready")
        if self.chance.random() < 0.2:
            self.spare.end()

    def _change(self, made: SimQuorum) -> None:
        """Hand over, or upgrade, where an operator may."""
        settings, world = self.world.settings, self.world
        if not world.operator.running:
            return
        if "transfer" in settings.changes:
            made.transfer(self.chance.choice((None, *world.voter_set().ids)), timeout=CALL_S)
        if "upgrade" in settings.changes:
            made.upgrade(timeout=CALL_S)

    def _refused(self, made: SimQuorum) -> None:
        """What cannot be done leaves nothing behind."""
        voter = min(made.description.voters)
        wrong: tuple[Any, ...] = (
            lambda: made.replace(STRANGER, timeout=CALL_S),
            lambda: made.stop_replica(voter, timeout=CALL_S),
            lambda: made.status(STRANGER),
            lambda: made.add_replica(-1),
            lambda: made.reassign([0, 0, -1], timeout=CALL_S),
            lambda: made.add_voter("1"),  # type: ignore[arg-type]
        )
        before = list(made.description.replicas)
        try:
            self.chance.choice(wrong)()
        except InvalidOption:
            now = list(made.description.replicas)
            expect(now == before, f"a refusal leaves replicas {now}, {before} were there")
            return
        expect(False, "what cannot be done is done")

    # --- observers --------------------------------------------------------------------------------

    def _observer(self, made: SimQuorum) -> None:
        """Stop an observer for good, or add it again."""
        if self.stopped and self.chance.random() < 0.6:
            self._add_observer(made, min(self.stopped))
            return
        there = [id for id in made.description.added if id not in self._removed]
        if there:
            id = self.chance.choice(there)
            self.stopped.add(id)
            made.stop_replica(id, timeout=CALL_S)

    def _add_observer(self, made: SimQuorum, id: int) -> None:
        try:
            made.add_replica(id, timeout=START_S)
        except KraftfastError as error:
            self.world.count(f"observer not added: {type(error).__name__}")
        else:
            self.stopped.discard(id)
            self.world.count("observers added again")

    def _replace(self, made: SimQuorum, machine: Machine) -> None:
        """Replace a replica, at times while another program does the same (D19)."""
        if self.chance.random() < TWO_REPLACE:
            self.run(lambda: self._replace_too(made, machine))
            self.host.sleep(self.chance.random() * WORK_S_MAX)
        if self.lost is machine:
            super()._replace(made, machine)

    def _replace_too(self, made: SimQuorum, machine: Machine) -> None:
        try:
            made.replace(machine.id, timeout=PATIENT_S)
        except KraftfastError as error:
            self.world.count(f"replaced by two: {type(error).__name__}")
        else:
            self.world.count("replaced by two")
            self.lost = None

    def recover_one(self) -> None:
        """Recover one, and perhaps the same again."""
        super().recover_one()
        super().recover_one()

    # --- its end ----------------------------------------------------------------------------------

    def _close(self) -> None:
        self.spare.end()
        super()._close()

    def _close_under(self, made: SimQuorum) -> None:
        """Close the quorum while others of its threads are at work with it."""
        for _ in range(self.chance.randint(1, 3)):
            self.run(lambda: self._work(made))
        self.host.sleep(self.chance.random() * WORK_S_MAX)
        made.close(timeout=self.chance.choice((0.1, 2.0)))
        if self.chance.random() < READY:
            self._ready(made)
        made.leader()  # it raises Closed

    def _work(self, made: SimQuorum) -> None:
        """Append, or read and ask, until the quorum is closed: then it is told so."""
        try:
            if self.chance.random() < 0.5:
                self._append_on(made)
            while self.running:
                using = self._using(made)
                using.look() if self.chance.random() < 0.5 else using.run()
                self.host.sleep(self.chance.random() * 0.02)
        except Closed:
            self.world.count("threads whose quorum was closed")
        except KraftfastError as error:
            self.world.count(f"threads of a quorum: {type(error).__name__}")

    def _append_on(self, made: SimQuorum) -> None:
        """Append one record after the other."""
        producer = made.producer(timeout=CALL_S)
        try:
            while self.running:
                self._appended += 1
                value = b"w%d:%d:" % (self.id, self._appended)
                told = Told(self.world, value, (-self.id, -self._appended))
                told.outcome = UNKNOWN
                self.world.history.append(told)
                offset = producer.append_wait(value, timeout=CALL_S)
                told.base_offset, told.end_offset = offset, offset + 1
                told.outcome = "acknowledged"
                self.world.note_acknowledged(told)
        finally:
            if self.alive:
                producer.close(timeout=0.1)
            else:
                producer.disown()


def supervising_of(world: World, id: int) -> Supervising:
    """Return the program that starts the processes of a run; later seeds' does more."""
    return (SupervisingMore if world.seed >= OPERATED_FROM else Supervising)(world, id)
