"""The disks of all machines as a program of their host reads them: by path, without a lock on any.

A replica may write, cut, trim and remove between any two calls, and inside one that copies bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.paged_file import PagedFile
    from kraftfast.sim.world import World

PAUSES_SHARE = 0.1
"""How many calls let others go on before they return."""
PAUSE_S_MAX = 0.004


class Opened(NamedTuple):
    """A descriptor. ``life``: which disk of the machine it is on."""

    machine: Machine
    life: int
    file: PagedFile


class ProgramDisk:
    """What readers use of :class:`kraftfast.log.disk.Disk`. ``pause``: lets others go on."""

    # _open: by descriptor. _shared: those that hold the shared lock of their file.

    def __init__(self, world: World, random: Random, pause: Callable[[float], None]) -> None:
        self._world, self._random, self._pause = world, random, pause
        self._open: dict[int, Opened] = {}
        self._shared: set[int] = set()
        self._next_fd = 3

    def reads(self, machine: Machine) -> bool:
        """Return whether a file of this machine's disk is open."""
        return any(each.machine is machine for each in self._open.values())

    def end(self) -> None:
        """Close everything with the process."""
        for fd in list(self._open):
            self.close(fd)

    def _others_go_on(self) -> None:
        if self._random.random() < PAUSES_SHARE:
            self._pause(self._random.random() * PAUSE_S_MAX)

    def _machine(self, path: str) -> Machine:
        """Return whose disk a path is on."""
        return next(each for each in self._world.machines if path.startswith(f"{each.path}/"))

    def _found(self, path: str) -> Opened:
        machine = self._machine(path)
        file = machine.disk.paged_file(path)
        if file is None:
            raise FileNotFoundError(path)
        return Opened(machine, machine.formats, file)

    # --- as ``Disk`` has it -----------------------------------------------------------------------

    def is_locked(self, path: str) -> bool:
        return self._machine(path).process is not None

    def exists(self, path: str) -> bool:
        return self._machine(path).disk.exists(path)

    def list_directory(self, path: str) -> list[str]:
        self._others_go_on()
        return self._machine(path).disk.list_directory(path)

    def read_file(self, path: str) -> bytes:
        self._others_go_on()
        return self._machine(path).disk.read_file(path)

    def open_file(self, path: str) -> Any:
        self._others_go_on()
        return self._machine(path).disk.open_file(path)

    def open_to_read(self, path: str) -> int:
        self._others_go_on()
        fd, self._next_fd = self._next_fd, self._next_fd + 1
        self._open[fd] = self._found(path)
        return fd

    def share(self, fd: int) -> bool:
        self._others_go_on()
        file = self._open[fd].file
        if file.excluded:
            return False
        if fd not in self._shared:
            self._shared.add(fd)
            file.sharers += 1
        return True

    def identity(self, file: int | str) -> tuple[int, int]:
        opened = self._open[file] if isinstance(file, int) else self._found(file)
        return opened.life << 32 | opened.file.number, opened.file.size

    def pread(self, fd: int, size: int, position: int) -> bytes:
        self._others_go_on()
        file = self._open[fd].file
        if self._random.random() >= PAUSES_SHARE:
            return _copied(file, position, size)
        part = self._random.randint(0, size)
        data = _copied(file, position, part)
        self._others_go_on()
        return data + _copied(file, position + len(data), size - part)

    def close(self, fd: int) -> None:
        opened = self._open.pop(fd, None)
        if opened is not None and fd in self._shared:
            self._shared.discard(fd)
            opened.file.sharers -= 1


def _copied(file: PagedFile, position: int, size: int) -> bytes:
    end: int = min(position + size, file.size)
    return bytes(file.read(position, end)) if position < end else b""
