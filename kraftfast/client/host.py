"""What clients use of the process that they run in, and production's, by the kernel.

The simulator runs producers, consumers and admins on a host of its own.
"""

from __future__ import annotations

import select
import socket
import threading
import time
from _thread import allocate_lock
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from kraftfast.client import names
from kraftfast.client.clock import Clock
from kraftfast.client.producer.stream import Stream
from kraftfast.link.kernel import LOCAL, Eventfd
from kraftfast.link.ports import Local, Waker

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk


class Thread(Protocol):
    """A thread: ``threading.Thread`` is one."""

    def start(self) -> None:
        """Begin to run it. Raises RuntimeError."""

    def join(self, timeout: float | None = None) -> None:
        """Wait until it has ended, at most ``timeout`` seconds."""

    def is_alive(self) -> bool:
        """Return whether it runs."""


class Host(Protocol):
    """Time, threads, locks and sockets of one process."""

    clock: Clock
    """For compiled code."""
    local: Local
    """The replicas of this host."""

    @property
    def disk(self) -> Disk:
        """Return what their logs are read from."""

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

    def is_current(self, thread: Thread) -> bool:
        """Return whether ``thread`` is the calling one."""

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """Return a connection, made within ``timeout`` seconds. Raises OSError."""

    def stream(self, fd: int) -> Stream:
        """Return a connection for compiled code."""

    def poller(self) -> Any:
        """Return what waits for descriptors, as ``select.epoll`` makes it."""

    def poll(self) -> Any:
        """Return the same without a descriptor of its own, as ``select.poll`` makes it."""

    def waker(self) -> Waker:
        """Return a descriptor that ends the wait of another thread. Raises OSError."""

    def doorbell(self) -> Any:
        """Return what a replica of this host wakes us by (``OwnDoorbell``). Raises OSError."""


class KernelHost:
    """See :class:`Host`."""

    clock = Clock()
    local: Local = LOCAL
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    lock = staticmethod(allocate_lock)
    reentrant_lock = staticmethod(threading.RLock)
    poller = staticmethod(select.epoll)
    poll = staticmethod(select.poll)
    stream = Stream
    waker = Eventfd

    @property
    def disk(self) -> Disk:
        from kraftfast.log.disk import DISK  # which those that read no log do without

        return DISK

    def thread(self, run: Callable[[], object], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)

    def is_current(self, thread: Thread) -> bool:
        return thread is threading.current_thread()

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        return names.connect(address, timeout)

    def doorbell(self) -> Any:
        from kraftfast.link.ring_link import OwnDoorbell  # which those over TCP do without

        return OwnDoorbell()


HOST: Host = KernelHost()
