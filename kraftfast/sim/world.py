"""Time, machines and the run as a whole."""

from __future__ import annotations

import gc
import heapq
import time
import traceback
import zlib
from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast.errors import CorruptLog, ForeignDirectory, KraftfastError
from kraftfast.sim.chance import Chance
from kraftfast.sim.clients.clients import Append, BarrierReader, SimProducer, SimReader, Told
from kraftfast.sim.clients.filling import FillingProducer
from kraftfast.sim.clients.idempotent import IdempotentProducer
from kraftfast.sim.clients.kafka_consumer import KafkaConsumer
from kraftfast.sim.clients.named import NamedProducer
from kraftfast.sim.clients.remote_clients import RemoteClient, programs
from kraftfast.sim.clients.sum_machine import Asker, SimStateMachine
from kraftfast.sim.faults.lost_majority import SilentOracle, Survivors
from kraftfast.sim.faults.nemesis import Nemesis
from kraftfast.sim.machines.local import LocalKernel
from kraftfast.sim.machines.machine import Machine
from kraftfast.sim.machines.network import HostPaths
from kraftfast.sim.machines.process import Process
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.machines.tcp import Tcp
from kraftfast.sim.operators.operating import operator_of
from kraftfast.sim.oracles.early_oracle import EarlyOracle
from kraftfast.sim.oracles.end_of_run import check_disks, check_kept
from kraftfast.sim.oracles.watching import WatchedProcess
from kraftfast.sim.oracles.world_invariants import Oracle
from kraftfast.sim.require import Violation, require
from kraftfast.sim.settings import Delays, WorldSettings
from kraftfast.sim.settling import Settling
from kraftfast.sim.trace import words
from kraftfast.types import METADATA_TOPIC

if TYPE_CHECKING:
    from kraftfast.node.state_machine import StateMachine
    from kraftfast.sim.machines.workers import WorkerProcess
    from kraftfast.sim.operators.supervising import Supervising
    from kraftfast.types import VoterSet

EVENTS_MAX = 400_000
"""A run that needs more is going round in circles."""
COLLECT_EVERY = 50_000
STOP_MS = 15_000
CALM = Delays(200, 2_000, 0.01)


class World(Settling):
    """All machines, the network between them, their clients and what goes wrong.

    One event at a time, in the order of their times; chance comes from one seeded generator.
    """

    now_us: int
    machines: list[Machine]  # voters first
    producers: list[SimProducer]
    readers: list[SimReader]
    consumers: list[KafkaConsumer]
    programs: list[RemoteClient]  # clients as they are; those that append are producers, too
    history: list[Append | Told]
    acknowledged_end: int  # the highest end that any producer was told
    counts: Counter[str]  # what happened how often
    events: int  # handled so far
    digest: int  # of all that happened: equal for equal seeds
    tracer: Callable[[str], Any] | None
    network_delays: Delays  # of now: a healed world is calm
    disk_delays: Delays
    drop: float  # how likely a segment of a stream is lost now, and comes later
    resets: float  # how likely its connection breaks
    supervising: Supervising | None  # who starts the processes, unless the world does
    survivors: Survivors | None  # once a majority of the disks was replaced: those that are left

    def __init__(
        self, seed: int, settings: WorldSettings, tracer: Callable[[str], Any] | None = None
    ) -> None:
        self.seed, self.settings, self.tracer = seed, settings, tracer
        self.random = Chance(seed)
        self.now_us = 0
        self.cluster_id = "sim-cluster"
        self.counts = Counter()
        self.events = self.digest = 0
        self._collect_at = COLLECT_EVERY
        self.acknowledged_end = 0
        self.history = []
        self.survivors = None
        self.network_delays, self.disk_delays = settings.network, settings.disk
        self.drop, self.resets = settings.drop, settings.resets
        self.state_machine: Callable[[Process], StateMachine] = SimStateMachine
        self._queue: list[tuple[int, int, Callable[..., Any], tuple[Any, ...]]] = []
        self._sequence = 0
        self.oracle = Oracle(self)
        self.early = EarlyOracle(self)
        ids = range(1, settings.voters + settings.observers + 1)
        self.machines = [Machine(self, id) for id in ids]
        self.network, self.tcp, self.local = HostPaths(self), Tcp(self), LocalKernel(self)
        self.nemesis = Nemesis(self)
        self.operator = operator_of(self)
        self.producers = [
            IdempotentProducer(self, id) if id < settings.idempotent else SimProducer(self, id)
            for id in range(settings.producers)
        ]
        self.producers += [
            NamedProducer(self, settings.producers + id) for id in range(settings.named)
        ]
        self.producers += [
            FillingProducer(self, len(self.producers) + id) for id in range(settings.filling)
        ]
        self.programs = programs(self)
        appending: list[Any] = [each for each in self.programs if each.appends]
        self.producers += appending
        self.consumers = [KafkaConsumer(self) for _ in range(settings.consumers)]
        self.readers = [SimReader(self) for _ in range(settings.readers)]
        self.barriers = BarrierReader(self)
        self.supervising = None
        if settings.supervised:
            from kraftfast.sim.operators.supervising_more import supervising_of

            self.supervising = supervising_of(self, len(self.machines) + len(self.programs) + 1)
        self.askers = [Asker(self)] if settings.snapshots == "machine" else []

    def machine(self, id: int) -> Machine:
        """Return the machine of a replica."""
        return self.machines[id - 1]

    def voters(self) -> list[Machine]:
        """Return the machines of voters, by the last set that is committed."""
        return self.oracle.voters.machines(self.voter_set())

    def voter_set(self) -> VoterSet:
        """Return the last voter set that is committed."""
        return self.oracle.voters.latest().voters

    def log_path(self, machine: Machine) -> str:
        """Return where a machine's segments are."""
        return f"{machine.path}/{METADATA_TOPIC}-0"

    def leader(self) -> Process | None:
        """Return the leader of the latest epoch that has one, if it runs."""
        found: Process | None = None
        for machine in self.machines:
            process = machine.process
            if process is not None and process.core.role == "leader":
                if found is None or process.core.epoch > found.core.epoch:
                    found = process
        return found

    # --- time -----------------------------------------------------------------------------------

    def at(self, due_us: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Have this done at that time."""
        self._sequence += 1
        heapq.heappush(self._queue, (due_us, self._sequence, call, arguments))

    def later(self, delay_us: int, call: Callable[..., Any], *arguments: Any) -> None:
        """Have this done after a while."""
        self.at(self.now_us + delay_us, call, *arguments)

    def run(self, duration_ms: float, until: Callable[[], bool] | None = None) -> bool:
        """Let time pass; ends early, with True, once ``until`` holds after an event."""
        end_us = self.now_us + int(duration_ms * 1000)
        queue, next_event = self._queue, heapq.heappop
        while queue and queue[0][0] <= end_us:
            due_us, _, call, arguments = next_event(queue)
            if due_us > self.now_us:
                self.now_us = due_us
            self.events += 1
            call(*arguments)
            if until is not None and until():
                return True
            if self.events >= EVENTS_MAX:
                require(False, "L7: events without end")
            if self.events >= self._collect_at:
                self._collect()
        self.now_us = end_us
        return False

    def _collect(self) -> None:
        """Collect garbage: always at the same events, for what is collected may close a socket."""
        self._collect_at += COLLECT_EVERY
        gc.collect()

    # --- what happens to processes --------------------------------------------------------------

    def guard(self, process: Process, call: Callable[..., None], *arguments: Any) -> None:
        """Do something in a process; it may end of it."""
        try:
            call(*arguments)
            self.took_turn(process)
        except (Crash, AssertionError, KraftfastError) as error:
            self.ends_by(process, error)

    def ends_by(self, process: Process, error: BaseException) -> None:
        """Judge what a process raised, and end it. Raises what no process may raise."""
        machine = process.machine
        if isinstance(error, Crash):
            self.trace(f"{machine.id}: stops {error}")
            self.count("crashes in a call")
            self.end(machine, self.nemesis.takes_the_power(machine))
        elif isinstance(error, AssertionError):
            if isinstance(error, Violation) or not process.rots:
                raise error
            self.trace(f"{machine.id}: ends, for its disk has changed under it: {error}")
            self.count("ended by an assertion over damage")
            self.end(machine, power=False)
        else:
            expected = type(error) in machine.disk.failures or machine.rotten
            require(expected, f"L1: {machine.id} ends without need: {error!r}")
            self.trace(f"{machine.id}: ends: {type(error).__name__}: {error}")
            self.count(f"ended by {type(error).__name__}")
            if isinstance(error, CorruptLog):
                machine.dead = str(error)  # no supervisor starts it again
            self.end(machine, power=False)

    def took_turn(self, process: Process) -> None:
        """Have the oracles look at a process that did something, unless it was ended by that."""
        if process.closed:
            self.oracle.observe(process)
            self._gone(process.machine, process, power=False)
            return
        if not process.alive:
            return
        process.settle_doubt()
        log = process.log
        seen = process.steps, log.end_offset, log.flushed_end_offset, log.log_start_offset
        if seen != process.seen:  # a third of all turns change nothing
            process.seen = seen
            self.oracle.after_turn(process)
            self.early.check(process)

    def end(self, machine: Machine, power: bool) -> None:
        """End the process of a machine abruptly; ``power``: the machine too."""
        process = machine.process
        if process is not None:
            self.oracle.crashed(process, power)
            process.vanish(power)
            machine.disk.kill()
        if power:
            machine.lose_power()
            self.oracle.shadow(machine.id).lost_memory = True
        if process is not None:
            self._gone(machine, process, power)

    def _gone(self, machine: Machine, process: Process, power: bool) -> None:
        self.trace(f"{machine.id}: is gone{' (power)' if power else ''}")
        machine.process, machine.ended_us = None, self.now_us
        self.start_later(machine)

    def start_later(self, machine: Machine, delay_us: int = -1) -> None:
        """Start its process after a while, unless it is to stay down."""
        if machine.starting or machine.process is not None or self.supervising is not None:
            return
        machine.starting = True
        if delay_us < 0:
            delay_us = self.random.choice((2_000, 20_000, 200_000, 1_000_000))
            delay_us = self.random.randint(1_000, delay_us)
        self.later(delay_us, self._start, machine)

    def _start(self, machine: Machine) -> None:
        machine.starting = False
        if machine.process is not None or machine.dead or not machine.may_start:
            return
        try:
            process = self.open_replica(machine)
        except (Crash, KraftfastError) as error:
            self.cannot_start(machine, error)
            return
        self.guard(process, process.begin)

    def open_replica(self, machine: Machine, *worker: WorkerProcess) -> WatchedProcess:
        """Return a machine's process, which has opened its log. Raises Crash, KraftfastError."""
        power = self.oracle.shadow(machine.id).lost_memory
        machine.dark = False
        machine.disk.failures.clear()
        machine.process = process = WatchedProcess(machine, *worker)
        self.trace(f"{machine.id}: starts at {process.log.end_offset}")
        self.early.starts(process)
        self.oracle.recovered(process, power)
        return process

    def cannot_start(self, machine: Machine, error: BaseException) -> None:
        """Judge why a process cannot start. Raises what no process may raise."""
        if isinstance(error, Crash):
            self.trace(f"{machine.id}: stops while it starts, {error}")
            self.count("crashes in recovery")
            self._start_failed(machine, self.nemesis.takes_the_power(machine))
        elif isinstance(error, (CorruptLog, ForeignDirectory)):
            require(machine.rotten, f"{machine.id} refuses its own log: {error}")
            self.trace(f"{machine.id}: refuses to start: {error}")
            self.count("damage found")
            machine.dead = str(error)
        elif not isinstance(error, KraftfastError):
            raise error
        else:
            lost = self.supervising is not None and self.supervising.lost is machine
            expected = lost or type(error) in machine.disk.failures or machine.rotten
            require(expected, f"L1: {machine.id} does not start: {error!r}")
            self.trace(f"{machine.id}: cannot start: {error}")
            self.count(f"start failed by {type(error).__name__}")
            self._start_failed(machine, False)

    def _start_failed(self, machine: Machine, power: bool) -> None:
        machine.disk.kill()
        if power:
            machine.lose_power()
            self.oracle.shadow(machine.id).lost_memory = True
        self.start_later(machine)

    def lose_all_but(self, machines: list[Machine]) -> None:
        """Judge what the quorum came to, and from now on only what these machines keep.

        The disks of all others, a majority, are about to be replaced. Clients have gone.
        """
        check_kept(self)
        for client in self.producers:
            client.running = False
        self.operator.running = False  # it asks for what the oracle knows to be safe
        self.survivors = Survivors(self, machines)
        self.oracle = SilentOracle()  # type: ignore[assignment]

    # --- what is told -----------------------------------------------------------------------------

    def note_acknowledged(self, append: Append | Told) -> None:
        """I23: a producer gets an acknowledgement of what is committed, and of nothing else."""
        require(
            append.end_offset <= self.oracle.committed_end,
            f"I23: {append.end_offset} is acknowledged, committed: {self.oracle.committed_end}",
        )
        self.acknowledged_end = max(self.acknowledged_end, append.end_offset)

    def count(self, what: str) -> None:
        """Count that something happened."""
        self.counts[what] += 1

    def trace(self, text: str) -> None:
        """Write one line of the run."""
        self.digest = zlib.crc32(f"{self.now_us} {text}".encode(), self.digest)
        if self.tracer is not None:
            self.tracer(f"{self.now_us / 1000:10.3f} {text}")

    def trace_step(self, process: Process, what: str, event: Any) -> None:
        """Trace what a replica is told."""
        self.digest = zlib.crc32(
            b"%d %d %d %d" % (self.now_us, process.id, process.core.epoch, process.log.end_offset),
            self.digest,
        )
        if self.tracer is not None:
            self._fact = f"{process.id}: {words(event) if event is not None else what}"

    def trace_effects(self, process: Process, effects: list[Any]) -> None:
        """And does something about it."""
        if self.tracer is not None:
            actions = "; ".join(words(effect) for effect in effects) or "nothing"
            self.tracer(f"{self.now_us / 1000:10.3f} {self._fact} -> {actions}")

    # --- the run ----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start every machine and every client."""
        if self.settings.latecomer and self.settings.observers:
            self.machines[-1].may_start = False
            if not self.settings.load_ms:  # else it comes when the world heals
                self.later(self.settings.chaos_ms * 600, self._let_in, self.machines[-1])
        if self.supervising is not None:
            self.supervising.start()
        for machine in self.machines if self.supervising is None else ():
            self.start_later(machine, self.random.randint(1, 30_000))
        for clients in (self.producers, self.readers, self.consumers, self.askers):
            for client in clients:
                client.start()
        for program in self.programs:
            if not program.appends:
                program.start()
        if self.settings.barrier_every_ms:
            self.barriers.start()

    def _let_in(self, machine: Machine) -> None:
        """Let in a machine that was not there from the beginning."""
        machine.may_start = True
        self.start_later(machine, 1_000)

    def heal(self) -> None:
        """Heal everything, but perhaps a minority that stays as it is."""
        self.nemesis.heal()
        if self.supervising is not None:
            self.supervising.running = False
        self.operator.running = False
        self.network_delays = self.disk_delays = CALM
        self.drop = self.resets = 0.0
        left: set[int] = set()
        broken = sum(1 for machine in self.voters() if machine.dead or machine.rotten)
        spare = (len(self.voters()) - 1) // 2 - broken
        may_stay = self.settings.leave_broken and not self.settings.changes
        if may_stay and spare > 0 and self.random.random() < 0.3:
            left = set(self.random.sample([m.id for m in self.voters()], spare))
        for machine in self.machines:
            if machine.id in left:
                machine.may_start = False
                self.end(machine, power=False)
            else:
                if machine.rotten:  # what changed under it, its next start has to see
                    self.end(machine, power=False)
                machine.may_start = machine.may_start or self.settings.latecomer
                self.start_later(machine, 1_000)

    def play(self) -> None:
        """Chaos, and then the end of it."""
        self.start()
        self.nemesis.start()
        self.operator.start()
        self.run(self.settings.chaos_ms)
        self.finish()
        if self.supervising is not None:
            self.supervising.replace_one()
            self._stop_all(self.supervising)

    def _stop_all(self, supervising: Supervising) -> None:
        """Have the supervisor end all replicas in order: nothing is lost by it (I5)."""
        supervising.close()
        require(self.run(STOP_MS, lambda: not supervising.alive), "L1: the supervisor does not end")
        left = [machine.id for machine in self.machines if machine.process is not None]
        require(not left, f"L1: the supervisor leaves {left} behind")
        check_disks(self)
        supervising.recover_one()

    def close(self) -> None:
        """End whatever runs; nothing more is checked."""
        for program in self.programs:
            program.end()
        if self.supervising is not None:
            self.supervising.end_all()
        for machine in self.machines:
            if machine.process is not None:
                machine.process.vanish(power=True)

    def state(self) -> dict[str, Any]:
        """Return the state of every machine, for reports."""
        replicas = {}
        for machine in self.machines:
            process = machine.process
            if process is None:
                replicas[machine.id] = machine.dead or "down"
                continue
            core, log = process.core, process.log
            replicas[machine.id] = (
                f"{core.role} e{core.epoch} of {core.leader_id} hw {core.high_watermark} "
                f"votes {core.voters.ids} "
                f"log {log.flushed_end_offset}/{log.end_offset}"
                f"{' in doubt' if core.in_doubt else ''}{' blocked' if process.blocked else ''}"
                f"{' stalled' if process.stalled else ''}{' paused' if process.paused else ''}"
                f" queue {len(process.door.queue)} runs {len(process.door.runs)}"
            )
        return {"now_ms": self.now_us // 1000, "replicas": replicas} | self.network.state()


def run_seed(
    seed: int, settings: WorldSettings | None = None, tracer: Callable[[str], Any] | None = None
) -> dict[str, Any]:
    """Run one seed. Plain values: ``ok``, ``violation`` (empty or the reason), counts, digest.

    The same seed and settings give the same run, event by event, wherever it runs.
    """
    settings = settings or WorldSettings.of_seed(seed)
    began = time.perf_counter()
    collects = gc.isenabled()
    gc.disable()  # ``_collect``
    gc.freeze()  # what was there before is no part of the run, and not looked through each time
    world = World(seed, settings, tracer)
    violation = where = ""
    try:
        world.play()
    except Exception as error:  # whatever a run ends with is its result
        violation = f"{type(error).__name__}: {error}"
        where = traceback.format_exc()
    world.close()
    result = {
        "seed": seed,
        "ok": not violation,
        "violation": violation,
        "where": where,
        "events": world.events,
        "virtual_ms": world.now_us // 1000,
        "wall_s": round(time.perf_counter() - began, 3),
        "digest": world.digest,
        "counts": dict(sorted(world.counts.items())),
        "settings": settings.as_dict(),
    }
    del world
    gc.collect()  # its disks are large, and few objects: the collector would let them pile up
    gc.unfreeze()
    if collects:
        gc.enable()
    return result
