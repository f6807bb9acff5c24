"""Write lines for people to stderr, which another process reads: it may be full, or gone."""

from __future__ import annotations

import os
import socket
import stat
import sys


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
        _print(text)  # replaced by something that is no file, or closed
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
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        pass
