"""One machine: a disk, a clock, and the process that runs on it, if any."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, cast

from kraftfast import limits
from kraftfast.core.config import QuorumConfig
from kraftfast.log.small_files.directory import (
    META,
    LogOptions,
    MetaProperties,
    format_directory,
    read_meta,
)
from kraftfast.node.node_config import ListenerConfig, NodeConfig, VoterConfig
from kraftfast.sim.chance import Chance
from kraftfast.sim.machines.machine_clock import MachineClock
from kraftfast.sim.machines.quorum_disk import QUORUM
from kraftfast.sim.machines.sim_disk import SimDisk
from kraftfast.types import Endpoint, KRaftVersion, KRaftVoters, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import World


class SimConfig(NodeConfig, frozen=True):
    """With what a real configuration has no names for: limits that tests make small."""

    quorum: Any = None
    static_voters: Any = None

    def quorum_config(self, durability: str, witness: bool = False) -> QuorumConfig:
        return self.quorum  # type: ignore[no-any-return]

    def voter_set(self) -> VoterSet:
        return self.static_voters  # type: ignore[no-any-return]


class Machine:
    """What outlives a process. ``id`` is that of the replica whose directory it holds."""

    id: int
    key: ReplicaKey
    disk: SimDisk
    clock: MachineClock
    process: Process | None
    ended_us: int  # when the last one ended, the world's time
    voters: VoterSet  # controller.quorum.voters; empty where the log has the voters from the start
    moves: int  # how often it has changed its address
    bootstrap: VoterSet | None  # of the snapshot that its directory was formatted with
    disk_factor: int  # how many times slower than usual the disk is
    flushes_hang: bool  # nothing else does: no flush of its log ends for now
    nursery_hangs: bool  # nothing else does: no byte is prepared for its log for now
    crash_loses_power: bool  # what a crash inside a system call takes with it
    dark: bool  # it lost its power, and has not started since: it is silent
    memory_in_doubt: bool  # durability=memory: it lost what it held, and learnt nothing since
    rotten: bool  # bytes of its disk have changed by themselves
    damaged_end: int  # exclusive end of the batch that did, -1 if it was something else
    dead: str  # why it will never run again; empty while it may
    starting: bool  # a start is due
    may_start: bool  # False: it stays down until the world is healed, or for ever

    def __init__(self, world: World, id: int) -> None:
        self.world, self.id = world, id
        self.settings = world.settings
        self.path = f"{QUORUM}/{id}" if self.settings.supervised else f"/replica-{id}"
        self.clock = MachineClock(world.random.randint(0, 10_000_000))
        self.process = None
        self.ended_us = 0
        self.moves = 0
        self.disk_factor = 1
        self.flushes_hang = self.nursery_hangs = False
        self.crash_loses_power = False
        self.memory_in_doubt = self.rotten = self.dark = False
        self.damaged_end = -1
        self.dead = ""
        self.starting = False
        self.may_start = True
        self.formats = 0
        self._named: dict[int, ReplicaKey] = {}
        first = first_voters(self.settings)
        self.voters = first if self.settings.kraft_version == 0 else VoterSet()
        self.bootstrap = None
        votes = first.is_voter(first_key(id))
        self.format(first if votes and self.settings.kraft_version else None)

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where it can be reached now."""
        return endpoints_of(self.id, self.moves)

    def node_config(self) -> SimConfig:
        """Return what its process is told at its start, as where all others are now."""
        machines, network = self.world.machines, self.world.network
        others = [each for each in machines if each is not self]
        beside = [each for each in others if network.is_ring(self.id, each.id)]
        servers = [each.endpoints[0][1:] for each in others if each not in beside]
        asked = (*(-2 - index for index in range(len(servers))), *(each.id for each in beside))
        (place,) = self.endpoints
        return SimConfig(
            node_id=self.id,
            directory=self.path,
            voters=[VoterConfig(each.id, directory=each.path) for each in beside],
            listeners=[ListenerConfig(*place)],
            bootstrap_servers=[] if self.voters else servers,
            idle="block",
            processors=(0, 1) if self.settings.supervised and len(machines) > 1 else (),
            request_timeout_ms=self.settings.request_timeout_ms,
            cluster_id=self.world.cluster_id,
            segment_bytes=self.settings.segment_bytes,
            segment_ms=self.settings.segment_ms,
            stride_bytes=self.settings.stride_bytes,
            prepare_bytes=self.settings.prepare_bytes,
            retention_bytes=self.settings.retention_bytes,
            retention_ms=self.settings.retention_ms,
            snapshot_bytes=self.settings.snapshot_bytes,
            state_machine="simulated" if self.settings.snapshots in ("machine", "own") else "",
            quorum=self.settings.quorum_config(self.endpoints, () if self.voters else asked),
            static_voters=VoterSet(
                Voter(each.id, each.directory_id, self.world.machine(each.id).endpoints)
                for each in self.voters
            ),
        )

    def _new_disk(self) -> SimDisk:
        random = Chance(self.world.random.getrandbits(64))
        return SimDisk(random, lambda: self.world.now_us // 1000)

    def format(self, bootstrap: VoterSet | None = None) -> None:
        """Give it a fresh disk with a fresh directory on it, under a new directory id."""
        self.formats += 1
        self.disk = self._new_disk()
        self.key = self.key_of(self.formats)
        self.bootstrap = bootstrap
        meta = MetaProperties(self.world.cluster_id, self.id, self.key.directory_id)
        first = (KRaftVersion(1), KRaftVoters(bootstrap)) if bootstrap is not None else ()
        options = LogOptions(self.settings.durability)
        format_directory(cast("Disk", self.disk), self.path, meta, options, first)

    def lose_disk(self, keeps_files: bool) -> None:
        """Have nothing a replica could start by, until a program of its host formats it anew.

        The program that replaces it gives no replica static voters from then on, but tells it of
        the others. ``keeps_files``: all else of its directory is there.
        """
        self.voters = VoterSet()
        if keeps_files:
            self.disk.unlink(os.path.join(self.path, META))
        else:
            self.disk = self._new_disk()
            self.disk.make_directory(os.path.dirname(self.path))
        self.bootstrap = None
        self.rotten, self.damaged_end = False, -1

    def take_key(self) -> None:
        """Be the replica that a program has formatted here. Raises NotFormatted."""
        id = read_meta(cast("Disk", self.disk), self.path).directory_id
        if id != self.key.directory_id:
            self.formats += 1
            self.key = self._named[self.formats] = ReplicaKey(self.id, id)

    def key_of(self, format: int) -> ReplicaKey:
        """Return the replica that it held after so many formats."""
        if format in self._named:
            return self._named[format]
        return ReplicaKey(self.id, bytes([64 + self.id, format]) * 8)

    def directories(self) -> list[bytes]:
        """Return the directory ids that it ever had."""
        return [self.key_of(format).directory_id for format in range(self.formats + 1)]

    def lose_power(self) -> None:
        """Only what is on the disk is left."""
        self.dark = True
        self.memory_in_doubt = self.settings.durability == "memory"
        self.disk.lose_power()
        for program in self.world.programs:
            program.lost_power(self)

    @property
    def is_sound(self) -> bool:
        """Whether it holds what it ever promised, once it runs."""
        return not self.dead and not self.rotten

    @property
    def is_certain(self) -> bool:
        """Whether it knows all that it ever acknowledged from memory."""
        in_doubt = self.process is not None and self.process.core.in_doubt
        return self.settings.durability != "memory" or not (self.memory_in_doubt or in_doubt)


def first_key(id: int) -> ReplicaKey:
    """Return a replica with the directory that its machine came with."""
    return ReplicaKey(id, bytes([64 + id, 1]) * 8)


def endpoints_of(id: int, moves: int = 0) -> tuple[Endpoint, ...]:
    """Return where a machine listens after so many moves."""
    return (Endpoint("CONTROLLER", f"host-{id}", 9000 + moves),)


def first_voters(settings: WorldSettings) -> VoterSet:
    """Return those that a quorum begins with: by id alone where voters are static."""
    ids = range(1, settings.voters + 1)
    if settings.kraft_version == 0:
        return VoterSet.of(*ids)
    least, most = limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX
    return VoterSet(Voter(*first_key(id), endpoints_of(id), least, most) for id in ids)
