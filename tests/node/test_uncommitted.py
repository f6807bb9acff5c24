"""What clients are told of records that are appended and not committed, and how many may wait."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.core.effects import AcknowledgedByAll
from kraftfast.errors import ErrorCode
from kraftfast.limits import REQUESTS_OF_A_CONNECTION
from kraftfast.log.small_files import id_ranges
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.wire import produce
from tests.node.test_consumers import SOONER_OR_LATER, Asked
from tests.node.test_produce import a_batch, a_produce

pytestmark = pytest.mark.processes


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    """A leader of three voters that has committed nothing since."""
    made = Asked(tmp_path)
    try:
        made.elect()
        yield made
    finally:
        made.sock.close()
        made.it.close()


def told(asked: Asked, sock: socket.socket) -> tuple[int, int]:
    """Error and offset of the next answer to a Produce."""
    (answer,) = asked.it.answers(sock, b"", 1)
    found = produce.decode_response(9, answer)[1]
    return found.error_code, found.base_offset


def append(asked: Asked, sock: socket.socket, batch: bytes) -> int:
    """Append a batch; the offset behind it."""
    before = asked.it.node.log.end_offset
    sock.send(a_produce(batch))
    asked.it.until(lambda: asked.it.node.log.end_offset > before)
    return int(asked.it.node.log.end_offset)


def test_what_a_leader_leaves_behind_may_be_committed(asked: Asked) -> None:
    """I24: its producer must not take it for refused."""
    append(asked, asked.sock, a_batch())
    asked.resign()
    assert told(asked, asked.sock)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND


def test_what_all_voters_have_is_told_though_its_step_ended_the_leadership(asked: Asked) -> None:
    """A leader that removed itself has resigned: its core no longer has a high watermark."""
    end_offset = append(asked, asked.sock, a_batch())
    assert asked.core.high_watermark < end_offset
    asked.it.node._carry_out([AcknowledgedByAll(end_offset)])
    error, base_offset = told(asked, asked.sock)
    assert error == ErrorCode.NONE and base_offset < end_offset


def test_a_duplicate_waits_for_the_commit_of_its_original(asked: Asked) -> None:
    id = id_ranges.leader_id(asked.core.epoch, 1)
    records = [Record(0, 1000, None, b"v")]
    batch = bytes(encode_batch(records, producer_id=id, producer_epoch=0, base_sequence=0))
    end_offset = append(asked, asked.sock, batch)
    asked.resign()
    assert told(asked, asked.sock)[0] == ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    asked.elect()
    asked.sock.send(a_produce(batch))
    (session,) = asked.it.loop.sockets.sessions
    asked.it.until(lambda: session.asked)
    for _ in range(5):
        asked.it.turn()
    assert session.asked, "its answer waits"
    asked.commit()
    assert told(asked, asked.sock) == (ErrorCode.NONE, end_offset - 1)


def test_so_many_requests_of_a_connection_wait(asked: Asked) -> None:
    """S10."""
    asked.sock.send(a_produce(a_batch()) * (REQUESTS_OF_A_CONNECTION + 9))
    asked.it.until(lambda: asked.it.loop.sockets.sessions)
    (session,) = asked.it.loop.sockets.sessions
    asked.it.until(lambda: len(session.asked) >= REQUESTS_OF_A_CONNECTION)
    for _ in range(5):
        asked.it.turn()
    assert len(session.asked) == REQUESTS_OF_A_CONNECTION
    asked.commit()
    asked.it.until(lambda: asked.it.node.log.end_offset >= REQUESTS_OF_A_CONNECTION + 9)


def test_so_many_fetches_wait(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    """I25."""
    monkeypatch.setattr(limits, "PARKED_FETCHES_MAX", 2)
    asked.commit()
    consumers = asked.it.loop.sockets.consumers
    socks = [asked.sock, asked.it.connect(), asked.it.connect()]
    for sock in socks:
        _, data = asked.fetch_data(asked.core.high_watermark, max_wait_ms=SOONER_OR_LATER)
        sock.send(data)
    asked.it.until(lambda: len(consumers.parked) >= 2)
    for _ in range(5):
        asked.it.turn()
    assert len(consumers.parked) == 2, "the third is answered"
    for sock in socks[1:]:
        sock.close()
