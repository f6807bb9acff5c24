"""Descriptors of a simulated process, and waiting for them: what the kernel's epoll does."""

from __future__ import annotations

import errno
import heapq
import os
import select
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftfast.sim.world import World

ALWAYS = select.EPOLLERR | select.EPOLLHUP
"""Events that are told whether they are asked for or not."""
FIRST_FD = 1 << 20
"""Beyond any number of the process that runs the simulator."""


class Files:
    """The descriptors of one process. ``host``: the id of its machine.

    Numbers are used again as soon as they are free, the lowest first, as the kernel does.
    """

    by_fd: dict[int, File]
    full: bool  # the process may open no more (EMFILE)

    def __init__(self, world: World, host: int) -> None:
        self.world, self.host = world, host
        self.by_fd, self.full = {}, False
        self._free: list[int] = []
        self._next = FIRST_FD

    def add(self, file: File, fd: int = -1) -> int:
        """Give a file its number: this one, in a process that has none of its own yet."""
        if fd >= 0:
            self._free += [each for each in range(self._next, fd) if each not in self._free]
            if fd in self._free:
                self._free.remove(fd)
            heapq.heapify(self._free)
            self._next = max(self._next, fd + 1)
        elif self._free:
            fd = heapq.heappop(self._free)
        else:
            fd, self._next = self._next, self._next + 1
        self.by_fd[fd] = file
        return fd

    def check_room(self) -> None:
        """Raise OSError where the process may have no more."""
        if self.full:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def remove(self, fd: int) -> None:
        """Free a number."""
        del self.by_fd[fd]
        heapq.heappush(self._free, fd)

    def vanish(self, power: bool) -> None:
        """Close all files with their process; ``power``: no other process is told."""
        for file in list(self.by_fd.values()):
            file.vanish(power)


class File:
    """Something with a descriptor: -1 once it is closed."""

    pollers: list[Poller]

    def __init__(self, files: Files, fd: int = -1) -> None:
        self.files = files
        self.pollers = []
        self.fd = files.add(self, fd)

    def fileno(self) -> int:
        return self.fd

    def readiness(self) -> int:
        """Return its events of now."""
        raise NotImplementedError

    def changed(self) -> None:
        """Wake the process that waits for it."""
        for poller in self.pollers:
            poller.changed(self)

    def close(self) -> None:
        if self.fd >= 0:
            for poller in list(self.pollers):
                poller.unregister(self.fd)
            self.files.remove(self.fd)
            self.fd = -1

    def vanish(self, power: bool) -> None:
        """End with its process."""
        self.close()


class Poller:
    """An epoll. ``wake()`` is called when something it watches is ready."""

    # _interest: descriptor -> events. _hot: descriptors that may be ready, in the order of news.

    def __init__(self, files: Files, wake: Callable[[], None]) -> None:
        self._files, self._wake = files, wake
        self._interest: dict[int, int] = {}
        self._hot: dict[int, None] = {}

    def register(self, fd: int, events: int) -> None:
        self._files.by_fd[fd].pollers.append(self)
        self.modify(fd, events)

    def modify(self, fd: int, events: int) -> None:
        self._interest[fd] = events
        self.changed(self._files.by_fd[fd])

    def unregister(self, fd: int) -> None:
        self._files.by_fd[fd].pollers.remove(self)
        del self._interest[fd]
        self._hot.pop(fd, None)

    def close(self) -> None:
        """Watch nothing."""
        for fd in list(self._interest):
            self.unregister(fd)

    def changed(self, file: File) -> None:
        """Note that a file has news."""
        self._hot[file.fd] = None
        if file.readiness() & (self._interest[file.fd] | ALWAYS):
            self._wake()

    def ready(self) -> list[tuple[int, int]]:
        """[(fd, events)] of now."""
        found = []
        for fd in list(self._hot):
            events = self._files.by_fd[fd].readiness() & (self._interest[fd] | ALWAYS)
            if events:
                found.append((fd, events))
            else:
                del self._hot[fd]
        return found


class SimWaker(File):
    """An eventfd: :class:`kraftfast.link.host_ports.Waker`."""

    rung = False

    def readiness(self) -> int:
        return select.EPOLLIN if self.rung else 0

    def ring(self) -> None:
        self.rung = True
        self.changed()

    def clear(self) -> None:
        self.rung = False


class SimSignals(SimWaker):
    """The signals of a simulated process; see ``kraftfast.node.processes.signals``."""

    def handle(self) -> None:
        """Do nothing: no kernel sends any."""

    def take(self) -> bool:
        came, self.rung = self.rung, False
        return came
