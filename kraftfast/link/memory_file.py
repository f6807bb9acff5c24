"""Sealed memory files, and how they are passed: what rings and shared counters stand on.

One memory file a writer: mapped writable by its maker, then sealed so that no process can shrink it
(no SIGBUS), grow it or map it writable, then passed over a UNIX socket (R5, R6).
"""

from __future__ import annotations

import array
import contextlib
import fcntl
import mmap
import os
import socket
import weakref

from kraftfast import forks
from kraftfast.errors import MalformedFrame, PeerGone
from kraftfast.link.kernel_check import F_ADD_SEALS, F_GET_SEALS, SEALS
from kraftfast.link.private_pages import make_private
from kraftfast.ring.spsc import OWN_FLAGS

FDS_MAX = 8
MEMFD_PREFIX = "/memfd:kraftfast-"


class MemoryFile:
    """A memory file of this process: ``memory`` is its writable map, ``fd`` is to be passed on.

    Raises OSError without descriptors or memory.
    """

    # fd: open until close; others map it read-only. memory: ours alone to write.

    fd = -1

    def __init__(self, name: str, size: int) -> None:
        forks.own(self)
        self.fd = os.memfd_create(name, os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(self.fd, size)
            self.memory = mmap.mmap(
                self.fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE
            )
            fcntl.fcntl(
                self.fd, F_ADD_SEALS, SEALS
            )  # after our map: FUTURE_WRITE is for the others
        except OSError:
            self.close()
            raise
        _writable.maps.add(self.memory)

    def close(self) -> None:
        """Close the descriptor; the map lives as long as something uses it."""
        fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)

    disown = __del__ = close


class WritableMaps:
    """The writable maps of this process; R6: a forked child must not be a second writer."""

    def __init__(self) -> None:
        self.maps: weakref.WeakSet[mmap.mmap] = weakref.WeakSet()
        forks.own(self)

    def disown(self) -> None:
        """Leave them to the parent, and all memory files, which would stay allocated for us."""
        for memory in list(self.maps):
            make_private(memory)
        if self.maps:
            _let_go_of_files()
        self.maps.clear()
        forks.own(self)


_writable = WritableMaps()


def _let_go_of_files() -> None:
    """Replace every inherited descriptor of a memory file by one of /dev/null.

    ``mmap`` keeps one of its own, which it closes with the map: its number must stay in use.
    """
    null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    try:
        for name in os.listdir("/proc/self/fd"):
            with contextlib.suppress(OSError):  # the listing's own is closed by now
                if os.readlink(f"/proc/self/fd/{name}").startswith(MEMFD_PREFIX):
                    os.dup2(null, int(name), inheritable=False)
    finally:
        os.close(null)


def map_peer_file(fd: int, size: int) -> mmap.mmap:
    """Map a memory file of another process, read-only; closes ``fd``.

    Only the first ``size`` bytes are mapped, however large it is. Raises PeerGone if it is not
    sealed as we seal ours, or too small.
    """
    try:
        seals, length = fcntl.fcntl(fd, F_GET_SEALS), os.fstat(fd).st_size
        if seals & SEALS != SEALS:
            raise PeerGone("the other side passed a memory file that it could still change")
        if length < size:
            raise PeerGone(f"the other side passed a memory file of {length} bytes, not {size}")
        return mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ)
    except OSError as error:
        raise PeerGone(f"the other side passed something that is no memory file: {error}") from None
    finally:
        os.close(fd)


def own_bell(fd: int) -> int:
    """Return a description of our own of the pipe ``fd``, a passed doorbell; takes over ``fd``.

    Whether a write may wait is a flag of the open file description, which the sender of ``fd``
    shares and can change at any time. The pipe is opened for reading too, so that writing to it
    raises no signal once its owner has ended. Raises PeerGone.
    """
    try:
        kind = os.readlink(f"/proc/self/fd/{fd}")
        if not kind.startswith("pipe:["):
            raise PeerGone(f"the other side passed {kind} as the pipe of its doorbell")
        return os.open(f"/proc/self/fd/{fd}", OWN_FLAGS)
    except OSError as error:
        raise PeerGone(f"the other side passed a descriptor that is no doorbell: {error}") from None
    finally:
        os.close(fd)


def send_with_fds(sock: socket.socket, data: bytes, fds: list[int]) -> None:
    """Send one message with descriptors over SOCK_SEQPACKET: it arrives whole or not at all.

    A program may end by SIGPIPE, as commands in a pipeline do: a replica that hung up must not end
    it.
    """
    ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", fds))] if fds else []
    sock.sendmsg([data], ancillary, socket.MSG_NOSIGNAL)


def receive_with_fds(sock: socket.socket, bytes_max: int) -> tuple[bytes, list[int]]:
    """Receive one message and its descriptors; (b"", []) at the end of the stream.

    Raises MalformedFrame for a message longer than ``bytes_max`` or with too many descriptors.
    """
    room = socket.CMSG_SPACE(FDS_MAX * 4)
    data, ancillary, flags, _ = sock.recvmsg(bytes_max, room, socket.MSG_CMSG_CLOEXEC)
    fds = array.array("i")
    for level, kind, body in ancillary:
        if level == socket.SOL_SOCKET and kind == socket.SCM_RIGHTS:
            fds.frombytes(body[: len(body) - len(body) % fds.itemsize])
    if flags & (socket.MSG_TRUNC | socket.MSG_CTRUNC):
        for fd in fds:
            os.close(fd)
        if flags & socket.MSG_TRUNC:
            raise MalformedFrame(f"a local message of more than {bytes_max} bytes")
        raise MalformedFrame(
            f"a local message with more than {FDS_MAX} files, or more than descriptors are left for"
        )
    return data, list(fds)
