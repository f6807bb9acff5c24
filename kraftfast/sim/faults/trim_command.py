"""``kraftfast log trim`` between two lives of a replica: all of its log is left, in Kafka's files.

The command may die at any system call, or its machine lose power there; it is done again, or the
replica starts on what there is.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.errors import DirectoryInUse, KraftfastError
from kraftfast.log.reading.at_rest import looked_at, trim_log
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.operators.recover_command import DiskOfCommand, look
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.node.storage.stored_replica import StoredReplica
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

TRIES_MAX = 3
CALLS_MAX = 40
CRASHES, LOSES_POWER = 0.6, 0.6
ENDS_ONE = 0.6
"""How often a replica is ended for it, though another one may be down."""


class Trimming:
    """The half of a :class:`~kraftfast.sim.faults.nemesis.Nemesis` that trims."""

    world: World
    random: Random

    def _victim(self) -> Machine | None:
        raise NotImplementedError

    def _may_lose_power(self, machine: Machine) -> bool:
        raise NotImplementedError

    def _trim(self) -> None:
        """Trim the log of a replica that is down, or that is ended for it."""
        machine = self._stopped()
        if machine is None or self.world.survivors is not None:
            return
        machine.disk.failures.clear()
        try:
            self._trim_with_crashes(machine)
        except DirectoryInUse:
            self.world.count("trims beside a start")
        except KraftfastError as error:
            expected = type(error) in machine.disk.failures or machine.rotten
            require(expected, f"L1: the log of {machine.id} cannot be trimmed: {error!r}")
            self.world.count(f"trims refused by {type(error).__name__}")

    def _stopped(self) -> Machine | None:
        down = [each for each in self.world.machines if each.process is None]
        if down and self.random.random() >= ENDS_ONE:
            return self.random.choice(down)
        machine = self._victim()
        if machine is not None:
            power = self.random.random() < 0.5 and self._may_lose_power(machine)
            self.world.end(machine, power)
        return machine

    def _trim_with_crashes(self, machine: Machine) -> None:
        for left in range(TRIES_MAX, -1, -1):
            before = look(machine)
            if left and self.random.random() < CRASHES:
                machine.disk.crash_at(self.random.randint(0, CALLS_MAX))
            try:
                trim(machine)
            except Crash:
                self._stop_in_it(machine)
                if self.random.random() < 0.5:
                    return  # the replica starts on what there is
                continue
            machine.disk.crash_at(-1)
            self.world.trace(f"{machine.id}: its log is trimmed")
            self.world.count("logs trimmed")
            check_trimmed(self.world, machine, before)
            return

    def _stop_in_it(self, machine: Machine) -> None:
        self.world.count("crashes in a trim")
        machine.disk.kill()
        if self.random.random() < LOSES_POWER and self._may_lose_power(machine):
            self.world.trace(f"{machine.id}: loses its power in a trim")
            machine.lose_power()
            self.world.oracle.shadow(machine.id).lost_memory = True


def trim(machine: Machine) -> None:
    """Do what the command does. Raises KraftfastError."""
    disk: Any = machine.disk
    directory = ReplicaDirectory(disk, machine.path)
    try:
        trim_log(disk, directory)
    finally:
        directory.close()


def check_trimmed(world: World, machine: Machine, before: StoredReplica) -> None:
    """I14: it is the log that it was; D1: all of it is on the disk; and nothing is behind it."""
    after = look(machine)
    require(
        (after.log_start_offset, *after.place) == (before.log_start_offset, *before.place),
        f"I14: the log of {machine.id} begins and ends at {after.log_start_offset}, {after.place} "
        f"once it is trimmed; before: {before.log_start_offset}, {before.place}",
    )
    require(
        after.phantom_tail == before.phantom_tail,
        f"D10: {machine.id} may lack records up to {before.phantom_tail}, and says "
        f"{after.phantom_tail} once it is trimmed",
    )
    disk: Any = DiskOfCommand(machine)
    with looked_at(disk, ReplicaDirectory(disk, machine.path, lock=False)) as recovery:
        left = [each.file.path for each in recovery.segments if each.file.size != each.position]
    left = [path for path in left if not machine.disk.paged_file(path).sharers]  # type: ignore
    require(not left, f"zeros are left behind the last batch of {left}, which were trimmed")
    shadow = world.oracle.shadow(machine.id)
    for entry in shadow.between(after.log_start_offset, after.end_offset):
        require(
            machine.rotten or world.oracle.is_stable(machine, entry),
            f"D1: {entry} is not on the disk of {machine.id}, whose log was trimmed",
        )
        shadow.durable = max(shadow.durable, entry.batch.end_offset)
