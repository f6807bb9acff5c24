"""Clients that send many requests without waiting for answers, or end in the middle (R8)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.limits import REQUESTS_OF_A_CONNECTION
from kraftfast.node.tcp import session
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire.fetch import PartitionFetch
from kraftfast.wire.messages import ApiKey, MetadataRequest
from tests.node.inside import Inside
from tests.node.test_consumers import Asked, asked

__all__ = ["asked"]
pytestmark = pytest.mark.processes


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path, segment_bytes=32 << 20, stride_bytes=8 << 20)
    yield made
    made.close()


def hello(number: int) -> bytes:
    return frame.encode_request(ApiKey.METADATA, 1, number, "client", MetadataRequest(topics=[]))


def numbers(answers: list[bytes]) -> list[int]:
    return [int.from_bytes(answer[:4], "big", signed=True) for answer in answers]


class Counted:
    """The loop of a replica, and how many requests one of its turns handled at most."""

    def __init__(self, it: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._handled = 0
        handle, turn = session.Session._handle, it.turn

        def count(ours: Any, data: Any) -> None:
            self._handled += 1
            handle(ours, data)

        def counted() -> None:
            before = self._handled
            turn()
            self.most = max(self.most, self._handled - before)

        monkeypatch.setattr(session.Session, "_handle", count)
        monkeypatch.setattr(it, "turn", counted)


SMALL_A_TURN = session.ANSWERED_BYTES_A_TURN // session.ANSWERED_BYTES_MIN
SHARES = 3
"""In a turn: what the one before left, and up to two looks at what came."""


def test_requests_that_are_answered_at_once_take_turns(
    alone: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 MB of the smallest ones kept the loop for 2.5 seconds: a leader is replaced by then."""
    counted, many = Counted(alone, monkeypatch), 2000
    sock = alone.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    assert sock.send(b"".join(hello(i) for i in range(many))) == many * len(hello(0))
    assert numbers(alone.answers(sock, b"", many - 1)) == list(range(many))
    assert counted.most <= SHARES * SMALL_A_TURN
    sock.close()


def test_of_large_requests_a_turn_takes_few(alone: Inside, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that asks for 16,000 partitions costs a tenth of a second."""
    counted, many = Counted(alone, monkeypatch), 60
    body = MetadataRequest(topics=[MetadataRequest.Topic(name=each * 4000) for each in "abc"])
    data = b"".join(
        frame.encode_request(ApiKey.METADATA, 1, number, "client", body) for number in range(many)
    )
    alone.loop.sockets.acceptors[0].sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1 << 20)
    sock = alone.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    sent = sock.send(data)
    assert numbers(alone.answers(sock, data[sent:], many - 1)) == list(range(many))
    one = len(data) // many + session.ANSWERED_BYTES_MIN
    assert counted.most <= SHARES * (1 + session.ANSWERED_BYTES_A_TURN // one)
    sock.close()


def test_requests_behind_one_that_waits_take_turns_too(
    asked: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Their answers are ready and are kept, so that the connection seems to owe much."""
    asked.elect()
    counted, many = Counted(asked.it, monkeypatch), REQUESTS_OF_A_CONNECTION - 1
    sock = asked.it.connect()
    sock.send(a_produce(0, b"v") + b"".join(hello(1 + i) for i in range(many)))
    asked.it.until(lambda: len(list(asked.it.loop.sockets.sessions)[-1].asked) == 1 + many)
    assert counted.most <= SHARES * SMALL_A_TURN
    asked.commit()
    assert numbers(asked.it.answers(sock, b"", many)) == list(range(1 + many))
    sock.close()


def a_fetch(number: int, offset: int, wait_ms: int = 0) -> bytes:
    message = PartitionFetch(
        topic=METADATA_TOPIC,
        partition=0,
        fetch_offset=offset,
        max_wait_ms=wait_ms,
        min_bytes=1,
        max_bytes=8 << 20,
        partition_max_bytes=8 << 20,
    )
    return bytes(fetch.encode_request(12, number, "client", message))


def a_produce(number: int, value: bytes) -> bytes:
    batch = bytes(encode_batch([Record(0, 1000, None, value)]))
    message = produce.PartitionProduce(
        acks=-1, timeout_ms=60_000, topic=METADATA_TOPIC, partition=0, records=batch
    )
    return b"".join(produce.encode_request(9, number, "client", message))


def test_answers_come_in_the_order_of_requests_whose_numbers_wrap(alone: Inside) -> None:
    """A Fetch that waits is answered first, by what somebody else appends."""
    sock, other = alone.connect(), alone.connect()
    end = alone.node.log.end_offset
    sent = [2**31 - 1, -(2**31), -(2**31) + 1, -1, 0]
    first, *behind = sent
    sock.send(a_fetch(first, end, 60_000) + b"".join(map(hello, behind)))
    consumers = alone.loop.sockets.consumers
    alone.until(lambda: consumers.parked)
    assert numbers(alone.answers(other, a_produce(7, b"v"), 7)) == [7]
    assert numbers(alone.answers(sock, b"", sent[-1])) == sent
    sock.close()
    other.close()


@pytest.mark.parametrize("abort", [True, False], ids=["reset", "closed"])
def test_who_leaves_in_the_middle_of_an_answer_is_forgotten(alone: Inside, abort: bool) -> None:
    other = alone.connect()
    for number in (1, 2, 3):
        assert alone.answers(other, a_produce(number, bytes(2 << 20)), number)
    offset = alone.node.log.end_offset - 3
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.connect(("127.0.0.1", alone.loop.sockets.ports()["CONTROLLER"]))
    sock.send(a_fetch(1, offset) + a_produce(2, b"behind") + a_fetch(3, offset + 3, 60_000))
    door = alone.loop.sockets
    alone.until(lambda: any(each.framed.queued for each in door.sessions))
    assert len(sock.recv(5000)) > 4
    if abort:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    sock.close()
    alone.until(lambda: len(door.sessions) == 1)
    assert numbers(alone.answers(other, hello(9), 9)) == [9]
    assert door.held_bytes == sum(each.held_bytes for each in door.sessions) == 0
    assert not alone.lines, "a client may leave"
    other.close()
