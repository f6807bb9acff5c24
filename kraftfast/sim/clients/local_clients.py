"""The code of producers and admins, on the host of the replicas: over rings and local sockets.

Each is a process of its own beside the replicas. What is different from those over TCP is how they
reach a replica: they connect to the socket in its directory, and pass it the memory of two rings
and a doorbell. They are held to the same (``remote_clients``).
"""

from __future__ import annotations

import select
from typing import TYPE_CHECKING, Any

from kraftfast.client.admin.admin_ways import LocalWay
from kraftfast.client.ask_state_machine import query
from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.local_socket import ask
from kraftfast.ring.spsc import PAGE_BYTES
from kraftfast.sim.clients.program import SimClientHost, SimProgram
from kraftfast.sim.clients.remote_clients import (
    CALL_S,
    RemoteAdmin,
    RemoteClient,
    RemoteNamed,
    RemoteProducer,
)
from kraftfast.sim.machines.client_calls import ProgramDoorbell, ProgramPeerBell
from kraftfast.sim.machines.files import SimWaker
from kraftfast.sim.machines.local import BellPipe, LocalSocket, SimLocal, SimMemoryFile
from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.client.admin.admin import Admin
    from kraftfast.sim.machines.local import LocalKernel
    from kraftfast.sim.settings import WorldSettings

PADDING = (0, 0, 100, 40_000)
"""Bytes of a question and of its answer; 40,000 travel as a memory file."""
RING_BYTES = (1 << 14, 1 << 16, 1 << 20)
"""Capacities of a producer's ring: one holds a few batches only."""


class Bell:
    """The doorbell of a program, as ``link.ring_link.OwnDoorbell``; ``id``: of its host."""

    def __init__(self, program: SimProgram) -> None:
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
    """See :class:`kraftfast.link.host_ports.Local`, of one program, whose calls wait."""

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


class LocalClientHost(SimClientHost):
    """What :class:`~kraftfast.client.client_host.KernelClientHost` is in production."""

    def __init__(self, program: Any, host: LocalKernel) -> None:
        super().__init__(program)
        self.local: Any = ProgramLocal(program, host)

    def doorbell(self) -> Bell:
        return Bell(self._program)


class SmallRings(LocalConnector):
    """With rings that fill up. ``ring_bytes``: their capacity, a power of two."""

    def __init__(
        self, program: LocalClient, batch_bytes: int, window: int, ring_bytes: int
    ) -> None:
        super().__init__(program.directories(), batch_bytes, window, host=program.host)
        self.ring_bytes = ring_bytes

    def _ring_bytes(self, record_bytes: int) -> int:
        while self.ring_bytes < 4 * record_bytes:
            self.ring_bytes *= 2
        return self.ring_bytes


class LocalClient(RemoteClient):
    """A process on the host of the replicas, which know its process id."""

    pid: int

    @property
    def settings(self) -> WorldSettings:
        """Return those of the run."""
        return self.world.settings

    def begin_anew(self) -> None:
        super().begin_anew()
        self.pid = self.world.local.began(self)
        self.host = LocalClientHost(self, self.world.local)

    def end(self) -> None:
        self.world.local.ended(self.pid)
        super().end()

    def directories(self) -> dict[int, str]:
        """Return where the replicas are."""
        return {machine.id: machine.path for machine in self.world.machines}

    def connector(self, batch_bytes: int, window: int) -> SmallRings:
        return SmallRings(self, batch_bytes, window, self.world.random.choice(RING_BYTES))

    def way(self) -> LocalWay:
        return LocalWay(self.directories(), host=self.host)


class LocalProducer(LocalClient, RemoteProducer):
    """See :class:`RemoteProducer`."""


class LocalNamed(LocalClient, RemoteNamed):
    """See :class:`RemoteNamed`."""


class LocalAdmin(LocalClient, RemoteAdmin):
    """See :class:`RemoteAdmin`; it also looks at replicas, and moves the leader."""

    def also(self, admin: Admin) -> None:
        world, random = self.world, self.world.random
        what = random.choice(("cluster id", "status", "reassignment", "transfer"))
        if what == "cluster id":
            found = admin.cluster_id(timeout=CALL_S)
            require(found == world.cluster_id, f"the quorum calls itself {found}")
        elif what == "status":
            self._look(random.choice(world.machines).path)
        elif what == "reassignment" and world.settings.kraft_version:
            admin.reassignment(timeout=CALL_S)
        elif what == "transfer" and "transfer" in world.settings.changes and self._may_change():
            admin.transfer(random.choice((None, *world.voter_set().ids)), timeout=CALL_S)
        else:
            return
        world.count(f"local admins: {what}")

    def _may_change(self) -> bool:
        """Return whether the world lets an operator change who leads."""
        return self.world.operator.running

    def _look(self, directory: str) -> None:
        """Ask one replica how far it is: it never claims more than is committed (I6)."""
        status = ask(directory, {"kind": "status"}, CALL_S, self.host)
        end = self.world.oracle.committed_end
        told = status["high_watermark"]
        require(told <= end, f"I6: {directory} tells of {told}, committed is {end}")


class LocalAsker(LocalClient):
    """Asks state machines for what was acknowledged before, as ``quorum.query`` does (I20)."""

    def act(self) -> None:
        world, random = self.world, self.world.random
        for _ in range(random.randint(1, 50)):
            if not self.running and not self.wanted:
                return
            padding, at_least = random.choice(PADDING), world.acknowledged_end
            args = (padding, *([bytes(padding)] * random.randint(0, 1)))
            place = random.choice(world.machines).path
            came_to, digest, _ = query(place, args, at_least, CALL_S, self.host)
            oracle = world.oracle.snapshots
            require(
                came_to >= at_least or oracle.follows(came_to, at_least),
                f"I20: {place} was asked for {at_least}, and answers with its state at {came_to}",
            )
            require(
                digest == oracle.state_at(came_to),
                f"I20: {place} answers with what is not the state at {came_to}",
            )
            world.count("local questions answered")
            self.done()
            self.pause()
