"""What clients use of the process that they run in, and production's, by the kernel.

The simulator runs producers, consumers and admins on a host of its own.
"""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

from kraftfast.client import names
from kraftfast.client.clock import Clock
from kraftfast.client.producer.stream import Stream
from kraftfast.link.kernel import LOCAL, KernelProgram
from kraftfast.link.ports import Local, Program, Thread

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk


class Host(Program, Protocol):
    """Time, threads, locks and sockets of one process."""

    clock: Clock
    """For compiled code."""
    local: Local
    """The replicas of this host."""

    @property
    def disk(self) -> Disk:
        """Return what their logs are read from."""

    def is_current(self, thread: Thread) -> bool:
        """Return whether ``thread`` is the calling one."""

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        """Return a connection, made within ``timeout`` seconds. Raises OSError."""

    def stream(self, fd: int) -> Stream:
        """Return a connection for compiled code."""

    def poller(self) -> Any:
        """Return what waits for descriptors, as ``select.epoll`` makes it."""

    def doorbell(self) -> Any:
        """Return what a replica of this host wakes us by (``OwnDoorbell``). Raises OSError."""


class KernelHost(KernelProgram):
    """See :class:`Host`."""

    clock = Clock()
    local: Local = LOCAL
    poller = staticmethod(select.epoll)
    stream = Stream

    @property
    def disk(self) -> Disk:
        from kraftfast.log.disk import DISK  # which those that read no log do without

        return DISK

    def is_current(self, thread: Thread) -> bool:
        return thread is threading.current_thread()

    def connect(self, address: tuple[str, int], timeout: float) -> socket.socket:
        return names.connect(address, timeout)

    def doorbell(self) -> Any:
        from kraftfast.link.ring_link import OwnDoorbell  # which those over TCP do without

        return OwnDoorbell()


HOST: Host = KernelHost()
