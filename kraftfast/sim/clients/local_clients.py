"""Producers and admins as they are, on the host of the replicas: over rings and local sockets.

Each is a process of its own beside the replicas. What is different from those over TCP is how they
reach a replica: they connect to the socket in its directory, and pass it the memory of two rings
and a doorbell. They are held to the same (``remote_clients``).
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin_ways import LocalWay
from kraftfast.client.local import LocalConnector
from kraftfast.ring.spsc import PAGE_BYTES
from kraftfast.sim.clients.program import Program, SimClientHost
from kraftfast.sim.clients.remote_clients import (
    RemoteAdmin,
    RemoteClient,
    RemoteNamed,
    RemoteProducer,
)
from kraftfast.sim.machines.client_calls import ProgramDoorbell, ProgramPeerBell
from kraftfast.sim.machines.files import SimWaker
from kraftfast.sim.machines.local import BellPipe, LocalSocket, SimLocal, SimMemoryFile

if TYPE_CHECKING:
    from kraftfast.sim.machines.local import Host
    from kraftfast.sim.settings import Settings

RING_BYTES = (1 << 14, 1 << 16, 1 << 20)
"""Capacities of a producer's ring: one holds a few batches only."""


class Bell:
    """The doorbell of a program, as ``link.ring_link.OwnDoorbell``; ``id``: of its host."""

    def __init__(self, program: Program) -> None:
        self.id = program.id
        self.file = SimMemoryFile(program.files, PAGE_BYTES)
        self._waker = SimWaker(program.files)
        self._pipe = BellPipe(program.files, self)
        self.bell = ProgramDoorbell(self.file.memory, self._waker, self._pipe.fd)

    @property
    def asleep(self) -> bool:
        """Whether the program waits, and said so."""
        return bool(self.bell.asleep)

    def wake(self) -> None:
        """Make the descriptor that it waits for readable, unless the program has ended."""
        if self._waker.fd >= 0:
            self._waker.ring()

    def close(self) -> None:
        self.bell.close()
        for each in (self.file, self._waker, self._pipe):
            each.close()


class WaitingSocket(LocalSocket):
    """A socket for whole messages whose calls wait, up to ``settimeout``."""

    timeout: float | None = None
    process: Any

    def settimeout(self, timeout: float | None) -> None:
        self.timeout = timeout

    def setblocking(self, flag: bool) -> None:
        self.timeout = None if flag else 0.0

    def wait_readable(self) -> None:
        """Wait for a message, or for the end. Raises TimeoutError, BlockingIOError."""
        if not self.inbox and not self.at_end and self.timeout != 0.0:
            self.process.wait_ready(self.fd, select.EPOLLIN, self.timeout)

    def recv_into(self, _buffer: Any, _size: int, _flags: int) -> int:
        """Return the length of the next message and leave it there (MSG_PEEK, MSG_TRUNC)."""
        self.wait_readable()
        return len(self.inbox[0][0]) if self.inbox else 0

    def recv(self, bytes_max: int) -> bytes:
        self.wait_readable()
        if not self.inbox:
            return b""
        data, passed = self.inbox.popleft()
        assert len(data) <= bytes_max and not passed
        return data


class ProgramLocal(SimLocal):
    """See :class:`kraftfast.link.ports.Local`, of one program, whose calls wait."""

    socket_of = WaitingSocket

    def connect(self, path: str, timeout: float) -> WaitingSocket:
        sock = super().connect(path, timeout)
        assert isinstance(sock, WaitingSocket)
        sock.settimeout(timeout)
        return sock

    def receive(self, sock: LocalSocket, bytes_max: int) -> tuple[bytes, list[int]]:
        assert isinstance(sock, WaitingSocket)
        sock.wait_readable()
        return super().receive(sock, bytes_max)

    def peer_bell(self, flag: memoryview, fd: int) -> Any:
        return ProgramPeerBell(super().peer_bell(flag, fd))

    def close(self, fd: int) -> None:
        file = self._files.by_fd.get(fd)
        if file is not None:  # else it went with the process, which may have begun anew
            file.close()


class LocalHost(SimClientHost):
    """What :class:`~kraftfast.client.host.KernelHost` is in production."""

    def __init__(self, program: Any, host: Host) -> None:
        super().__init__(program)
        self.local: Any = ProgramLocal(program, host)

    def doorbell(self) -> Bell:
        return Bell(self._program)


class SmallRings(LocalConnector):
    """With rings that fill up."""

    ring_bytes = 0

    def _ring_bytes(self, record_bytes: int) -> int:
        while self.ring_bytes < 4 * record_bytes:
            self.ring_bytes *= 2
        return self.ring_bytes


class LocalClient(RemoteClient):
    """A process beside the replicas, by the kernel's word: it has a number there."""

    pid: int

    @property
    def settings(self) -> Settings:
        """Return those of the run."""
        return self.world.settings

    def begin_anew(self) -> None:
        super().begin_anew()
        self.pid = self.world.local.began(self)
        self.host = LocalHost(self, self.world.local)

    def end(self) -> None:
        self.world.local.ended(self.pid)
        super().end()

    def directories(self) -> dict[int, str]:
        """Return where the replicas are."""
        return {machine.id: machine.path for machine in self.world.machines}

    def connector(self, batch_bytes: int, window: int) -> SmallRings:
        made = SmallRings(self.directories(), batch_bytes, window, host=self.host)
        made.ring_bytes = self.world.random.choice(RING_BYTES)
        return made

    def way(self) -> LocalWay:
        return LocalWay(self.directories(), host=self.host)


class LocalProducer(LocalClient, RemoteProducer):
    """See :class:`RemoteProducer`."""


class LocalNamed(LocalClient, RemoteNamed):
    """See :class:`RemoteNamed`."""


class LocalAdmin(LocalClient, RemoteAdmin):
    """See :class:`RemoteAdmin`."""
