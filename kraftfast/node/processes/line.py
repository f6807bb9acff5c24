"""Ways out for events that never wait for their reader, which may be full, hang, or be gone.

A worker sends them to its supervisor; all else is written to stderr.
"""

from __future__ import annotations

import os
import socket
import stat
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from kraftfast.node.event_log import WARNING, Entry, entry_now, line

if TYPE_CHECKING:
    from kraftfast.node.ports import OwnProcess

UNREAD_BYTES_MAX = 64 * 1024
"""What a supervisor that hangs may leave unread: there is still room for why a worker ends."""


class ToSupervisor:
    """Sends each event over ``sock``; counts those for which the other end leaves no room."""

    def __init__(self, sock: socket.socket, process: OwnProcess) -> None:
        self.sock, self.process, self.left_out = sock, process, 0

    def __call__(self, told: Entry) -> None:
        """Send an event at once or not at all; stderr has warnings once the supervisor is gone."""
        try:
            if self.left_out:
                self._send(entry_now("left_out", told.node_id, count=self.left_out, of="events"))
                self.left_out = 0
            self._send(told)
        except BlockingIOError:
            self.left_out += 1
        except OSError:
            if told.level >= WARNING:
                self.process.write_line(line(told))

    def _send(self, told: Entry) -> None:
        if self.process.unread_bytes(self.sock) > UNREAD_BYTES_MAX:
            raise BlockingIOError
        self.sock.send(msgspec.json.encode({"told": told}), socket.MSG_DONTWAIT)


def unread_bytes(sock: socket.socket) -> int:
    """Return how much the other end of a UNIX socket has not read yet. Raises OSError."""
    import fcntl
    import termios

    unread = fcntl.ioctl(sock.fileno(), termios.TIOCOUTQ, bytes(4))
    return int.from_bytes(unread, sys.byteorder)


def show_as_text(told: Entry) -> None:
    """Write an event to stderr as a line of text, or drop it."""
    write_line(line(told))


def show_as(form: str) -> Callable[[Entry], None]:
    """Return what writes events to stderr as lines of ``event_log.FORMATS``."""
    return lambda told: write_line(line(told, form))


def write_line(text: str) -> None:
    """Write a line to stderr, or drop it if no one reads: a replica must not wait for a reader.

    Whether a write may wait is a flag of the open file, which other processes share: so a pipe or a
    terminal is opened again for this line, and a socket is told for each message.
    """
    data = f"{text}\n".encode(errors="backslashreplace")
    try:
        fd = sys.stderr.fileno()
        mode = os.fstat(fd).st_mode
    except (OSError, ValueError, AttributeError):
        _print(text)  # replaced by something that is no file, or closed, or not there
        return
    try:
        if stat.S_ISSOCK(mode):
            with socket.socket(fileno=os.dup(fd)) as sock:
                sock.send(data, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)
        elif stat.S_ISREG(mode):
            os.write(fd, data)
        else:
            flags = os.O_WRONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
            fd = os.open(f"/proc/self/fd/{fd}", flags)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)
    except OSError:
        pass


def _print(text: str) -> None:
    if sys.stderr is None:
        return  # print() would write to stdout, which is the program's
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
