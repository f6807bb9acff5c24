"""A listening socket in the loop: hands over each connection.

Without descriptors the kernel keeps the listener readable and refuses every accept: then it is
left alone for a moment, so that the loop does not spin (L7) and serves the connections that it has.
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftfast import forks

if TYPE_CHECKING:
    from kraftfast.node.loop import Loop

ACCEPTS_A_TURN = 64
PAUSE_MS = 100
OtherSide = Any
"""What ``accept`` says of the other side; its shape is that of the socket's family."""
OUT_OF = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)


class Acceptor:
    """One listener. ``accepted(sock, address)`` takes over each connection."""

    # loop, sock: as named. accepted: what takes connections.
    # resume_ms: when a pause ends, -1 for none.

    def __init__(
        self, loop: Loop, sock: socket.socket, accepted: Callable[[socket.socket, OtherSide], None]
    ) -> None:
        self.loop, self.sock, self.accepted = loop, sock, accepted
        self.resume_ms = -1
        forks.own(self)
        loop.watch(sock.fileno(), select.EPOLLIN, self._ready)

    def _ready(self, _events: int) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, address = self.sock.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in OUT_OF:
                    self._pause(error)
                    return
                continue  # the client is gone again
            try:
                self.accepted(sock, address)
            except Exception as error:
                self.loop.node.failures.end(error, "a connection that comes in", sock.close)

    def _pause(self, error: OSError) -> None:
        node = self.loop.node
        node.tell("accept_failed", why=error.strerror, pause_ms=PAUSE_MS)
        self.resume_ms = node.now_ms() + PAUSE_MS
        self.loop.rewatch(self.sock.fileno(), 0)

    def tend(self, now_ms: int) -> None:
        """Listen again after a pause."""
        if 0 <= self.resume_ms <= now_ms:
            self.resume_ms = -1
            self.loop.rewatch(self.sock.fileno(), select.EPOLLIN)

    def due_ms(self, default: int) -> int:
        """Return when ``tend`` has something to do."""
        return self.resume_ms if self.resume_ms >= 0 else default

    def close(self) -> None:
        """Accept no more connections."""
        self.loop.unwatch(self.sock.fileno())
        self.sock.close()

    def disown(self) -> None:
        """Close the listeners in a child that a state machine forked: the next process listens."""
        self.sock.close()
