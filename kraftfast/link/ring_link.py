"""A link over rings: two rings in sealed memory files, one each way, and the doorbells of both ends.

Whoever connects proposes a generation and two capacities and passes its files; whoever accepts
checks them, makes its own and answers. The UNIX socket stays open: its end, or the pidfd, tells
that the other process is gone (R2); then the whole link is dropped (R4).
"""

from __future__ import annotations

import os
import secrets
import socket
from typing import Any

import msgspec

from kraftfast.errors import InvalidOption, MalformedFrame, PeerGone
from kraftfast.link.memory_file import (
    MemoryFile,
    map_peer_file,
    receive_with_fds,
    send_with_fds,
)
from kraftfast.link.unix_socket import credentials, open_pidfd
from kraftfast.ring.spsc import (
    PAGE_BYTES,
    Doorbell,
    PeerDoorbell,
    RingIn,
    RingOut,
    format_consumer,
    format_producer,
    producer_file_bytes,
)

SOCKET_NAME = "replica.sock"
"""In a replica's directory: where its host's processes reach it."""

HELLO_BYTES_MAX = 64 * 1024
RING_FDS = 4
RING_BYTES_MAX = 64 * 1024 * 1024


class OwnDoorbell:
    """This process's doorbell with the memory file that others get to see."""

    def __init__(self) -> None:
        self.file = MemoryFile("kraftfast-doorbell", PAGE_BYTES)
        self.bell = Doorbell(self.file.memory)

    def close(self) -> None:
        self.bell.close()
        self.file.close()


class RingFiles:
    """The two files that one end writes: the data of its own ring, the cursor of the other's."""

    def __init__(self, generation: int, capacity_out: int, capacity_in: int) -> None:
        self.data = MemoryFile("kraftfast-ring", producer_file_bytes(capacity_out))
        self.cursor = MemoryFile("kraftfast-cursor", PAGE_BYTES)
        format_producer(self.data.memory, capacity_out, generation)
        format_consumer(self.cursor.memory, capacity_in, generation)

    def fds(self, doorbell: OwnDoorbell) -> list[int]:
        """What the other end needs, in the order in which :class:`RingLink` takes it."""
        return [self.data.fd, self.cursor.fd, doorbell.file.fd, doorbell.bell.fd]

    def close(self) -> None:
        self.data.close()
        self.cursor.close()


class RingLink:
    """Both ends of two rings with one other process.

    ``out``, ``inbox``: our ends. ``bell``: the other side's doorbell. ``sock``, ``pidfd``: readable
    when the other process is gone. ``hello``: what it said of itself. ``pid``: its process id.
    """

    def __init__(
        self, sock: socket.socket, files: RingFiles, fds: list[int], capacity: int, hello: Any
    ) -> None:
        self.sock, self.hello = sock, hello
        self.pid = credentials(sock).pid
        if len(fds) != RING_FDS:
            close_all(fds)
            raise PeerGone(f"the other side passed {len(fds)} files instead of {RING_FDS}")
        data_fd, cursor_fd, flag_fd, bell_fd = fds
        try:
            data = map_peer_file(data_fd, producer_file_bytes(capacity))
            cursor = map_peer_file(cursor_fd, PAGE_BYTES)
            flag = map_peer_file(flag_fd, PAGE_BYTES)
        except PeerGone:
            os.close(bell_fd)
            raise
        self.bell = PeerDoorbell(flag, bell_fd)
        self.out = RingOut(files.data.memory, cursor)
        self.inbox = RingIn(files.cursor.memory, data)
        self.pidfd = open_pidfd(self.pid)

    def alive(self) -> bool:
        """Whether neither side has broken the ring's rules; death is told by sock and pidfd."""
        return not self.out.faulted() and not self.inbox.faulted()

    def close(self) -> None:
        """Drop the link; the rings' memory goes when nobody uses it any more."""
        self.sock.close()
        self.bell.close()
        if self.pidfd >= 0:
            os.close(self.pidfd)
            self.pidfd = -1


def close_all(fds: list[int]) -> None:
    """Give up descriptors that came with a message which is not taken."""
    for fd in fds:
        os.close(fd)


class RingOffer:
    """Rings offered over a connected socket; the answer makes them a link.

    ``capacity_*``: bytes, powers of two. Raises PeerGone if the offer cannot be sent.
    """

    def __init__(
        self,
        sock: socket.socket,
        doorbell: OwnDoorbell,
        hello: dict[str, Any],
        capacity_out: int,
        capacity_in: int,
    ) -> None:
        self.sock, self.capacity_in = sock, capacity_in
        generation = secrets.randbits(62) | 1
        self.files = RingFiles(generation, capacity_out, capacity_in)
        offer = hello | {"generation": generation, "out": capacity_out, "in": capacity_in}
        try:
            send_with_fds(sock, msgspec.json.encode(offer), self.files.fds(doorbell))
        except OSError as error:
            self.files.close()
            raise PeerGone(f"cannot offer rings: {error}") from None

    def finish(self, data: bytes, fds: list[int]) -> RingLink:
        """The link, from the other side's answer. Raises PeerGone with its reason if it refused."""
        try:
            answer = decode_hello(data)
            if "error" in answer:
                close_all(fds)
                raise PeerGone(str(answer["error"]))
            return RingLink(self.sock, self.files, fds, self.capacity_in, answer)
        finally:
            self.files.close()

    def wait(self) -> RingLink:
        """:meth:`finish` on a blocking socket. Raises PeerGone, also when its timeout runs out."""
        try:
            data, fds = receive_with_fds(self.sock, HELLO_BYTES_MAX)
        except OSError as error:
            self.files.close()
            raise PeerGone(f"no answer to the offer of rings: {error}") from None
        return self.finish(data, fds)


def accept_rings(
    sock: socket.socket,
    doorbell: OwnDoorbell,
    offer: dict[str, Any],
    fds: list[int],
    answer: dict[str, Any],
) -> RingLink:
    """Take an offer of rings that came over ``sock`` and answer it. Raises PeerGone."""
    try:
        generation, theirs, ours = (int(offer[name]) for name in ("generation", "out", "in"))
        if not 0 < generation < 2**63 or max(theirs, ours) > RING_BYTES_MAX:
            raise ValueError
        files = RingFiles(generation, ours, theirs)
    except (KeyError, ValueError, TypeError, InvalidOption):
        close_all(fds)
        raise PeerGone("an offer of rings without a generation or with a bad capacity") from None
    try:
        link = RingLink(sock, files, fds, theirs, offer)
        send_with_fds(sock, msgspec.json.encode(answer), files.fds(doorbell))
    except OSError as error:
        raise PeerGone(f"cannot answer an offer of rings: {error}") from None
    finally:
        files.close()
    return link


def decode_hello(data: bytes) -> dict[str, Any]:
    """What the other side says of itself. Raises PeerGone if it ended, MalformedFrame."""
    if not data:
        raise PeerGone("the other side closed the connection")
    try:
        hello = msgspec.json.decode(data, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise MalformedFrame(f"a local message that is no JSON object: {error}") from None
    return hello
