"""One machine: a disk, a clock, and the process that runs on it, if any."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kraftfast.core.voters import VoterSet
from kraftfast.log.directory import LogOptions, MetaProperties, format_directory
from kraftfast.sim.clock import Clock
from kraftfast.sim.disk import SimDisk
from kraftfast.types import ReplicaKey

if TYPE_CHECKING:
    from kraftfast.sim.process import Process
    from kraftfast.sim.world import World


class Machine:
    """What outlives a process. ``id`` is that of the replica whose directory it holds."""

    id: int
    key: ReplicaKey
    disk: SimDisk
    clock: Clock
    process: Process | None
    boot_id: str  # changes with every loss of power
    disk_factor: int  # how many times slower than usual the disk is
    crash_loses_power: bool  # what a crash inside a system call takes with it
    memory_in_doubt: bool  # durability=memory: it lost what it held, and nobody told it since
    rotten: bool  # bytes of its disk have changed by themselves
    dead: str  # why it will never run again; empty while it may
    starting: bool  # a start is due
    may_start: bool  # False: it stays down until the world is healed, or for good

    def __init__(self, world: World, id: int, voters: VoterSet) -> None:
        self.world, self.id, self.voters = world, id, voters
        self.settings = world.settings
        self.path = f"/replica-{id}"
        self.clock = Clock(world.random.randint(0, 10_000_000))
        self.process = None
        self.boots = 0
        self.disk_factor = 1
        self.crash_loses_power = False
        self.memory_in_doubt = self.rotten = False
        self.dead = ""
        self.starting = False
        self.may_start = True
        self.formats = 0
        self.format()

    @property
    def boot_id(self) -> str:  # type: ignore[no-redef]
        return f"boot-{self.id}-{self.boots}"

    def format(self) -> None:
        """A fresh disk with a fresh directory on it, under a new directory id."""
        self.formats += 1
        self.disk = SimDisk(Random(self.world.random.getrandbits(64)))
        self.key = ReplicaKey(self.id, bytes([64 + self.id, self.formats]) * 8)
        meta = MetaProperties(self.world.cluster_id, self.id, self.key.directory_id)
        format_directory(self.disk, self.path, meta, LogOptions(self.settings.durability))

    def lose_power(self) -> None:
        """Only what is on the disk is left."""
        self.boots += 1
        self.memory_in_doubt = self.settings.durability == "memory"
        self.disk.lose_power()

    def is_voter(self) -> bool:
        """Whether its replica is in the voter set."""
        return self.voters.is_voter(self.key)
