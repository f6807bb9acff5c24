"""Two ends of a local connection, and memory files that keep no rules."""

from __future__ import annotations

import fcntl
import os
import socket

from kraftfast.link.hello import HELLO_BYTES_MAX, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import F_ADD_SEALS, SEALS, receive_with_fds, send_with_fds
from kraftfast.link.ring_link import OwnDoorbell, RingFiles, RingLink, RingOffer, accept_rings

CAPACITY = 64 * 1024


def pair() -> tuple[socket.socket, socket.socket]:
    """A connected pair of local sockets."""
    return socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)


def memory_file(size: int, seals: int = SEALS) -> int:
    """A memory file with these seals only."""
    fd = os.memfd_create("test", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, seals)
    return fd


class Doorbells:
    """Both ends' doorbells, closed at the end."""

    def __init__(self) -> None:
        self.mine, self.yours = OwnDoorbell(), OwnDoorbell()

    def __enter__(self) -> Doorbells:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.mine.close()
        self.yours.close()


def linked(
    bells: Doorbells, out: int = CAPACITY, into: int = CAPACITY
) -> tuple[RingLink, RingLink]:
    """A link, both ends: (who offered, who accepted)."""
    a, b = pair()
    offer = RingOffer(a, bells.mine, Hello(kind="peer"), out, into)
    hello, fds = received(b)
    theirs = accept_rings(b, bells.yours, hello, fds, Hello(kind="peer"))
    return offer.finish(*offer.receive()), theirs


def received(sock: socket.socket) -> tuple[Hello, list[int]]:
    """One hello with its descriptors."""
    data, fds = receive_with_fds(sock, HELLO_BYTES_MAX)
    return decode_hello(data), fds


class Forger:
    """A peer that offers rings of its own making: each file can be replaced before it is sent."""

    def __init__(self, out: int = CAPACITY, into: int = CAPACITY, generation: int = 7) -> None:
        self.doorbell = OwnDoorbell()
        self.hello = Hello(kind="peer", generation=generation, out=out, into=into)
        self.files = RingFiles(generation, out, into)
        self.fds = [os.dup(fd) for fd in self.files.fds(self.doorbell)]

    def replace(self, place: int, fd: int) -> None:
        os.close(self.fds[place])
        self.fds[place] = fd

    def send(self, sock: socket.socket) -> None:
        send_with_fds(sock, encode_hello(self.hello), self.fds)

    def close(self) -> None:
        for fd in self.fds:
            os.close(fd)
        self.files.close()
        self.doorbell.close()
