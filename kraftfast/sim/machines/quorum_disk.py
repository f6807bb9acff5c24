"""The files of a quorum's directory as a program of its host sees them, and what it waits by.

Each replica's directory is on the disk of its machine; ``quorum.json`` and the locks are on one of
the host's own. There are no links.
"""

from __future__ import annotations

import os
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.sim.machines.program_disk import ProgramDisk
from kraftfast.sim.machines.sim_disk import SimDisk

if TYPE_CHECKING:
    from kraftfast.sim.clients.program import SimProgram
    from kraftfast.sim.machines.machine import Machine

QUORUM = "/quorum"
RETRY_S = 0.001
READING = frozenset({"is_locked", "open_to_read", "share", "identity", "pread", "close"})
"""What readers of logs do, whose files change meanwhile."""


class QuorumDisk:
    """What :class:`kraftfast.log.disk.Disk` is in production, over several disks.

    ``own``: of what is no replica's; it outlives the program.
    """

    # _fds: descriptor -> whose it is, and which there. _reading: of logs.

    def __init__(self, program: SimProgram, own: SimDisk, random: Random) -> None:
        self._world, self.own = program.world, own
        self._fds: dict[int, tuple[SimDisk, int]] = {}
        self._next_fd = 1 << 30
        self._reading = ProgramDisk(program.world, random, lambda s: program.host.sleep(s))

    def disk_of(self, path: str) -> SimDisk:
        """Return the disk that a path is on: a directory that was set aside stays where it was."""
        machine = self._machine(path)
        return self.own if machine is None else machine.disk

    def _machine(self, path: str) -> Machine | None:
        for machine in self._world.machines:
            rest = path.removeprefix(machine.path)
            if rest != path and not rest[:1].isdecimal():
                return machine
        return None

    def end(self) -> None:
        """Let go of everything with the process: nothing keeps a lock of it."""
        self._reading.end()
        for disk, fd in self._fds.values():
            disk.unlock(fd)
        self._fds.clear()

    def __getattr__(self, name: str) -> Any:
        if name in READING:
            return getattr(self._reading, name)

        def call(path: str, *arguments: Any) -> Any:
            return getattr(self.disk_of(path), name)(path, *arguments)

        return call

    def lock(self, path: str) -> int:
        disk = self.disk_of(path)
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._fds[fd] = disk, disk.lock(path)
        return fd

    def unlock(self, fd: int) -> None:
        disk, there = self._fds.pop(fd, (None, 0))
        if disk is not None:
            disk.unlock(there)

    def list_directory(self, path: str) -> list[str]:
        names = self.disk_of(path).list_directory(path)
        if path == QUORUM:
            for machine in self._world.machines:
                names = names + machine.disk.list_directory(path)
        return sorted(names)

    def sync_directory(self, path: str) -> None:
        disks = [self.disk_of(path)]
        if path == QUORUM:
            disks += [machine.disk for machine in self._world.machines]
        for disk in disks:
            armed = disk.crash_at(-1)  # whatever is to stop there is a replica, not a program
            try:
                disk.sync_directory(path)
            finally:
                disk.crash_at(*armed)


class MadeDisk(QuorumDisk):
    """The disk of a quorum that no machine runs: all is on one disk, and no replica runs."""

    def _machine(self, _path: str) -> None:
        return None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.own, name)

    def is_locked(self, _path: str) -> bool:
        return False


class SimNames:
    """What :class:`kraftfast.node.storage.storage_host.KernelStorageHost` says of names."""

    disk: Any

    def has_name(self, path: str) -> bool:
        return self.disk.exists(path)  # type: ignore[no-any-return]

    is_directory = has_name

    def is_link(self, _path: str) -> bool:
        return False

    is_mount = is_link

    def real_path(self, path: str) -> str:
        return os.path.normpath(path)

    def device_of(self, path: str) -> int:
        if not self.has_name(path):
            raise FileNotFoundError(path)
        return id(self.disk.disk_of(path))

    def refuse_unwritable(self, place: str) -> None:
        """Do nothing: a directory can be made anywhere."""


class SimCondition:
    """``threading.Condition`` of a program; a waiter looks again after a moment."""

    def __init__(self, program: SimProgram) -> None:
        self._program, self._lock = program, program.host.lock()

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(self, *_exc: object) -> None:
        self._lock.release()

    def notify(self) -> None:
        """Do nothing: a waiter looks again by itself."""

    def wait_for(self, predicate: Any) -> None:
        while not predicate():
            self._lock.release()
            self._program.host.sleep(RETRY_S)
            self._lock.acquire()
