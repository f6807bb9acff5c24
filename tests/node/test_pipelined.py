"""Clients that send many requests without waiting for answers, and ones that end in the middle."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.node import session
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, MetadataRequest
from tests.node.inside import Inside

pytestmark = pytest.mark.processes


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path)
    yield made
    made.close()


def hello(number: int) -> bytes:
    return frame.encode_request(ApiKey.METADATA, 1, number, "client", MetadataRequest(topics=[]))


def numbers(answers: list[bytes]) -> list[int]:
    return [int.from_bytes(answer[:4], "big", signed=True) for answer in answers]


def test_requests_that_are_answered_at_once_take_turns(
    alone: Inside, monkeypatch: pytest.MonkeyPatch
) -> None:
    """2 MB of the smallest ones kept the loop for 2.5 seconds: a leader is replaced by then."""
    handled = 0
    handle = session.Session._handle

    def count(self: Any, data: Any) -> None:
        nonlocal handled
        handled += 1
        handle(self, data)

    monkeypatch.setattr(session.Session, "_handle", count)
    many, most = 2000, 0
    sock = alone.connect()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 20)
    assert sock.send(b"".join(hello(i) for i in range(many))) == many * len(hello(0))
    turn = alone.turn

    def counted() -> None:
        nonlocal most
        before = handled
        turn()
        most = max(most, handled - before)

    monkeypatch.setattr(alone, "turn", counted)
    assert numbers(alone.answers(sock, b"", many - 1)) == list(range(many))
    assert most <= 2 * session.ANSWERED_A_TURN, most
    sock.close()
