"""What a session raises ends that session alone; what is final ends the replica (D9)."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import FlushFailed, MalformedFrame, StorageError, UnencodableMessage
from kraftfast.link.hello import LAYOUT, Hello, encode_hello
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.node.failures import describe, is_final
from kraftfast.node.rings import local_door
from kraftfast.node.tcp import consumers, sockets
from kraftfast.node.translation import translate
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, DescribeClusterRequest, MetadataRequest, VoteRequest
from tests.node.inside import Inside, attached


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path / "q")
    yield made
    made.close()


def raising(error: Exception) -> Callable[..., Any]:
    def fail(*_args: object, **_kwargs: object) -> None:
        raise error

    return fail


def is_served(replica: Inside, sock: socket.socket) -> bool:
    data = frame.encode_request(ApiKey.DESCRIBE_CLUSTER, 1, 3, "s", DescribeClusterRequest())
    return replica.exchange(sock, data) is not None


METADATA = frame.encode_request(ApiKey.METADATA, 9, 1, "s", MetadataRequest(topics=None))
VOTE = frame.encode_request(ApiKey.VOTE, 2, 1, "s", VoteRequest())


@pytest.mark.parametrize(
    "error",
    [
        TypeError("null"), AssertionError("a stranger's"), UnencodableMessage("no"),
        RecursionError(), MemoryError(), KeyError(3), OSError(5, "no"), OverflowError(),
    ],
    ids=lambda error: type(error).__name__,
)  # fmt: skip
@pytest.mark.parametrize("where", ["reading", "answering", "the core's answer"])
def test_a_session_ends_alone(
    replica: Inside, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    other, sock = replica.connect(), replica.connect()
    assert is_served(replica, other) and is_served(replica, sock)
    asked = METADATA
    if where == "reading":
        monkeypatch.setattr(sockets, "metadata", raising(error))
    elif where == "answering":
        monkeypatch.setattr(frame, "response_pieces", raising(error))
    else:
        monkeypatch.setattr(translate, "response_to_wire", raising(error))
        asked = VOTE
    assert replica.exchange(sock, asked) is None
    monkeypatch.undo()
    assert is_served(replica, other)
    assert replica.raised == [error] and len(replica.lines) == 1
    assert replica.lines[0].endswith("-> closed") and "\n" not in replica.lines[0]
    third = replica.connect()
    assert is_served(replica, third)
    for each in (other, sock, third):
        each.close()


@pytest.mark.parametrize("error", [StorageError("no disk"), FlushFailed("no disk")])
def test_a_storage_error_is_the_replicas(
    replica: Inside, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    monkeypatch.setattr(sockets, "metadata", raising(error))
    with pytest.raises(type(error), match="no disk"):
        replica.exchange(replica.connect(), METADATA)


def test_what_the_core_raises_is_the_replicas(replica: Inside) -> None:
    """The rest of its decision was not carried out: a session must not hide that."""
    with pytest.raises(Exception):  # noqa: B017 - whatever it is
        replica.node.step(object())
    assert replica.node.lost
    with pytest.raises(MalformedFrame):
        replica.node.failures.end(MalformedFrame("any"), "a session", lambda: None)


def test_a_consumer_that_waits_ends_alone(replica: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its answer is made while a commit is carried out."""
    served = replica.loop.sockets.consumers
    ended: list[Exception] = []

    class Asked:
        version, correlation_id, session, finish = 12, 1, object(), print

        def failed(self, error: Exception) -> None:
            ended.append(error)

    message = consumers.PartitionFetch(
        topic=replica.node.partition.topic, max_wait_ms=1000, min_bytes=1, fetch_offset=0
    )
    served.parked.append(consumers.ParkedFetch(Asked(), message, 2**62, None))
    monkeypatch.setattr(consumers.wire_fetch, "encode_response", raising(TypeError("null")))
    served.committed(5)
    assert [type(error) for error in ended] == [TypeError]


@pytest.mark.parametrize(
    "hello",
    [
        b'{"x":' + b"[" * 60_000,
        json.dumps({"kind": "poke", "node_id": 9, "directory": "/\0"}).encode(),
        json.dumps({"kind": "peer", "layout": LAYOUT, "endpoints": [["A", "h", 2**70]]}).encode(),
        json.dumps({"kind": "peer", "layout": LAYOUT, "node_id": 2**40}).encode(),
        json.dumps({"kind": "producer", "layout": LAYOUT, "generation": 2**70, "out": 8}).encode(),
        json.dumps(
            {"kind": "producer", "layout": LAYOUT, "generation": 5, "out": -8, "into": 4096}
        ).encode(),
        json.dumps({"kind": "query", "args": "kZGR" * 15_000}).encode(),
        json.dumps({"kind": "request", "args": "AAAAAA=="}).encode(),
        json.dumps({"kind": "watch", "layout": LAYOUT}).encode(),
    ],
    ids=lambda hello: hello[:24].decode(),
)
def test_a_hello_that_makes_no_sense(replica: Inside, hello: bytes) -> None:
    sock = replica.local()
    sock.send(hello)
    replica.until(lambda: not replica.loop.door.pending)
    for _ in range(20):
        replica.loop.turn()
    assert is_served(replica, replica.connect())
    sock.close()


def test_whose_assertion_it_is(replica: Inside) -> None:
    """One of the core or the log is an invariant of the replica, one of a session is not."""
    with pytest.raises(AssertionError) as found:
        replica.node.core.start(0)
    assert is_final(found.value)
    with pytest.raises(AssertionError) as found:
        frame.response_pieces(1, 1, 1, MetadataRequest())
    assert not is_final(found.value)
    assert describe(found.value).startswith("AssertionError at frame.py:")


@pytest.mark.parametrize(
    "error", [BrokenPipeError(32, "Broken pipe"), ConnectionResetError(104, "reset")]
)
def test_who_hangs_up_is_no_defect(error: OSError) -> None:
    """A client that gives up before its answer was told of as an exception, with its place."""
    assert describe(error) == "the other side hung up"
    assert describe(OSError(24, "Too many open files")).endswith("Too many open files")


def test_what_taking_from_a_ring_raises_cuts_off_its_producer(replica: Inside) -> None:
    """Another producer is served on; what the log raises is the replica's."""
    doorbell = OwnDoorbell()
    links = [attached(replica, doorbell, "producer") for _ in range(2)]
    first, second = replica.node.ring_producers.producers
    first.failed(OverflowError("no such number"))
    replica.until(lambda: len(replica.node.ring_producers.producers) == 1)
    assert replica.node.ring_producers.producers == [second]
    assert "OverflowError" in replica.lines[0] and not replica.node.lost
    with pytest.raises(FlushFailed):
        second.failed(FlushFailed("no disk"))
    for each in links:
        each.close()
    doorbell.close()


def test_a_request_that_nobody_answers_keeps_no_slot(
    replica: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    door = replica.loop.door
    monkeypatch.setattr(local_door.local_request, "take", lambda *_args: None)
    with replica.local() as sock:
        sock.send(encode_hello(Hello(kind="request")))
        replica.until(lambda: door.asking)
        now_ms = replica.node.now_ms()
        door.tend(now_ms)
        assert door.slots.taken["request"] == 1
        assert door.due_ms(2**62) <= now_ms + local_door.ASKED_MS_MAX
        door.tend(now_ms + local_door.ASKED_MS_MAX)
        assert not door.asking and not door.asked_until and not door.slots.taken["request"]
        assert sock.recv(1) == b""


@pytest.mark.parametrize("again", [False, True], ids=["one request", "kept for another"])
def test_a_door_that_closes_hangs_up_on_who_has_no_answer(
    replica: Inside, monkeypatch: pytest.MonkeyPatch, again: bool
) -> None:
    """It was left waiting while the log was flushed and trimmed."""
    door = replica.loop.door
    monkeypatch.setattr(local_door.local_request, "take", lambda *_args: None)
    with replica.local() as sock:
        sock.send(encode_hello(Hello(kind="request", again=again)))
        replica.until(lambda: door.asking)
        sock.setblocking(False)
        door.close()
        assert sock.recv(1) == b""
    assert not door.asking and not door.keeping and not +door.slots.shares


@pytest.mark.parametrize(
    ("file", "final"),
    [
        ("kraftfast/core/replica.py", True),
        ("kraftfast/core/elections/on_vote.py", True),
        ("/home/kraftfast/kraftfast/log/snapshots/snapshot_files.py", True),
        ("/home/kraftfast/kraftfast/node/rings/ring_producers.pyx", False),
        ("/home/kraftfast/kraftfast/types.py", False),
        ("/home/user/log/machine.py", False),
        ("<string>", False),
    ],
)
def test_a_broken_invariant_is_final_wherever_in_the_room_it_is(file: str, final: bool) -> None:
    with pytest.raises(AssertionError) as raised:
        exec(compile("assert False", file, "exec"))
    assert is_final(raised.value) is final
