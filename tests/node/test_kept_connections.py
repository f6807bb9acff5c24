"""A connection at the local door that is kept from one request to the next."""

from __future__ import annotations

import base64
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast.link.hello import Hello, encode_hello
from kraftfast.link.memory_file import send_with_fds
from kraftfast.node.rings import local_door
from kraftfast.node.slots import Slots
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED
from tests.node.inside import Inside
from tests.node.test_slots import FEW, status

KEY = ApiKey.DESCRIBE_QUORUM


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path / "q")
    made.loop.door.slots = Slots(FEW)
    yield made
    made.close()


def request(number: int, again: bool) -> bytes:
    version = SERVED[KEY].last
    data = frame.encode_request(KEY, version, number, "test", wire.DescribeQuorumRequest(topics=[]))
    text = base64.b64encode(data[frame.LENGTH_BYTES :]).decode()
    return encode_hello(Hello(kind="request", args=text, again=again))


def test_a_connection_that_asks_to_is_kept(replica: Inside) -> None:
    door = replica.loop.door
    with replica.local() as sock:
        for number in range(3):
            sock.send(request(number, again=True))
            assert frame.correlation_id(replica.message(sock)) == number
        assert door.slots.taken["request"] == 0 and len(door.pending) == 1
        sock.send(request(3, again=False))
        assert frame.correlation_id(replica.message(sock)) == 3
        assert replica.message(sock) == b""
    assert not door.pending and not door.keeping and not +door.slots.shares


def test_who_leaves_a_kept_connection_is_no_failure(replica: Inside) -> None:
    door = replica.loop.door
    with replica.local() as sock:
        sock.send(request(0, again=True))
        replica.message(sock)
    replica.until(lambda: not door.pending)
    assert not +door.slots.shares and not replica.lines


def test_who_leaves_an_answer_unread_is_no_failure(replica: Inside) -> None:
    """A question that ran out of time: its connection ends by a reset."""
    door = replica.loop.door
    with replica.local() as sock:
        sock.send(request(0, again=True))
        replica.until(lambda: select.select([sock], [], [], 0)[0])
        assert len(door.pending) == 1
    replica.until(lambda: not door.pending)
    assert not +door.slots.shares and not replica.lines


def test_an_idle_connection_is_given_up(replica: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_door, "KEPT_MS_MAX", 20)
    with replica.local() as sock:
        sock.send(request(0, again=True))
        replica.message(sock)
        assert replica.message(sock) == b""
    assert not replica.loop.door.pending and not +replica.loop.door.slots.shares


def test_idle_connections_make_room(replica: Inside) -> None:
    crowd = []
    for number in range(20):
        crowd.append(sock := replica.local())
        sock.send(request(number, again=True))
        replica.message(sock)
    assert len(replica.loop.door.pending) <= FEW["pending"]
    assert status(replica)["node_id"] == 1
    for sock in crowd:
        sock.close()


def test_a_request_without_sense_ends_its_connection(replica: Inside) -> None:
    with replica.local() as sock:
        sock.send(encode_hello(Hello(kind="request", args="?", again=True)))
        assert replica.message(sock) == b""
    assert not replica.loop.door.keeping and not +replica.loop.door.slots.shares


def test_files_that_come_with_nothing_else_are_closed(replica: Inside, tmp_path: Path) -> None:
    """An empty message ends a kept connection, and may carry descriptors: each stayed open."""
    path = tmp_path / "theirs"
    with open(path, "wb") as file:
        for _ in range(3):
            with replica.local() as sock:
                sock.send(request(0, again=True))
                replica.message(sock)
                send_with_fds(sock, b"", [file.fileno()] * 8)
                replica.until(lambda: not replica.loop.door.pending)
    assert path.resolve() not in [fd.resolve() for fd in Path("/proc/self/fd").iterdir()]
    assert not +replica.loop.door.slots.shares
