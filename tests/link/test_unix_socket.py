"""Local sockets: long paths, who is at the other end, and what a refusal means (R2)."""

from __future__ import annotations

import os
import select
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from kraftfast.errors import PeerGone, StorageError, forbidden
from kraftfast.link.unix_socket import (
    PATH_BYTES_MAX,
    connect,
    credentials,
    is_refused,
    listen,
    open_pidfd,
)
from tests.link.kit import pair


@pytest.mark.parametrize("length", [20, PATH_BYTES_MAX, PATH_BYTES_MAX + 1, 400, 3000])
def test_paths_of_any_length(tmp_path: Path, length: int) -> None:
    directory = tmp_path
    while len(str(directory)) + 20 < length:
        directory = directory / ("d" * min(200, length - len(str(directory)) - 15))
    directory.mkdir(parents=True, exist_ok=True)
    path = str(directory / "replica.sock")
    server = listen(path)
    client = connect(path, 1.0)
    peer, _ = server.accept()
    client.send(b"x")
    assert peer.recv(10) == b"x"
    assert credentials(peer).pid == os.getpid()
    assert os.stat(path).st_mode & 0o077 == 0, "for the owner alone"
    for sock in (server, client, peer):
        sock.close()


def test_what_an_ended_process_left_is_replaced(tmp_path: Path) -> None:
    path = str(tmp_path / "replica.sock")
    listen(path).close()
    with pytest.raises(PeerGone) as refused:
        connect(path, 1.0)
    assert is_refused(refused.value)
    server = listen(path)
    connect(path, 1.0).close()
    server.close()


def test_nobody_there_is_a_refusal_and_a_full_house_is_none(tmp_path: Path) -> None:
    with pytest.raises(PeerGone) as missing:
        connect(str(tmp_path / "nobody"), 0)
    assert is_refused(missing.value)
    path = str(tmp_path / "replica.sock")
    server = listen(path)
    server.listen(1)
    waiting = []
    with pytest.raises(PeerGone) as busy:
        for _ in range(10):
            waiting.append(connect(path, 0))
    assert not is_refused(busy.value), "a process that is stopped still listens"
    for sock in (server, *waiting):
        sock.close()


def test_a_place_where_nothing_can_be_bound(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="cannot listen"):
        listen(str(tmp_path / "nowhere" / "replica.sock"))
    with pytest.raises(PeerGone):
        connect(str(tmp_path / ("x" * 300) / "replica.sock"), 0)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root, to become somebody else")
def test_another_user_is_told_by_the_kernel() -> None:
    """R5: the other end's user, by the kernel's word; its own word is not asked for."""
    with tempfile.TemporaryDirectory() as directory:  # pytest's own is for one user alone
        os.chmod(directory, 0o777)
        refuse_another_user(os.path.join(directory, "replica.sock"))


def refuse_another_user(path: str) -> None:
    code = (
        "import os, socket, sys; os.setgid(65534); os.setuid(65534)\n"
        "s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)\n"
        "s.bind(sys.argv[1]); s.listen(1)\n"
        "os.chmod(sys.argv[1], 0o777); print('listens', flush=True); c, _ = s.accept(); c.recv(1)"
    )
    child = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE)
    assert child.stdout is not None and child.stdout.readline() == b"listens\n"
    with connect(path, 5.0) as sock, pytest.raises(PeerGone, match="user 65534"):
        credentials(sock)
    child.wait(10)
    child.stdout.close()


def test_a_process_that_ends_is_told_by_its_descriptor() -> None:
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    pidfd = open_pidfd(child.pid)
    poll = select.poll()
    poll.register(pidfd, select.POLLIN)
    assert not poll.poll(0)
    child.kill()
    assert poll.poll(5000)
    os.close(pidfd)
    child.wait()
    assert child.stdin is not None
    child.stdin.close()
    with pytest.raises(PeerGone):
        open_pidfd(child.pid)


def test_a_pair_is_of_one_process() -> None:
    a, b = pair()
    assert credentials(a) == credentials(b)
    assert isinstance(a, socket.socket)
    a.close()
    b.close()


def test_a_process_of_another_user_is_not_told_to_be_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody then says that no replica runs."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with ours, theirs:
        assert credentials(ours).pid == os.getpid()
        monkeypatch.setattr(os, "geteuid", lambda: 4000)
        monkeypatch.setattr("struct.unpack", lambda *_data: (7, 4001, 4001))
        with pytest.raises(PeerGone, match="process 7 of user 4001 may not use") as caught:
            credentials(ours)
    assert "process 7 of user 4001" in str(forbidden(caught.value))
    assert forbidden(PeerGone("it ended")) is None
