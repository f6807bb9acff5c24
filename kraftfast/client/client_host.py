"""What clients use of the process that they run in, and production's, by the kernel.

The simulator runs producers, consumers and admins on a host of its own.
"""

from __future__ import annotations

import select
import socket
import threading
from typing import TYPE_CHECKING, Any, Protocol

from kraftfast.client import name_lookup
from kraftfast.client.clock import Clock
from kraftfast.client.producer.socket_calls import Stream
from kraftfast.link.host_ports import Local, Program, Thread
from kraftfast.link.kernel import LOCAL, KernelProgram

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk


class ClientHost(Program, Protocol):
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


class KernelClientHost(KernelProgram):
    """See :class:`ClientHost`."""

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
        return name_lookup.connect(address, timeout)

    def doorbell(self) -> Any:
        from kraftfast.link.ring_link import OwnDoorbell  # which those over TCP do without

        return OwnDoorbell()


HOST: ClientHost = KernelClientHost()
