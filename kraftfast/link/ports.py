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


class LocalSockets(Protocol):
    """UNIX sockets by path, as the module ``unix_socket`` has them."""

    def listen(self, path: str) -> socket.socket:
        """Return a socket that listens. Raises CannotListen."""

    def connect(self, path: str, timeout: float) -> socket.socket:
        """Return a connection to whoever listens. Raises PeerGone (``is_refused``)."""


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


class Threads(Protocol):
    """Threads of one process."""

    def start(self, run: Callable[[], object], name: str) -> Joinable:
        """Call ``run()`` in a thread that does not keep the process alive. Raises RuntimeError."""

    def queue(self) -> Queue:
        """Return an empty queue."""

    def waker(self) -> Waker:
        """Return a waker. Raises OSError."""

    def monotonic(self) -> float:
        """Return the time since some moment, seconds; it never falls."""
