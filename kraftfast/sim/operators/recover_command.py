"""``storage recover`` after a run: one replica goes on alone, by what its disk holds.

The command may die at any system call, or its machine lose power there, and is done again.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.log.recovery import LogSettings
from kraftfast.node.storage.recovering import append_sole_voter
from kraftfast.node.storage.stored_replica import StoredReplica, stored_replica
from kraftfast.sim.machines.preparer import SimPreparer
from kraftfast.sim.machines.program_disk import ProgramDisk
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.require import expect

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.world import World

TRIES_MAX = 6
CALLS_MAX = 50
SETTINGS = LogSettings(segment_bytes=16 * 1024, stride_bytes=8 * 1024, prepare_bytes=0)


class DiskOfCommand:
    """The disk of a machine, which a reader of logs may open too."""

    def __init__(self, machine: Machine) -> None:
        self._disk = machine.disk
        self._reader = ProgramDisk(machine.world, Random(1), lambda _seconds: None)

    def __getattr__(self, name: str) -> Any:
        where = self._disk if hasattr(self._disk, name) else self._reader
        return getattr(where, name)


def look(machine: Machine) -> StoredReplica:
    """Return what a replica's directory holds. Raises NotFormatted, CorruptLog."""
    disk: Any = DiskOfCommand(machine)
    return stored_replica(machine.path, disk)


def recover(machine: Machine, stored: StoredReplica) -> int:
    """Do what the command does, whose nursery has its turn while it waits for room."""
    pieces: list[Any] = []
    preparer = SimPreparer(pieces.append, lambda: None)

    def sleep(_seconds: float) -> None:
        while pieces:
            pieces.pop(0)()

    disk: Any = machine.disk
    return append_sole_voter(disk, preparer, stored, machine.endpoints, SETTINGS, sleep)


def recover_one(world: World, random: Random) -> None:
    """Recover one replica of those whose disk is sound, and have it hold all that it held."""
    sound = [each for each in world.machines if each.is_sound and each.process is None]
    if not sound or world.settings.durability == "memory":
        return
    machine = random.choice(sound)
    before = look(machine)
    held = before.end_offset
    for left in range(TRIES_MAX, -1, -1):
        machine.disk.crash_at(random.randint(0, CALLS_MAX) if left else -1)
        try:
            recover(machine, look(machine))
            break
        except Crash:
            machine.disk.kill()
            if random.random() < 0.5:
                machine.lose_power()  # also what a process that was killed had not flushed
                held = min(held, world.oracle.shadow(machine.id).durable)
    machine.disk.kill()
    machine.lose_power()  # all of it is on the disk
    after = look(machine)
    expect(after.voter_ids == (machine.id,), f"D16: the voters are {after.voter_ids}")
    expect(after.end_offset > held, "D1: the recovered log lacks what it held")
    expect(after.last_epoch > before.last_epoch, "D5: it goes on in an old epoch")
    world.count("replicas recovered")
