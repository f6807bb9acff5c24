"""What goes wrong: one method per fault of ``settings``, each undone after a while."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.limits import BATCH_HEADER_BYTES, BATCH_OVERHEAD_BYTES
from kraftfast.sim.clients.named import NamedProducer
from kraftfast.sim.faults.aimed import Aimed
from kraftfast.sim.faults.deposed_leaders import DeposedLeaders
from kraftfast.sim.faults.lost_majority import LosingMajority
from kraftfast.sim.faults.planned import Planned
from kraftfast.sim.faults.rotting import Rotting
from kraftfast.sim.faults.trim_command import Trimming

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

WRITE_BACK_US = 25_000
DRIFT_MAX = 0.2
"""How far a clock may be off in a healed world, as a share. Answers come after at most half the
request timeout (``core/config.py``): clocks of which one runs twice as fast end requests and
leaderships that nothing is wrong with."""


class Nemesis(Rotting, Trimming, Aimed, LosingMajority, DeposedLeaders, Planned):
    """Draws faults for as long as the world lets it."""

    running: bool
    corrupting: bool  # answers are damaged on their way, now and then

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.random
        self.settings = world.settings
        self.running = False
        self.corrupting = False
        self.held = set()

    def start(self) -> None:
        """Begin; disks write back on their own account from now on."""
        self.running = True
        self._next()
        for machine in self.world.machines:
            self._write_back(machine)

    def _next(self) -> None:
        if self.settings.faults:
            mean_us = self.settings.fault_every_ms * 1000
            self.world.later(1 + int(self.random.expovariate(1.0) * mean_us), self._strike)

    def _strike(self) -> None:
        if self.running:
            fault = self.random.choice(self.settings.faults)
            self.world.count(fault)
            self.world.trace(f"nemesis: {fault}")
            getattr(self, f"_{fault}")()
            self._next()

    def _write_back(self, machine: Machine) -> None:
        if not self.running:
            return  # no more power cuts
        machine.disk.write_back(self.random.choice((0.0, 0.1, 0.5, 1.0)))
        delay_us = 1 + int(self.random.expovariate(1.0) * WRITE_BACK_US)
        self.world.later(delay_us, self._write_back, machine)

    def heal(self) -> None:
        """Strike no more, and put right what is still wrong."""
        self.running = self.corrupting = False
        self.world.network.heal()
        for producer in self.world.producers:
            producer.poisonous = False
        for machine in sorted(self.held, key=lambda each: each.id):
            self._let_go(machine)
        for machine in self.world.machines:
            self._heal(machine)

    def _heal(self, machine: Machine) -> None:
        machine.disk.crash_at(-1)
        machine.disk.give_space()
        machine.disk.failing_syncs = 0
        machine.disk_factor = 1
        machine.flushes_hang = machine.nursery_hangs = False
        if abs(machine.clock.rate - 1.0) > DRIFT_MAX:
            machine.clock.set_rate(1.0, self.world.now_us)
        if machine.process is not None:
            machine.process.files.full = False
            if machine.process.paused:
                machine.process.resume()

    # --- victims ----------------------------------------------------------------------------------

    def _running(self) -> list[Machine]:
        return [machine for machine in self.world.machines if machine.process is not None]

    def _victim(self) -> Machine | None:
        """Return one that runs; the leader more often than others."""
        running = self._running()
        leaders = [m for m in running if m.process is not None and m.process.core.role == "leader"]
        if leaders and self.random.random() < 0.4:
            return self.random.choice(leaders)
        return self.random.choice(running) if running else None

    def _may_lose_power(self, machine: Machine) -> bool:
        """durability=memory survives while fewer than a majority have lost their memory.

        Where voters change, of every set that may come to count.
        """
        if self.settings.durability != "memory":
            return True
        if self.settings.changes:
            return self.world.operator.can_spare(machine)
        unsure = {
            each.id
            for each in self.world.voters()
            if each.id == machine.id
            or each.memory_in_doubt
            or (each.process is not None and each.process.core.in_doubt)
        }
        return len(unsure) <= (len(self.world.voters()) - 1) // 2

    def takes_the_power(self, machine: Machine) -> bool:
        """Return whether the crash inside a system call that happens now is the machine's."""
        return machine.crash_loses_power and self._may_lose_power(machine)

    # --- processes and machines -----------------------------------------------------------------

    def _kill(self) -> None:
        machine = self._victim()
        if machine is not None:
            self.world.end(machine, power=False)

    def _power(self) -> None:
        machine = self._victim()
        if machine is not None and self._may_lose_power(machine):
            self.world.end(machine, power=True)

    def _blackout(self) -> None:
        machines = list(self.world.machines)
        count = self.random.choice((len(machines), len(machines) // 2 + 1))
        for machine in self.random.sample(machines, count):
            self.world.end(machine, power=True)

    def _crash_in_call(self) -> None:
        machine = self.random.choice(self.world.machines)
        machine.crash_loses_power = self.random.random() < 0.6
        machine.disk.crash_at(self.random.choice((0, 1, 2, 3, 5, 8, 13, 21, 34)))

    def _pause(self) -> None:
        machine = self._victim()
        if machine is not None and machine.process is not None:
            process = machine.process
            process.paused = True
            longest_ms = self.settings.fetch_timeout_ms * 4
            self._after(1, longest_ms, lambda: process.resume() if process.paused else None)

    def _shutdown(self) -> None:
        machine = self._victim()
        if machine is not None and machine.process is not None:
            process = machine.process
            process.enter(process.step, ev.ShutdownRequested(self.settings.fetch_timeout_ms))

    def _resign(self) -> None:
        for machine in self._running():
            process = machine.process
            if process is not None and process.core.role == "leader":
                process.enter(process.resign)

    # --- the network ------------------------------------------------------------------------------

    def _cut(self) -> None:
        ids = [machine.id for machine in self.world.machines]
        pairs = {(a, b) for a in ids for b in ids if a != b and self.random.random() < 0.3}
        self._cut_for_a_while(pairs)

    def _isolate(self) -> None:
        machine = self._victim()
        if machine is None:
            return
        others = [each.id for each in self.world.machines if each is not machine]
        way = self.random.choice(("both", "in", "out"))
        pairs = {(other, machine.id) for other in others if way != "out"}
        pairs |= {(machine.id, other) for other in others if way != "in"}
        self._cut_for_a_while(pairs)

    def _cut_for_a_while(self, pairs: set[tuple[int, int]]) -> None:
        network = self.world.network
        network.cut |= pairs
        self._after(5, self.settings.fetch_timeout_ms * 5, network.cut.difference_update, pairs)

    def _reset(self) -> None:
        pairs = self.world.network.pairs()
        for pair in pairs if self.random.random() < 0.3 else pairs[:1]:
            self.world.network.reset(pair)

    def _corrupt_network(self) -> None:
        self.corrupting = True
        self._after(20, 500, setattr, self, "corrupting", False)

    def flip(self, data: bytes) -> bytes:
        """Return records as they arrive: a bit may differ."""
        if self.random.random() > 0.1:
            return data
        place = self.random.randrange(len(data))
        if 12 <= place - _batch_start(data, place) < 16:
            return data  # the leader epoch lies outside the CRC: TCP's checksum has to hold there
        flipped = data[place] ^ (1 << self.random.randrange(8))
        return data[:place] + bytes([flipped]) + data[place + 1 :]

    # --- disks and clocks -------------------------------------------------------------------------

    def _slow_disk(self) -> None:
        machine = self.random.choice(self.world.machines)
        machine.disk_factor = self.random.choice((10, 100, 1000))
        self._after(20, self.settings.fetch_timeout_ms * 3, setattr, machine, "disk_factor", 1)

    def _full_disk(self) -> None:
        machine = self.random.choice(self.world.machines)
        machine.disk.fill_up(self.random.randint(0, 20))
        self._after(20, self.settings.fetch_timeout_ms * 3, machine.disk.give_space)

    def _failing_sync(self) -> None:
        machine = self.random.choice(self.world.machines)
        machine.disk.failing_syncs = 1

    def _descriptors(self) -> None:
        """A process may open no more descriptors for a while: its clients have them all."""
        machine = self._victim()
        if machine is not None and machine.process is not None:
            files = machine.process.files
            files.full = True
            self._after(5, self.settings.fetch_timeout_ms * 3, setattr, files, "full", False)

    def _clock(self) -> None:
        machine = self.random.choice(self.world.machines)
        machine.clock.set_rate(self.random.choice((0.0, 0.5, 0.9, 1.1, 2.0)), self.world.now_us)
        self._after(10, 1000, self._steady, machine)

    def _steady(self, machine: Machine) -> None:
        machine.clock.set_rate(self.random.choice((1.0, 0.99, 1.01)), self.world.now_us)

    # --- clients ----------------------------------------------------------------------------------

    def _producer_restart(self) -> None:
        named = [each for each in self.world.producers if isinstance(each, NamedProducer)]
        if named:
            self.random.choice(named).restart()

    def _client_kill(self) -> None:
        if self.world.programs:
            self.random.choice(self.world.programs).restart()

    def _poison(self) -> None:
        for producer in self.world.producers:
            producer.poisonous = self.random.random() < 0.5


def _batch_start(data: bytes, place: int) -> int:
    """Return where the batch begins that the byte at ``place`` is in."""
    start = 0
    while start + BATCH_HEADER_BYTES <= len(data):
        size = struct.unpack_from(">i", data, start + 8)[0] + BATCH_OVERHEAD_BYTES
        if place < start + size:
            break
        start += size
    return start
