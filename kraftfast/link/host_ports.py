"""What links and clients use of their host, so that they run unchanged on another one.

``kernel`` has production's. The simulator's have a network of its own, and threads that are events.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from typing import Any, Protocol


class Network(Protocol):
    """Sockets and names, as the module ``socket`` has them."""

    def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a socket. Raises OSError."""

    def getaddrinfo(
        self, host: str | None, port: int, *, type: int, flags: int = 0
    ) -> list[tuple[Any, ...]]:
        """Return the addresses of a name; it may wait for a name server. Raises OSError."""


class Local(Protocol):
    """Other processes of this host: UNIX sockets, what is passed over them, and which have ended.

    Descriptors are numbers, to be closed by :meth:`close`.
    """

    ring_bytes: int
    """Capacity of a ring between replicas, a power of two."""

    def listen(self, path: str) -> socket.socket:
        """Return a socket that listens. Raises CannotListen."""

    def connect(self, path: str, timeout: float) -> socket.socket:
        """Return a connection to the process that listens. Raises PeerGone (``is_refused``)."""

    def unlink(self, path: str) -> None:
        """Remove the name of a socket, if it is there."""

    def credentials(self, sock: socket.socket) -> Any:
        """Return the ``pid`` and ``uid`` at the other end. Raises PeerGone for another user's."""

    def send(self, sock: socket.socket, data: bytes, fds: list[int]) -> None:
        """Send one message with descriptors. Raises OSError."""

    def receive(self, sock: socket.socket, bytes_max: int) -> tuple[bytes, list[int]]:
        """Return one message and its descriptors. Raises MalformedFrame, OSError."""

    def memory_file(self, name: str, size: int) -> Any:
        """Return a memory file of this process (``MemoryFile``). Raises OSError."""

    def map_peer_file(self, fd: int, size: int) -> Any:
        """Return a read-only map of a passed memory file; closes ``fd``. Raises PeerGone."""

    def peer_bell(self, flag: Any, fd: int) -> Any:
        """Return the doorbell of another process (``PeerDoorbell``); takes ``fd``. Raises PeerGone.

        ``flag``: the map of its page.
        """

    def open_pidfd(self, pid: int) -> int:
        """Return a descriptor that is readable once the process has ended. Raises PeerGone."""

    def has_ended(self, pidfd: int) -> bool:
        """Return whether that process has ended."""

    def dup(self, fd: int) -> int:
        """Return another descriptor of the same file. Raises OSError."""

    def close(self, fd: int) -> None:
        """Close a descriptor."""


class Waker(Protocol):
    """A descriptor that another thread makes readable."""

    def fileno(self) -> int:
        """Return the descriptor."""

    def ring(self) -> None:
        """Make it readable; from any thread."""

    def clear(self) -> None:
        """Make it unreadable again, if it is readable."""

    def close(self) -> None:
        """Close it."""


class Joinable(Protocol):
    """A thread that was started."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""


class Queue(Protocol):
    """A queue between threads, as ``queue.SimpleQueue``."""

    def put(self, item: Any) -> None:
        """Add an item; never wait."""

    def get(self) -> Any:
        """Take the oldest item; wait for one."""


class Event(Protocol):
    """A flag that a thread waits for, as ``threading.Event``."""

    def set(self) -> None:
        """Set it, and wake the thread that waits."""

    def clear(self) -> None:
        """Clear it."""

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until it is set, at most ``timeout`` seconds; return whether it is."""


class Threads(Protocol):
    """Threads of one process."""

    def start(self, run: Callable[[], object], name: str) -> Joinable:
        """Call ``run()`` in a thread that does not keep the process alive. Raises RuntimeError."""

    def queue(self) -> Queue:
        """Return an empty queue."""

    def event(self) -> Event:
        """Return a flag that is not set."""

    def waker(self) -> Waker:
        """Return a waker. Raises OSError."""

    def monotonic(self) -> float:
        """Return the time since some moment, seconds; it never falls."""

    def sleep(self, seconds: float) -> None:
        """Pause the thread that calls this; it must not be the loop's."""


class Thread(Joinable, Protocol):
    """A thread, as ``threading.Thread`` has it; ``ident``: None until it was started."""

    @property
    def ident(self) -> int | None:
        """Return its number, None until it was started."""

    def start(self) -> None:
        """Begin to run it. Raises RuntimeError."""

    def is_alive(self) -> bool:
        """Return whether it runs."""


class Program(Protocol):
    """Time, threads and locks of a program that uses replicas or supervises them."""

    def monotonic(self) -> float:
        """Return the time since some moment, seconds; it never falls."""

    def sleep(self, seconds: float) -> None:
        """Pause the calling thread."""

    def lock(self) -> Any:
        """Return a lock, as ``threading.Lock`` makes it."""

    def reentrant_lock(self) -> Any:
        """Return a lock that a thread may take twice, as ``threading.RLock`` makes it."""

    def thread(self, run: Callable[[], object], name: str) -> Thread:
        """Return a thread that calls ``run()`` and does not keep the process alive."""

    def poll(self) -> Any:
        """Return what waits for descriptors once, as ``select.poll`` makes it.

        It has no descriptor of its own.
        """

    def waker(self) -> Waker:
        """Return a descriptor that ends the wait of another thread. Raises OSError."""
