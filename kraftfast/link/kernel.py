"""The host of links and clients in production: this machine, by the kernel. See ``ports``."""

from __future__ import annotations

import contextlib
import os
import queue
import select
import socket
import threading
import time
from collections.abc import Callable

from kraftfast.link import unix_socket
from kraftfast.link.memory_file import (
    MemoryFile,
    map_peer_file,
    own_bell,
    receive_with_fds,
    send_with_fds,
)
from kraftfast.ring.spsc import PeerDoorbell


class KernelNetwork:
    """TCP, and names by the resolver of this host."""

    getaddrinfo = staticmethod(socket.getaddrinfo)
    socket = socket.socket


class KernelLocal:
    """See :class:`~kraftfast.link.host_ports.Local`."""

    ring_bytes = 4 * 1024 * 1024
    listen = staticmethod(unix_socket.listen)
    connect = staticmethod(unix_socket.connect)
    credentials = staticmethod(unix_socket.credentials)
    open_pidfd = staticmethod(unix_socket.open_pidfd)
    send = staticmethod(send_with_fds)
    receive = staticmethod(receive_with_fds)
    memory_file = MemoryFile
    map_peer_file = staticmethod(map_peer_file)
    dup = staticmethod(os.dup)
    close = staticmethod(os.close)

    def unlink(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(path)

    def peer_bell(self, flag: memoryview, fd: int) -> PeerDoorbell:
        return PeerDoorbell(flag, own_bell(fd))

    def has_ended(self, pidfd: int) -> bool:
        poll = select.poll()
        poll.register(pidfd, select.POLLIN)
        return bool(poll.poll(0))


class Eventfd:
    """See :class:`~kraftfast.link.host_ports.Waker`."""

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
    """See :class:`~kraftfast.link.host_ports.Threads`."""

    queue = queue.SimpleQueue
    event = threading.Event
    waker = Eventfd
    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)

    def start(self, run: Callable[[], object], name: str) -> threading.Thread:
        thread = threading.Thread(target=run, name=name, daemon=True)
        thread.start()
        return thread


class KernelProgram:
    """See :class:`~kraftfast.link.host_ports.Program`."""

    monotonic = staticmethod(time.monotonic)
    sleep = staticmethod(time.sleep)
    lock = staticmethod(threading.Lock)
    reentrant_lock = staticmethod(threading.RLock)
    poll = staticmethod(select.poll)
    waker = Eventfd

    def thread(self, run: Callable[[], object], name: str) -> threading.Thread:
        return threading.Thread(target=run, name=name, daemon=True)


NETWORK = KernelNetwork()
LOCAL = KernelLocal()
THREADS = KernelThreads()
