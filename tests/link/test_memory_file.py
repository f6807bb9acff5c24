"""Memory files: sealed before they are passed (R5), judged before they are mapped."""

from __future__ import annotations

import fcntl
import mmap
import os
import socket
import tempfile
from pathlib import Path

import pytest

from kraftfast.errors import MalformedFrame, PeerGone
from kraftfast.link.memory_file import (
    F_GET_SEALS,
    FDS_MAX,
    SEALS,
    MemoryFile,
    map_peer_file,
    own_bell,
    receive_with_fds,
    send_with_fds,
)
from tests.link.kit import memory_file, pair


def test_a_memory_file_can_be_changed_by_its_maker_alone() -> None:
    file = MemoryFile("test", 4096)
    assert fcntl.fcntl(file.fd, F_GET_SEALS) & SEALS == SEALS
    for size in (0, 8192):
        with pytest.raises(OSError):
            os.ftruncate(file.fd, size)
    with pytest.raises(OSError):
        mmap.mmap(file.fd, 4096, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    seen = map_peer_file(os.dup(file.fd), 4096)
    file.memory[:5] = b"hello"
    assert seen[:5] == b"hello"
    with pytest.raises(TypeError):
        seen[0] = 1
    seen.close()
    file.memory.close()
    file.close()
    file.close()  # twice is once


@pytest.mark.parametrize("missing", [0x0001, 0x0002, 0x0004, 0x0010])
def test_a_file_that_lacks_a_seal_is_refused(missing: int) -> None:
    with pytest.raises(PeerGone, match="could still change"):
        map_peer_file(memory_file(4096, SEALS & ~missing), 4096)


def test_a_file_that_is_too_small_is_refused() -> None:
    with pytest.raises(PeerGone, match="4095 bytes, not 4096"):
        map_peer_file(memory_file(4095), 4096)


def test_only_what_is_needed_of_a_huge_file_is_mapped() -> None:
    seen = map_peer_file(memory_file(1 << 40), 4096)
    assert len(seen) == 4096
    seen.close()


def test_what_is_no_memory_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(bytes(4096))
    reader, writer = os.pipe()
    os.close(writer)
    a, b = pair()
    b.close()
    for fd in (os.open(tmp_path / "file", os.O_RDWR), reader, a.detach()):
        with no_leak_of(fd), pytest.raises(PeerGone, match="no memory file"):
            map_peer_file(fd, 4096)


class no_leak_of:
    """The descriptor is closed inside, by whoever took it over."""

    def __init__(self, fd: int) -> None:
        self.fd = fd

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_exc: object) -> None:
        with pytest.raises(OSError):
            os.fstat(self.fd)


def test_a_doorbell_is_a_pipe_that_never_blocks() -> None:
    """Whatever its owner does to the description that was passed, and whether it still lives."""
    reader, passed = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    kept = os.dup(passed)
    own = own_bell(passed)
    with pytest.raises(OSError):
        os.fstat(passed)
    os.set_blocking(kept, True)
    assert not os.get_blocking(own)
    with pytest.raises(BlockingIOError):
        while True:
            os.write(own, bytes(4096))
    os.close(reader)
    os.close(kept)
    with pytest.raises(BlockingIOError):
        os.write(own, bytes(4096))  # no SIGPIPE, no EPIPE: it is a reader itself
    os.close(own)


def test_what_is_no_doorbell() -> None:
    eventfd = os.eventfd(0, os.EFD_CLOEXEC)
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as file:
        for fd in (eventfd, ours.detach(), theirs.detach(), os.dup(file.fileno())):
            with pytest.raises(PeerGone, match="doorbell"):
                own_bell(fd)
            with pytest.raises(OSError):
                os.fstat(fd)


def test_messages_come_whole_with_their_files() -> None:
    a, b = pair()
    file = MemoryFile("test", 4096)
    send_with_fds(a, b"hello", [file.fd, file.fd])
    send_with_fds(a, b"plain", [])
    data, fds = receive_with_fds(b, 100)
    assert data == b"hello" and len(fds) == 2
    assert all(os.get_inheritable(fd) is False for fd in fds)
    assert receive_with_fds(b, 100) == (b"plain", [])
    for fd in fds:
        os.close(fd)
    a.close()
    assert receive_with_fds(b, 100) == (b"", [])
    b.close()
    file.memory.close()
    file.close()


def test_messages_that_are_too_much_leave_no_files_behind() -> None:
    a, b = pair()
    file = MemoryFile("test", 4096)
    send_with_fds(a, b"x" * 101, [file.fd])
    with pytest.raises(MalformedFrame):
        receive_with_fds(b, 100)
    send_with_fds(a, b"x", [file.fd] * (FDS_MAX + 4))
    with pytest.raises(MalformedFrame):
        receive_with_fds(b, 100)
    for each in (a, b, file):
        each.close()
    file.memory.close()


def test_a_socket_that_would_block_says_so() -> None:
    a, b = pair()
    b.setblocking(False)
    with pytest.raises(BlockingIOError):
        receive_with_fds(b, 100)
    assert isinstance(a, socket.socket)
    a.close()
    b.close()
