"""The host of links and clients in production: this machine, by the kernel. See ``ports``."""

from __future__ import annotations

import contextlib
import os
import queue
import socket
import threading
import time
from collections.abc import Callable


class KernelNetwork:
    """TCP, and names by the resolver of this host."""

    getaddrinfo = staticmethod(socket.getaddrinfo)
    socket = socket.socket


class Eventfd:
    """See :class:`~kraftfast.link.ports.Waker`."""

    fd = -1

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)

    def fileno(self) -> int:
        return self.fd

    def ring(self) -> None:
        with contextlib.suppress(BlockingIOError):  # full of wake-ups: as good
            os.eventfd_write(self.fd, 1)

    def clear(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.fd)

    def close(self) -> None:
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    __del__ = close


class KernelThreads:
    """See :class:`~kraftfast.link.ports.Threads`."""

    queue = queue.SimpleQueue
    waker = Eventfd
    monotonic = staticmethod(time.monotonic)

    def start(self, run: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread


NETWORK = KernelNetwork()
THREADS = KernelThreads()
