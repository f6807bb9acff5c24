"""A real log over a simulated disk, without the rest of the world; and a quorum to be directed."""

from __future__ import annotations

from collections.abc import Callable, Collection
from random import Random
from typing import Any

from kraftfast.core import events as ev
from kraftfast.log.recovery import LogSettings, open_log
from kraftfast.log.small_files.directory import (
    LogOptions,
    MetaProperties,
    ReplicaDirectory,
    format_directory,
)
from kraftfast.record import pure
from kraftfast.sim.machines.paged_file import SteppedFlush
from kraftfast.sim.machines.preparer import SimPreparer
from kraftfast.sim.machines.process import Process
from kraftfast.sim.machines.sim_disk import SimDisk
from kraftfast.sim.settings import WorldSettings
from kraftfast.sim.world import World

PATH = "/replica"
SETTINGS = LogSettings(segment_bytes=16 * 1024, stride_bytes=8 * 1024, prepare_bytes=0)


def batch(size: int = 200, records: int = 1, offset: int = 0, epoch: int = 1) -> bytes:
    """A batch of about so many bytes."""
    values = [bytes([97 + offset % 26]) * (size // records) for _ in range(records)]
    return pure.encode_batch(pure.values_to_records(values, 0, offset), leader_epoch=epoch)


class Home:
    """One machine with one directory; the process on it comes and goes."""

    def __init__(self, seed: int = 0, settings: LogSettings = SETTINGS) -> None:
        self.disk = SimDisk(Random(seed))
        self.settings = settings
        self.now_ms = 0
        self._pieces: list[Callable[[], None]] = []
        format_directory(self.disk, PATH, MetaProperties("c", 1, b"d" * 16), LogOptions())
        self.open()

    def open(self) -> None:
        """Start a process."""
        self.preparer = SimPreparer(self._pieces.append, lambda: None)
        self.directory = ReplicaDirectory(self.disk, PATH)
        self.recovered = open_log(self.disk, self.directory, self.settings, self.preparer)
        self.log: Any = self.recovered.log

    def tend(self) -> None:
        """Let the nursery do all that it has to do."""
        for _ in range(20):
            self.now_ms += 1000
            self.log.tend(self.now_ms)
            while self._pieces:
                self._pieces.pop(0)()

    def step(self) -> None:
        """Let the nursery ask for what comes next, or do a piece of it."""
        if self._pieces:
            self._pieces.pop(0)()
        self.now_ms += 1
        self.log.tend(self.now_ms)

    def append(self, count: int = 1, epoch: int = 1, size: int = 200) -> None:
        """Batches of one record each, without a flush."""
        for _ in range(count):
            while not self.log.append(batch(size, offset=self.log.end_offset), epoch):
                self.tend()

    def flush(self) -> None:
        """As the flusher does it."""
        flush = SteppedFlush()
        flush.ask(self.log)
        state = 1
        while state > 0:
            state = flush.step(self.disk)
        flush.finish(self.log, -state)

    def kill(self) -> None:
        """The process dies; what it wrote stays in the page cache."""
        self.disk.kill()
        self.directory.close()

    def lose_power(self) -> None:
        """The machine stops."""
        self.directory.close()
        self.disk.lose_power()


class NothingIsLeft(Random):
    """The chance of a disk that wrote nothing on its own account."""

    def random(self) -> float:
        return 0.0

    def choice(self, choices: Any) -> Any:
        return choices[0]

    def randint(self, a: int, b: int) -> int:
        return a


class Quorum:
    """A world whose faults a test makes itself; nothing else goes wrong."""

    def __init__(self, seed: int, **settings: Any) -> None:
        random = Random(seed)
        chosen: dict[str, Any] = {
            "transport": random.choice(("ring", "socket", "mixed")),
            "flush": random.choice(("deferred", "parallel", "adaptive")),
            "faults": (),
            "leave_broken": False,
            "append_every_ms": 40.0,
            "idle_ms": 1_000,
        }
        self.world = World(seed, WorldSettings(**(chosen | settings)))
        self.ids = [machine.id for machine in self.world.machines]
        self.voters = [machine.id for machine in self.world.voters()]

    def start(self, but: Collection[int] = ()) -> None:
        """Start the machines, all but these, and the clients."""
        for id in but:
            self.world.machine(id).may_start = False
        self.world.start()
        self.world.nemesis.start()

    def process(self, id: int) -> Process:
        """The one that runs there."""
        process = self.world.machine(id).process
        assert process is not None
        return process

    def high_watermark(self, id: int) -> int:
        """Of a replica; -1 while it does not run."""
        process = self.world.machine(id).process
        return process.core.high_watermark if process is not None else -1

    def wait(self, until: Callable[[], bool], ms: int = 20_000) -> None:
        """Let time pass until this holds."""
        assert until() or self.world.run(ms, until), f"not within {ms} ms: {self.world.state()}"

    def reach(self, offset: int, ids: Collection[int] = (), ms: int = 20_000) -> None:
        """Let time pass until these replicas, or all, know that much to be committed."""
        self.wait(lambda: all(self.high_watermark(id) >= offset for id in ids or self.ids), ms)

    def highest(self) -> int:
        """The highest high watermark of all."""
        return max(self.high_watermark(id) for id in self.ids)

    def leader(self) -> int:
        """The id of the leader of the latest epoch; waits for one."""
        self.wait(lambda: self.world.leader() is not None)
        leader = self.world.leader()
        assert leader is not None
        return leader.id

    def elections(self) -> int:
        """How many epochs have had a leader."""
        return self.world.counts["elections"]

    def stop(self, id: int, how: str) -> None:
        """End a process for good: ``kill``, ``power``, or ``shutdown`` in its own time.

        ``bare power``: nothing is left that was not flushed; else chance decides page by page.
        """
        machine = self.world.machine(id)
        machine.may_start = False
        if how == "bare power":
            random, machine.disk.random = machine.disk.random, NothingIsLeft()
            self.world.end(machine, power=True)
            machine.disk.random = random
            return
        if how == "shutdown":
            process = self.process(id)
            process.enter(process.step, ev.ShutdownRequested(1_000))
            self.wait(lambda: machine.process is not process)
        else:
            self.world.end(machine, power=how == "power")

    def restart(self, id: int) -> None:
        """Start what was stopped."""
        machine = self.world.machine(id)
        machine.may_start = True
        self.world.start_later(machine, 1_000)

    def cut(self, ids: Collection[int], others: Collection[int]) -> None:
        """Nothing gets from these to those, nor back."""
        pairs = {(a, b) for a in ids for b in others if a != b}
        self.world.network.cut |= pairs | {(b, a) for a, b in pairs}

    def isolate(self, id: int) -> None:
        """Cut one off from all others."""
        self.cut([id], self.ids)

    def heal(self) -> None:
        """Everybody reaches everybody."""
        self.world.network.heal()

    def finish(self) -> None:
        """Come to rest; then every log and every producer's history must hold."""
        self.world.finish()
        assert self.world.counts["committed records"], "nothing was checked"
