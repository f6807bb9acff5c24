"""UNIX sockets by path, however long the path is, and the process at the other end.

The kernel takes 107 bytes of path; longer ones go through the directory's descriptor in /proc.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Callable
from typing import NamedTuple

from kraftfast.errors import CannotListen, PeerGone

PATH_BYTES_MAX = 107
SO_PEERCRED = 17
BACKLOG = 128


class Credentials(NamedTuple):
    """The process that opened the other end, by the kernel's word."""

    pid: int
    uid: int


def listen(path: str) -> socket.socket:
    """Return a listening SOCK_SEQPACKET socket for the owner alone; replaces what an ended process
    left.

    Raises CannotListen.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET | socket.SOCK_NONBLOCK)
    try:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass
        mask = os.umask(0o177)
        try:
            _at(path, sock.bind)
        finally:
            os.umask(mask)
        sock.listen(BACKLOG)
    except OSError as error:
        sock.close()
        raise CannotListen(f"cannot listen on {path}: {error.strerror}") from None
    return sock


def connect(path: str, timeout: float) -> socket.socket:
    """Return a connected SOCK_SEQPACKET socket (``timeout`` seconds for each call, 0: never
    blocks).

    Raises PeerGone; :func:`is_refused` tells whether that means that no process listens there.
    """
    sock = None
    try:
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        sock.settimeout(timeout)
        _at(path, sock.connect)
    except (OSError, ValueError) as error:  # a ValueError: the path is none
        if sock is not None:
            sock.close()
        reason = getattr(error, "strerror", None) or error
        raise PeerGone(f"no replica answers on {path!r}: {reason}") from error
    return sock


def is_refused(error: BaseException) -> bool:
    """Return whether :func:`connect` failed since no process listens: a stopped one still does."""
    cause = error.__cause__
    return isinstance(cause, OSError) and cause.errno in (errno.ECONNREFUSED, errno.ENOENT)


def credentials(sock: socket.socket) -> Credentials:
    """Return the process at the other end.

    Raises PeerGone unless it is ours: same user, or root.
    """
    raw = sock.getsockopt(socket.SOL_SOCKET, SO_PEERCRED, struct.calcsize("3i"))
    pid, uid, _gid = struct.unpack("3i", raw)
    if uid not in (os.geteuid(), 0):
        why = PermissionError(errno.EPERM, os.strerror(errno.EPERM))  # not that it is gone
        raise PeerGone(f"process {pid} of user {uid} may not use this replica") from why
    return Credentials(pid, uid)


def open_pidfd(pid: int) -> int:
    """Return a descriptor that becomes readable when the process ends (R2). Raises PeerGone."""
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        raise PeerGone(f"process {pid} is gone: {error.strerror}") from None


class PidfdOwner:
    """Base of what holds a process by ``pidfd``, -1 while there is none, and closes it once."""

    pidfd = -1
    _close_fd = staticmethod(os.close)

    def close_pidfd(self) -> None:
        """Close it; a second call does nothing."""
        pidfd, self.pidfd = self.pidfd, -1
        if pidfd >= 0:
            self._close_fd(pidfd)

    def __del__(self) -> None:
        self.close_pidfd()


def _at(path: str, call: Callable[[str], object]) -> None:
    if len(os.fsencode(path)) <= PATH_BYTES_MAX:
        call(path)
        return
    directory = os.open(os.path.dirname(path), os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        call(f"/proc/self/fd/{directory}/{os.path.basename(path)}")
    finally:
        os.close(directory)
