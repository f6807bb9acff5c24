"""What processes of one host share: UNIX sockets, what is passed over them, and ended processes.

Memory is memory: what one process stores, the others see at once. How late it learns of that, by
its doorbell or a socket, is chance. Processes that are cut off from each other hear nothing, and
do not look into each other's rings (``SimLocalPeer``), until they are not.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from kraftfast.errors import CannotListen, MalformedFrame, PeerGone
from kraftfast.node.rings.ring_fetch import ANSWER_HEAD_BYTES
from kraftfast.node.rings.ring_peer import RingPeer
from kraftfast.ring.spsc import PAGE_BYTES
from kraftfast.sim.machines.files import File, Files

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

RETRY_US = 20_000
"""How often it is looked whether a cut is over."""
TOLD_US_MAX = 2_000
"""The end of a process is known everywhere so much later, at most."""
BACKLOG = 128
OWN_MEMORY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
"""All simulated processes are one, and what is shared by none takes the kernel half the time."""


class Sleeper(Protocol):
    """What a doorbell wakes. ``id``: of its host."""

    id: int

    @property
    def asleep(self) -> bool:
        """Whether it waits, and said so."""

    def wake(self) -> None:
        """Let it go on."""


class LocalKernel:
    """All sockets and processes, as the kernel knows them."""

    listeners: dict[str, LocalSocket]  # by path
    processes: dict[int, Any]  # by id, those that have not ended
    exit_codes: dict[int, int]  # of those that ended, by id, until they are asked for
    held: dict[str, Any]  # by path of a directory: what holds it

    def __init__(self, world: World) -> None:
        self.world = world
        self.listeners, self.processes, self.exit_codes, self.held = {}, {}, {}, {}
        self._pidfds: list[Pidfd] = []
        self._next_pid = 1

    def began(self, process: object) -> int:
        """Return the id of a process that begins."""
        pid, self._next_pid = self._next_pid, self._next_pid + 1
        self.processes[pid] = process
        return pid

    def ended(self, pid: int) -> None:
        """Have every process learn that one is gone."""
        self.processes.pop(pid, None)
        for pidfd in [each for each in self._pidfds if each.pid == pid]:
            self.world.later(self.world.random.randint(1, TOLD_US_MAX), pidfd.changed)

    def watch(self, pidfd: Pidfd) -> None:
        """Tell this one when its process ends."""
        self._pidfds.append(pidfd)

    def forget(self, pidfd: Pidfd) -> None:
        """Tell it no more."""
        self._pidfds.remove(pidfd)

    def later(self, source: int, target: int, call: Callable[[], None]) -> None:
        """Do this in a while, once nothing is cut off from one host to the other."""
        world = self.world
        world.later(world.network_delays.draw(world.random), self._once_heard, source, target, call)

    def _once_heard(self, source: int, target: int, call: Callable[[], None]) -> None:
        if self.world.network.is_cut(source, target):
            self.world.later(RETRY_US, self._once_heard, source, target, call)
        else:
            call()


class Passed(File):
    """What may be passed over a socket."""

    def passed_to(self, files: Files) -> Passed:
        """Return another descriptor of it, of another process."""
        raise NotImplementedError


class SimMemoryFile(Passed):
    """A memory file: ``link.memory_file.MemoryFile``."""

    def __init__(self, files: Files, size: int, memory: mmap.mmap | None = None) -> None:
        super().__init__(files)
        self.memory = mmap.mmap(-1, size, flags=OWN_MEMORY) if memory is None else memory

    def passed_to(self, files: Files) -> SimMemoryFile:
        return SimMemoryFile(files, len(self.memory), self.memory)


class BellPipe(Passed):
    """The pipe of a doorbell. ``sleeper``: whom it wakes."""

    def __init__(self, files: Files, sleeper: Sleeper) -> None:
        super().__init__(files)
        self.sleeper = sleeper

    def passed_to(self, files: Files) -> BellPipe:
        return BellPipe(files, self.sleeper)


class SimDoorbell:
    """The doorbell of a process, as ``link.ring_link.OwnDoorbell``; ``bell``: as ``Doorbell``."""

    def __init__(self, process: Process) -> None:
        self.file = SimMemoryFile(process.files, PAGE_BYTES)
        self._pipe = BellPipe(process.files, process)
        self.bell = self

    @property
    def far_fd(self) -> int:
        return self._pipe.fd

    def close(self) -> None:
        self.file.close()
        self._pipe.close()


class SimPeerBell:
    """The doorbell of another process: ``ring.spsc.PeerDoorbell``."""

    def __init__(self, host: LocalKernel, process: Process, other: Sleeper) -> None:
        self._host, self._process, self._other = host, process, other
        self._rung = False

    def ring(self) -> bool:
        """Wake it if it sleeps."""
        if self._rung or not self._other.asleep:
            return False
        self._rung = True
        self._host.later(self._process.id, self._other.id, self._heard)
        return True

    def _heard(self) -> None:
        self._rung = False
        self._other.wake()

    def close(self) -> None:
        """Ring no more."""


class Pidfd(File):
    """Readable once the process has ended."""

    def __init__(self, files: Files, host: LocalKernel, pid: int) -> None:
        super().__init__(files)
        self._host, self.pid = host, pid
        host.watch(self)

    def readiness(self) -> int:
        return 0 if self.pid in self._host.processes else select.EPOLLIN

    def close(self) -> None:
        if self.fd >= 0:
            self._host.forget(self)
        super().close()


class SimCredentials(NamedTuple):
    """The process at the other end of a socket."""

    pid: int
    uid: int = 0


class LocalSocket(File):
    """A socket for whole messages (SOCK_SEQPACKET). It never waits."""

    # peer: the other end. at_end: nothing comes behind what is in the inbox. backlog: of a
    # listener: connections that are not accepted yet. due_us: when the last message arrives.

    def __init__(self, files: Files, host: LocalKernel, process: Process) -> None:
        super().__init__(files)
        self.host, self.process = host, process
        self.peer: LocalSocket | None = None
        self.inbox: deque[tuple[bytes, list[Passed]]] = deque()
        self.at_end = False
        self.path = ""
        self.backlog: deque[LocalSocket] = deque()
        self._flight: deque[tuple[bytes, list[Passed]] | None] = deque()

    def readiness(self) -> int:
        if self.path:
            return select.EPOLLIN if self.backlog else 0
        events = select.EPOLLOUT
        if self.inbox or self.at_end:
            events |= select.EPOLLIN
        return events | (select.EPOLLRDHUP | select.EPOLLHUP if self.at_end else 0)

    # --- messages ---------------------------------------------------------------------------------

    def post(self, message: tuple[bytes, list[Passed]] | None) -> None:
        """Put a message on its way, or the end behind the last one (None)."""
        peer = self.peer
        assert peer is not None
        self._flight.append(message)
        self.host.later(self.process.id, peer.process.id, self._arrive)

    def _arrive(self) -> None:
        message, peer = self._flight.popleft(), self.peer  # in order, whichever delay is over
        assert peer is not None
        if peer.fd < 0:
            return
        if message is None:
            peer.at_end = True
        else:
            peer.inbox.append(message)
        peer.changed()

    def break_off(self) -> None:
        """Let both ends find the connection ended, though both processes live."""
        for end in (self, self.peer):
            if end is not None and end.fd >= 0:
                end.at_end = True
                end.changed()

    # --- as ``socket.socket`` has it --------------------------------------------------------------

    def setblocking(self, flag: bool) -> None:
        assert not flag, "a loop never waits for one socket"

    def accept(self) -> tuple[LocalSocket, str]:
        if not self.backlog:
            raise BlockingIOError(errno.EAGAIN, "nobody")
        self.files.check_room()
        return self.backlog.popleft(), ""

    def send(self, data: bytes, _flags: int = 0) -> int:
        if self.at_end or self.peer is None or self.peer.fd < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        self.post((bytes(data), []))
        return len(data)

    def close(self) -> None:
        """Hang up, or stop listening: what is not accepted by now never is."""
        if self.fd < 0:
            return
        super().close()
        if self.path:
            if self.host.listeners.get(self.path) is self:
                del self.host.listeners[self.path]
            for each in self.backlog:
                each.close()
        elif self.peer is not None:
            self.post(None)

    def __enter__(self) -> LocalSocket:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


class SimLocal:
    """See :class:`kraftfast.link.host_ports.Local`, of one process."""

    # memories: of rings that it made or mapped, for faults that change their bytes.
    # socket_of: the class of its connections.

    socket_of = LocalSocket

    def __init__(self, process: Process, host: LocalKernel) -> None:
        self._process, self._files, self._host = process, process.files, host
        self.ring_bytes = process.settings.ring_bytes
        self.memories: list[mmap.mmap] = []

    def listen(self, path: str) -> LocalSocket:
        if path in self._host.listeners:
            raise CannotListen(f"cannot listen on {path}: in use")
        sock = LocalSocket(self._files, self._host, self._process)
        sock.path = path
        self._host.listeners[path] = sock
        return sock

    def connect(self, path: str, _timeout: float) -> LocalSocket:
        try:
            self._files.check_room()
        except OSError as error:
            raise PeerGone(f"no replica answers on {path}: {error.strerror}") from error
        listener, network = self._host.listeners.get(path), self._process.world.network
        if listener is None:
            refused = OSError(errno.ECONNREFUSED, os.strerror(errno.ECONNREFUSED))
            raise PeerGone(f"no replica answers on {path}") from refused
        ids = self._process.id, listener.process.id
        if network.is_cut(*ids) or network.is_cut(*ids[::-1]) or len(listener.backlog) >= BACKLOG:
            raise PeerGone(f"no replica answers on {path}") from BlockingIOError(errno.EAGAIN, "")
        sock = self.socket_of(self._files, self._host, self._process)
        sock.peer = LocalSocket(listener.files, self._host, listener.process)
        sock.peer.peer = sock
        listener.backlog.append(sock.peer)
        listener.changed()
        return sock

    def unlink(self, path: str) -> None:
        self._host.listeners.pop(path, None)

    def credentials(self, sock: LocalSocket) -> SimCredentials:
        assert sock.peer is not None
        return SimCredentials(sock.peer.process.pid)

    def send(self, sock: LocalSocket, data: bytes, fds: list[int]) -> None:
        passed = [self._files.by_fd[fd] for fd in fds]
        assert all(isinstance(each, Passed) for each in passed)
        if sock.at_end or sock.peer is None or sock.peer.fd < 0:
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        sock.post((bytes(data), passed))  # type: ignore[arg-type]

    def receive(self, sock: LocalSocket, bytes_max: int) -> tuple[bytes, list[int]]:
        if not sock.inbox:
            if sock.at_end:
                return b"", []
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        data, passed = sock.inbox.popleft()
        assert len(data) <= bytes_max
        if passed and self._files.full:  # the kernel drops them, and says so
            raise MalformedFrame("a local message with more files than descriptors are left for")
        return data, [each.passed_to(self._files).fd for each in passed]

    def memory_file(self, _name: str, size: int) -> SimMemoryFile:
        self._files.check_room()
        return SimMemoryFile(self._files, size)

    def map_peer_file(self, fd: int, size: int) -> memoryview:
        file = self._files.by_fd[fd]
        assert isinstance(file, SimMemoryFile)
        file.close()
        if size > PAGE_BYTES:
            self.memories.append(file.memory)
        return memoryview(file.memory).toreadonly()[:size]

    def peer_bell(self, _flag: memoryview, fd: int) -> SimPeerBell:
        pipe = self._files.by_fd[fd]
        assert isinstance(pipe, BellPipe)
        pipe.close()
        return SimPeerBell(self._host, self._process, pipe.sleeper)

    def open_pidfd(self, pid: int) -> int:
        if self._files.full:
            raise PeerGone(f"process {pid} is gone: {os.strerror(errno.EMFILE)}")
        return Pidfd(self._files, self._host, pid).fd

    def has_ended(self, pidfd: int) -> bool:
        return bool(self._files.by_fd[pidfd].readiness())

    def dup(self, fd: int) -> int:
        file = self._files.by_fd[fd]
        assert isinstance(file, Pidfd)
        self._files.check_room()
        return Pidfd(self._files, self._host, file.pid).fd

    def close(self, fd: int) -> None:
        if self._process.alive:
            self._files.by_fd[fd].close()


class SimLocalPeer(RingPeer):
    """A replica on this host that may be cut off, and whose records may change on their way."""

    node: Process

    def handle(self) -> bool:
        if self.node.world.network.is_cut(self.id, self.node.id):
            return False
        return bool(super().handle())

    def copy_records(self, log: Log, epoch: int, stats: Any) -> tuple[bool, bool]:
        world = self.node.world
        if world.nemesis.corrupting:
            self.change_records(world.nemesis.flip)
        before = log.bytes_appended
        done: tuple[bool, bool] = super().copy_records(log, epoch, stats)
        if len(self.payload()) == ANSWER_HEAD_BYTES:
            world.counts["bytes copied by reference"] += log.bytes_appended - before
        return done

    def change_records(self, change: Callable[[bytes], bytes]) -> None:
        """Change the records of the answer at hand where they lie in the ring."""
        records = self.payload()[ANSWER_HEAD_BYTES:]
        changed = change(records) if records else records
        if changed != records:
            for memory in self.node.host.local.memories:
                at = memory.find(records)
                if at >= 0:
                    memory[at : at + len(records)] = changed
                    return
