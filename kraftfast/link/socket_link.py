"""A TCP connection that carries frames, without ever blocking: the link between hosts.

What is to be sent waits in a queue that its owner bounds; what arrives is cut into frames.
"""

from __future__ import annotations

import errno
import select
import socket
from collections import deque
from collections.abc import Iterable

from kraftfast import limits
from kraftfast.errors import PeerGone
from kraftfast.link.host_ports import Network
from kraftfast.link.resolver import Address
from kraftfast.types import address_text
from kraftfast.wire.frame import Frame, FrameSplitter
from kraftfast.wire.primitives import Buffer

READS_A_TURN = 16
PIECES_A_CALL = 64


class FramedSocket:
    """One connection. Not thread-safe; the owner waits for readiness with its own epoll."""

    # sock: non-blocking. splitter: what arrived and is no whole frame yet.
    # queued, queued_bytes: what the kernel has not taken yet.

    def __init__(self, sock: socket.socket, frame_bytes_max: int) -> None:
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self.sock = sock
        self.splitter = FrameSplitter(frame_bytes_max)
        self.queued: deque[memoryview] = deque()
        self.queued_bytes = 0

    @classmethod
    def connect(cls, network: Network, address: Address) -> FramedSocket:
        """Begin to connect; writable (or in error) once that has ended. Raises PeerGone."""
        family, kind, protocol, _, place = address
        sock = None
        try:
            sock = network.socket(family, kind, protocol)
            framed = cls(sock, limits.FRAME_BYTES_MAX)
            code = sock.connect_ex(place)
        except OSError as error:
            if sock is not None:
                sock.close()
            raise PeerGone(f"cannot reach {address_text(*place[:2])}: {error}") from None
        if code not in (0, errno.EINPROGRESS):
            sock.close()
            why = errno.errorcode.get(code, code)
            raise PeerGone(f"cannot reach {address_text(*place[:2])}: {why}")
        return framed

    def connect_error(self) -> int:
        """Return how connecting ended: 0 or an errno."""
        return self.sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)

    def fileno(self) -> int:
        return self.sock.fileno()

    def receive(self) -> Iterable[Frame]:
        """Yield the frames that have arrived; a caller may stop in between, and come back for the
        rest.

        Raises PeerGone at the end of the stream, MalformedFrame. The cap on frames may be raised by
        the caller between two of them.
        """
        splitter = self.splitter
        while (frame := splitter.next_frame()) is not None:
            yield frame
        for _ in range(READS_A_TURN):
            room = splitter.room()
            try:
                count = self.sock.recv_into(room)
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                raise PeerGone(f"connection broken: {error.strerror}") from None
            if count == 0:
                raise PeerGone("connection closed")
            splitter.received(count)
            while (frame := splitter.next_frame()) is not None:
                yield frame
            if count < len(room):
                return

    def send(self, pieces: Iterable[Buffer]) -> None:
        """Queue the pieces of a frame and send what the kernel takes now. Raises PeerGone."""
        for piece in pieces:
            view = memoryview(piece)
            if len(view):
                self.queued.append(view)
                self.queued_bytes += len(view)
        self.flush()

    def flush(self) -> bool:
        """Send on; True once nothing is queued. Raises PeerGone."""
        queued = self.queued
        while queued:
            try:
                sent = self.sock.sendmsg(
                    [queued[i] for i in range(min(len(queued), PIECES_A_CALL))]
                )
            except (BlockingIOError, InterruptedError):
                return False
            except OSError as error:
                raise PeerGone(f"connection broken: {error.strerror}") from None
            self.queued_bytes -= sent
            while sent:
                head = queued[0]
                if sent < len(head):
                    queued[0] = head[sent:]
                    break
                sent -= len(head)
                queued.popleft()
        return True

    def interest(self) -> int:
        """Return what to wait for, as epoll events."""
        return select.EPOLLIN | (select.EPOLLOUT if self.queued else 0)

    def close(self) -> None:
        self.queued.clear()
        self.sock.close()


def listen(network: Network, host: str, port: int, backlog: int = 512) -> socket.socket:
    """Return a non-blocking listening socket. Raises PeerGone if the address cannot be bound."""
    sock = None
    try:
        family, kind, protocol, _, address = network.getaddrinfo(
            host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        sock = network.socket(family, kind, protocol)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        if sock is not None:
            sock.close()
        raise PeerGone(f"cannot listen on {address_text(host, port)}: {error.strerror}") from None
    return sock
