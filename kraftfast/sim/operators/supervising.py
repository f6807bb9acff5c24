"""The supervisor as it is, in a program of the replicas' host: it starts and restarts them.

What the world does to replicas it notices by their ends. Its user does more to them: sends signals,
takes a worker out and adds it again, and dies at any moment.
"""

from __future__ import annotations

import errno
import itertools
import os
import signal
from random import Random
from typing import TYPE_CHECKING, Any

from msgspec import structs

from kraftfast.errors import DirectoryInUse, KraftfastError, StorageError
from kraftfast.node.node_config import ListenerConfig, NodeConfig
from kraftfast.node.processes.launching import Sibling, SpareWorker
from kraftfast.node.processes.supervisor import MAY_PASS, Supervisor
from kraftfast.node.processes.telling import Telling
from kraftfast.node.storage.description import Description, write_description
from kraftfast.quorum import LocalQuorum
from kraftfast.sim.clients.local_clients import LocalClientHost
from kraftfast.sim.clients.program import SimPoll, SimProgram, SimWaiter
from kraftfast.sim.clients.program_producers import Producing
from kraftfast.sim.clients.remote_clients import CALL_S
from kraftfast.sim.machines.files import SimWaker
from kraftfast.sim.machines.local import Pidfd
from kraftfast.sim.machines.quorum_disk import QUORUM, MadeDisk, QuorumDisk, SimCondition, SimNames
from kraftfast.sim.machines.sim_disk import SimDisk
from kraftfast.sim.machines.threads import GreenletExit
from kraftfast.sim.machines.workers import WorkerProcess, pair, spawn
from kraftfast.sim.operators import recover_command, replace_command
from kraftfast.sim.operators.making import QuorumMaking
from kraftfast.sim.require import expect, require
from kraftfast.sim.strangers import refused_requests
from kraftfast.sim.swarm import SHORTER_FROM

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import World

SPAWN_FAILS = 0.05
"""How often the system refuses a process, while things go wrong."""
START_S = 3.0
PATIENT_S = 60.0
"""How long a start may take, and once all is healed: a quorum may be stuck as designed."""
ASKED = (
    "leader", "barrier", "describe", "identity", "read", "adopt", "produce", "refused", "plan",
)  # fmt: skip
READ_MAX = 20
MAKES, ACTS, LOSES_POWER = 0.3, 0.7, 0.3
"""How likely a program makes another quorum, its user does something to the replicas and does not
ask them, and the disk of ``quorum.json`` loses what was not flushed when the program dies."""
ACT_EVERY_S, CALM_EVERY_S = 0.1, 0.5
STOPPED_S_MAX = 0.5
DIES, DIES_US_MAX = 0.5, 1_500_000
"""How likely it is killed, and how late, at most."""
SIGNALS = (signal.SIGTERM, signal.SIGKILL, signal.SIGSTOP, signal.SIGCONT)


class ProgramEvent:
    """``threading.Event``, of a program."""

    def __init__(self, program: SimProgram) -> None:
        self._program, self._set = program, False
        self._waiting: list[SimWaiter] = []

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        waiting, self._waiting = self._waiting, []
        for waiter in waiting:
            waiter.wake()

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            waiter = SimWaiter(self._program)
            self._waiting.append(waiter)
            self._program.wait(waiter, timeout)
            if waiter in self._waiting:
                self._waiting.remove(waiter)
        return self._set


class PollOnce(SimPoll):
    """``select.poll`` that is asked once, and watches nothing afterwards."""

    def poll(self, timeout: float | None = None) -> list[tuple[int, int]]:
        try:
            return super().poll(timeout)
        finally:
            self.close()


class SimHeldDirectory:
    """``HeldDirectory``, of a program; what it holds is free once its process has ended."""

    def __init__(self, program: Supervising) -> None:
        self._pid, self._local = program.pid, program.world.local

    def take(self, path: str) -> None:
        self.release()
        holder = self._local.held.get(path)
        if holder is not None and holder._pid in self._local.processes:
            raise DirectoryInUse(f"another process holds {path}")
        self._local.held[path] = self

    def release(self) -> None:
        for path in [path for path, holder in self._local.held.items() if holder is self]:
            del self._local.held[path]


class SupervisorHost(SimNames, LocalClientHost):
    """What the hosts of ``node/processes`` and ``node/storage`` are in production."""

    def __init__(self, program: Supervising) -> None:
        super().__init__(program, program.world.local)
        self.disk: Any = QuorumDisk(program, program.own_disk, program.random)
        self._program: Supervising = program
        self._random, self._world = program.random, program.world
        self.tell = Telling()
        self.tell.show = lambda told: self._world.trace(f"supervisor: {told.message}")

    def _check_alive(self) -> None:
        """A process that has ended does nothing more to others."""
        if not self._program.alive:
            raise GreenletExit

    def condition(self) -> SimCondition:
        return SimCondition(self._program)

    def event(self) -> ProgramEvent:
        return ProgramEvent(self._program)

    def poll(self) -> PollOnce:
        return PollOnce(self._program)

    def waker(self) -> SimWaker:
        self._refuse_at_times()
        return super().waker()

    def is_readable(self, sock: Any, timeout_s: float) -> bool:
        self._check_alive()
        poll = self.poll()
        poll.register(sock.fileno(), 1)
        return bool(poll.poll(timeout_s * 1000))

    def check_host(self) -> None:
        """Do nothing: nothing is missing here."""

    def check_tasks(self, _replicas: int) -> None:
        """Do nothing: there is room."""

    def _refuse_at_times(self) -> None:
        self._check_alive()
        if self._program.running and self._random.random() < SPAWN_FAILS:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def pair(self) -> Any:
        self._check_alive()
        return pair(self._program)

    def spawn(self, fds: list[int]) -> Sibling:
        self._refuse_at_times()
        return Sibling(spawn(self._program, fds, self._random).pid, self)

    def open_pidfd(self, pid: int) -> int:
        self._check_alive()
        return Pidfd(self._program.files, self._world.local, pid).fd

    def close(self, fd: int) -> None:
        if self._program.alive:
            self._program.files.by_fd[fd].close()

    def exit_code_of(self, pid: int) -> int | None:
        self._check_alive()
        if pid in self._world.local.processes:
            return None
        if pid not in self._world.local.exit_codes:
            raise ChildProcessError(errno.ECHILD, os.strerror(errno.ECHILD))
        return self._world.local.exit_codes.pop(pid)

    def kill(self, pid: int, signo: int) -> None:
        self._check_alive()
        process = self._world.local.processes.get(pid)
        if process is None:
            raise ProcessLookupError(errno.ESRCH, os.strerror(errno.ESRCH))
        process.signal(signo)

    def taken_over(self) -> tuple[Any, ...]:
        return ()

    def random_uuid(self) -> bytes:
        return self._random.randbytes(16)

    def held_directory(self) -> SimHeldDirectory:
        return SimHeldDirectory(self._program)


class Supervising(SimProgram):
    """A program that keeps the replicas of all machines alive, and may die itself.

    ``running``: things go wrong; else it only has replicas tried again that are down. ``acting``:
    what it began while they did is not over.
    """

    # lost: whose disk is gone, and is to be replaced.
    # failed, failed_adopted: why the storage of replicas failed, until an operator retries them.

    running: bool
    acting: bool
    pid: int
    host_type: type[SupervisorHost] = SupervisorHost
    acts, act_every_s = ACTS, ACT_EVERY_S
    making_type = QuorumMaking

    @property
    def settings(self) -> WorldSettings:
        """Return those of the run."""
        return self.world.settings

    def __init__(self, world: World, id: int) -> None:
        self.running = True
        self.random = Random(world.seed * 2 + 1 + (1 << 51))
        self.quorum: SimQuorum | None = None
        self.own_disk = SimDisk(Random(world.seed * 2 + 1 + (1 << 52)))
        self._removed: dict[int, NodeConfig] = {}
        self.failed, self.failed_adopted = dict[int, KraftfastError](), dict[int, KraftfastError]()
        self.closed = self._adopting = self.acting = False
        self.lost: Machine | None = None
        self._produced = 0
        super().__init__(world, id)
        self._describe()

    def _describe(self) -> None:
        """Write the description of the quorum, which was made before the run."""
        settings = self.world.settings
        ids = [machine.id for machine in self.world.machines]
        voters, added = ids[: settings.voters], ids[settings.voters :]
        known = Description(self.world.cluster_id, voters, settings.durability, added=added)
        known.kraft_version = settings.kraft_version
        self.own_disk.make_directory(QUORUM)
        write_description(QUORUM, known, self.host)

    def spare_processes(self) -> SpareWorker:
        """Return where its next quorum gets its processes from."""
        return SpareWorker(self.host)

    @property
    def supervisor(self) -> Supervisor | None:
        """Return its supervisor, if there is one."""
        return getattr(self.quorum, "supervisor", None)

    def begin_anew(self) -> None:
        super().begin_anew()
        self.pid = self.world.local.began(self)
        self.host: Any = self.host_type(self)

    def end(self) -> None:
        if self.quorum is not None:
            self.quorum.vanish()
        self.host.disk.end()
        self.world.local.ended(self.pid)
        super().end()

    def restart(self) -> None:
        """Die, and begin again: workers notice, and a new supervisor waits for their ends."""
        self.end()
        if self.random.random() < LOSES_POWER:
            self.own_disk.lose_power()
        self.begin_anew()
        self.start()

    def start(self) -> None:
        """Begin."""
        self.quorum = None
        self.run(self._live)
        if self.running and self.random.random() < DIES:
            self.world.later(self.random.randint(1, DIES_US_MAX), self._die, self.pid)

    def _die(self, pid: int) -> None:
        if self.running and self.pid == pid:
            self.world.count("supervisors killed")
            self.world.trace("supervisor: is killed")
            self.restart()

    def note_failed(self, id: int, error: KraftfastError) -> None:
        """Note that a replica ended by an error, which may be one that is final (D9)."""
        if isinstance(error, StorageError) and not isinstance(error, MAY_PASS):
            (self.failed_adopted if self._adopting else self.failed)[id] = error

    def check_may_start(self, id: int) -> None:
        """D9: no worker is started for storage that failed, nor a second one for a replica."""
        require(
            id not in self.failed or self._adopting,
            f"D9: replica {id} is started again after {self.failed.get(id)!r}",
        )

    def _live(self) -> None:
        if self.running and self.random.random() < MAKES:
            beside = self.world.seed >= SHORTER_FROM  # it may wait 10 s for a lock
            self.run(self._make) if beside else self._make()
        while not self.closed:
            try:
                self._supervise()
            except KraftfastError as error:
                self.world.count(f"supervisor: {type(error).__name__}")
            self.host.sleep(ACT_EVERY_S)

    def _make(self) -> None:
        """Make another quorum, on a disk of its own."""
        host = SupervisorHost(self)
        making = self.making_type(host, Random(self.random.getrandbits(64)))
        host.disk = MadeDisk(self, making.disk, self.random)
        making.run()
        self.world.count("directories of quorums made")

    def _supervise(self) -> None:
        """Run a supervisor until one of its calls fails."""
        self.quorum, self._removed = None, {}
        self.failed, self.failed_adopted = {}, {}  # another one knows nothing of what was before it
        made = SimQuorum(self)
        self.world.count("quorums started")
        try:
            while not self.closed:
                every_s = self.act_every_s if self.running else CALM_EVERY_S
                self.host.sleep(self.random.expovariate(1 / every_s))
                self._mend(made.supervisor)
                if self.lost is not None:
                    self._replace(made, self.lost)
                elif self.running and self.random.random() < self.acts:
                    self._act(made.supervisor)
                else:
                    self._use(made)
        finally:
            if not self.closed:
                made.close(timeout=1.0)

    def _mend(self, found: Supervisor) -> None:
        """Do what an operator does: replace disks (``operator``), and say that it was done."""
        for id, error in found.faults().items():
            known = self.failed | self.failed_adopted
            require(id in known, f"L1: replica {id} stays down without need: {error!r}")
            machine = self.world.machine(id)
            if not machine.dead and machine is not self.lost:
                self.failed.pop(id, self.failed_adopted.pop(id, None))
                found.retry(id)
                self.world.count("workers tried again")
        if not self.running:
            for id in list(self._removed):
                self._add(found, id)

    def replace_one(self) -> None:
        """Lose the disk of one voter, at times, and have it replaced while the others go on (D19).

        The program that does it may die at any moment; the next one goes on.
        """
        self.lost = replace_command.choose(self.world, self.random)
        if self.lost is not None:
            replace_command.lose(self.world, self.lost, self.random)
            replace_command.check_replaced(self, self.lost)

    def _replace(self, made: SimQuorum, machine: Machine) -> None:
        made.replace(machine.id, timeout=PATIENT_S)
        self.lost = None
        self.world.count("replicas replaced")

    def _act(self, found: Supervisor) -> None:
        ids = sorted(found.workers)
        what = self.random.choice(("signal", "signal", "ask", "remove", "add"))
        if what == "signal" and ids:
            id, signo = self.random.choice(ids), self.random.choice(SIGNALS)
            self.world.trace(f"supervisor: {signal.Signals(signo).name} for {id}")
            found.kill(id, signo)
            if signo == signal.SIGSTOP:
                self.host.sleep(self.random.random() * STOPPED_S_MAX)
                found.kill(id, signal.SIGCONT)
        elif what == "ask":
            found.restarts_text()
            for id in ids:
                found.pid(id)
        elif what == "remove" and len(ids) > 1:
            id = self.random.choice(ids)
            self._removed[id] = found.workers[id].config
            self.world.count("workers taken out")
            found.remove(id, timeout_s=self.random.choice((0.2, 2.0)))
        elif what == "add" and self._removed:
            self._add(found, self.random.choice(sorted(self._removed)))

    def _use(self, made: SimQuorum) -> None:
        """Ask through the quorum what a program may ask, and mind no failure."""
        try:
            self._ask(made, self.random.choice(self.world.machines).id)
        except KraftfastError as error:
            self.world.count(f"asked of the quorum: {type(error).__name__}")

    def _ask(self, made: SimQuorum, id: int) -> None:
        what = self.random.choice(ASKED + ("produce",) * 4 if self.running else ASKED)
        self.world.count(f"asked of the quorum: {what}")
        if what == "leader":
            made.leader()
        elif what == "barrier":
            floor = self.world.oracle.committed_end
            offset = made.read_barrier(self.random.choice((None, id)), timeout=CALL_S)
            expect(offset >= floor, f"a read barrier says {offset}, {floor} was committed")
        elif what == "describe":
            made.describe(timeout=CALL_S)
        elif what == "identity":
            held, (found, _) = self.world.machine(id).key.directory_id, made.identity(id)
            expect(found == held, f"D19: {id} calls itself {found!r}, and is {held!r}")
        elif what == "refused":
            refused_requests.ask_what_is_refused(self.world, made.admin(), self.random)
        elif what == "plan":
            refused_requests.plan_one(self.world, QUORUM, id, made, self.host)
        elif what == "produce":
            self._produced += 1
            Producing(self, made, self.random, self._produced, lambda: self.running).run()
        elif what == "adopt":
            made.adopt(timeout=CALL_S)
        else:
            with made.consumer(timeout=CALL_S) as consumer:
                for record in itertools.islice(consumer, READ_MAX):
                    expect(
                        record.offset < self.world.oracle.committed_end,
                        f"I20: {record.offset} is read, which is not committed",
                    )

    def _add(self, found: Supervisor, id: int) -> None:
        config = self._removed[id]
        self.failed.pop(id, None)
        try:
            found.add(config, START_S)
        except KraftfastError as error:
            self.world.count(f"worker not added: {type(error).__name__}")
        else:
            del self._removed[id]

    def recover_one(self) -> None:
        """Have one replica go on alone, as an operator does who has lost the others."""
        recover_command.recover_one(self.world, self.random)

    def end_all(self) -> None:
        """End whatever runs, here and of its workers; nothing more is checked."""
        if self.alive:
            self.end()
        for process in list(self.world.local.processes.values()):
            if isinstance(process, WorkerProcess) and process.replica is None:
                process.finish(-signal.SIGKILL)

    def close(self) -> None:
        """End all workers in order, as a program does that ends."""
        self.closed = True
        self.run(self._close)

    def _close(self) -> None:
        if self.quorum is not None:
            self.quorum.close()
        self.end()


class SimQuorum(LocalQuorum):
    """A quorum as a program runs it, whose processes and disks are simulated."""

    def __init__(self, program: Supervising) -> None:
        self._program, program.quorum = program, self
        self._processes = self._storage = program.host
        self._spare = program.spare_processes()
        waits = not program.running and all(each.may_start for each in program.world.machines)
        super().__init__(QUORUM, timeout=PATIENT_S if waits else START_S)

    @property
    def _host(self) -> Any:
        return self._processes

    def _config(self, id: int) -> NodeConfig:
        (place,) = self._program.world.machine(id).endpoints
        return structs.replace(super()._config(id), listeners=[ListenerConfig(*place)])

    def _adopt(self, timeout: float, only: int | None = None) -> None:
        """Have a supervisor try again to start replicas that are down."""
        self._program._adopting = True
        try:
            super()._adopt(timeout, only)
        finally:
            self._program._adopting = False
            for id in list(self._program.failed) if only is None else [only]:
                self._program.failed.pop(id, None)

    def vanish(self) -> None:
        """End with the process: nothing is closed, and no other process is told."""
        self._closed, self._clients = True, None
