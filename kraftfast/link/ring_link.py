"""A link over rings: two rings in sealed memory files, one each way, and both ends' doorbells.

The side that connects proposes a generation and two capacities and passes its files; the other one
checks them, makes its own and answers. The UNIX socket stays open: its end, or the pidfd, tells
that the other process is gone (R2); then the whole link is dropped (R4). What is said over the
UNIX socket is JSON, what goes over the rings is fixed layouts and Kafka's frames, nothing is
unpickled (R9, S5).
"""

from __future__ import annotations

import os
import socket

import msgspec

from kraftfast import forks
from kraftfast.errors import InvalidOption, PeerGone
from kraftfast.link.hello import (
    HELLO_BYTES_MAX,
    Hello,
    check_layout,
    decode_hello,
    encode_hello,
)
from kraftfast.link.host_ports import Local
from kraftfast.link.kernel import LOCAL
from kraftfast.link.memory_file import MemoryFile
from kraftfast.link.unix_socket import PidfdOwner
from kraftfast.ring.spsc import (
    PAGE_BYTES,
    Doorbell,
    RingIn,
    RingOut,
    format_consumer,
    format_producer,
    producer_file_bytes,
)
from kraftfast.types import SOCKET_NAME as SOCKET_NAME

RING_FDS = 4
RING_BYTES_MAX = 64 * 1024 * 1024


class OwnDoorbell:
    """This process's doorbell with the memory file that others get to see."""

    def __init__(self) -> None:
        self.file = MemoryFile("kraftfast-doorbell", PAGE_BYTES)
        self.bell = Doorbell(self.file.memory)
        forks.own(self)

    def close(self) -> None:
        self.bell.close()
        self.file.close()

    disown = close


class RingFiles:
    """The two files that one end writes: the data of its own ring, the cursor of the other's.

    Raises InvalidOption or OverflowError for a bad capacity, OSError without descriptors or memory.
    """

    def __init__(
        self, generation: int, capacity_out: int, capacity_in: int, local: Local = LOCAL
    ) -> None:
        self.data = local.memory_file("kraftfast-ring", producer_file_bytes(capacity_out))
        try:
            self.cursor = local.memory_file("kraftfast-cursor", PAGE_BYTES)
        except OSError:
            self.data.close()
            raise
        try:
            format_producer(self.data.memory, capacity_out, generation)
            format_consumer(self.cursor.memory, capacity_in, generation)
        except BaseException:
            self.close()
            raise

    def fds(self, doorbell: OwnDoorbell) -> list[int]:
        """Return what the other end needs, in the order in which :class:`RingLink` takes it."""
        return [self.data.fd, self.cursor.fd, doorbell.file.fd, doorbell.bell.far_fd]

    def close(self) -> None:
        self.data.close()
        self.cursor.close()


class RingLink(PidfdOwner):
    """Both ends of two rings with one other process.

    ``out``, ``inbox``: our ends. ``bell``: the other side's doorbell. ``sock``, ``pidfd``: readable
    when the other process is gone. ``hello``: what it said of itself. ``pid``: its process id.
    ``local``: what the link is made of.

    Takes over ``fds``, also when it raises PeerGone: the other side did not keep the rules.
    """

    def __init__(
        self,
        sock: socket.socket,
        files: RingFiles,
        fds: list[int],
        capacity: int,
        hello: Hello,
        local: Local = LOCAL,
    ) -> None:
        self.sock, self.hello, self.local = sock, hello, local
        self._close_fd = local.close
        left = list(fds)
        try:
            self.pid = local.credentials(sock).pid
            if len(fds) != RING_FDS:
                raise PeerGone(f"the other side passed {len(fds)} files instead of {RING_FDS}")
            data = local.map_peer_file(left.pop(0), producer_file_bytes(capacity))
            cursor = local.map_peer_file(left.pop(0), PAGE_BYTES)
            flag = local.map_peer_file(left.pop(0), PAGE_BYTES)
            self.out = RingOut(files.data.memory, cursor)
            self.inbox = RingIn(files.cursor.memory, data)
            self.bell = local.peer_bell(flag, left.pop(0))
            self.pidfd = local.open_pidfd(self.pid)
        except BaseException:
            close_all(left, local)
            raise
        forks.own(self)

    def close(self) -> None:
        """Drop the link; the rings' memory is freed with its last mapping."""
        self.sock.close()
        self.bell.close()
        self.close_pidfd()

    disown = close


def close_all(fds: list[int], local: Local = LOCAL) -> None:
    """Close descriptors that came with a message which is not taken."""
    for fd in fds:
        local.close(fd)


class RingOffer:
    """Rings offered over a connected socket; the answer makes them a link.

    ``capacity_*``: bytes, powers of two. Raises PeerGone if the offer cannot be sent.
    """

    def __init__(
        self,
        sock: socket.socket,
        doorbell: OwnDoorbell,
        hello: Hello,
        capacity_out: int,
        capacity_in: int,
        local: Local = LOCAL,
    ) -> None:
        self.sock, self.capacity_in, self.local = sock, capacity_in, local
        generation = int.from_bytes(os.urandom(7)) << 1 | 1
        try:
            self.files = RingFiles(generation, capacity_out, capacity_in, local)
        except OSError as error:
            raise PeerGone(f"no memory for rings: {error.strerror}") from None
        offer = msgspec.structs.replace(
            hello, generation=generation, out=capacity_out, into=capacity_in
        )
        try:
            local.send(sock, encode_hello(offer), self.files.fds(doorbell))
        except OSError as error:
            self.files.close()
            raise PeerGone(f"cannot offer rings: {error.strerror}") from None

    def receive(self) -> tuple[Hello, list[int]]:
        """Return the other side's answer, for :meth:`finish`.

        Raises PeerGone, MalformedFrame, UnsupportedVersion.
        """
        fds: list[int] = []
        try:
            data, fds = self.local.receive(self.sock, HELLO_BYTES_MAX)
            answer = decode_hello(data)
            check_layout(answer)
            return answer, fds
        except BaseException as error:
            close_all(fds, self.local)
            self.files.close()
            if isinstance(error, OSError):
                why = error.strerror or error  # a timeout has no errno
                raise PeerGone(f"the offer of rings was not answered: {why}") from None
            raise

    def finish(self, answer: Hello, fds: list[int]) -> RingLink:
        """Return the link, by the other side's answer. Raises PeerGone with its reason if it
        refused.
        """
        try:
            if answer.error:
                close_all(fds, self.local)
                raise PeerGone(answer.error)
            return RingLink(self.sock, self.files, fds, self.capacity_in, answer, self.local)
        finally:
            self.files.close()

    def abandon(self) -> None:
        """Wait for no answer from now on."""
        self.files.close()
        self.sock.close()


def accept_rings(
    sock: socket.socket,
    doorbell: OwnDoorbell,
    offer: Hello,
    fds: list[int],
    answer: Hello,
    local: Local = LOCAL,
) -> RingLink:
    """Take an offer of rings that came over ``sock`` and answer it; takes over ``fds``.

    Raises PeerGone.
    """
    try:
        if not 0 < offer.generation < 2**63 or max(offer.out, offer.into) > RING_BYTES_MAX:
            raise InvalidOption("out of range")
        files = RingFiles(offer.generation, offer.into, offer.out, local)
    except (InvalidOption, OverflowError):
        close_all(fds, local)
        raise PeerGone("an offer of rings without a generation or with a bad capacity") from None
    except OSError as error:
        close_all(fds, local)
        raise PeerGone(f"no memory for the rings on offer: {error.strerror}") from None
    try:
        link = RingLink(sock, files, fds, offer.out, offer, local)
        try:
            local.send(sock, encode_hello(answer), files.fds(doorbell))
        except OSError as error:
            link.close()
            raise PeerGone(f"cannot answer an offer of rings: {error.strerror}") from None
    finally:
        files.close()
    return link
