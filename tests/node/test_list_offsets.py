"""Searches by time share the loop with everything else: counted by turns, not by a clock."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.errors import CorruptBatch, ErrorCode
from kraftfast.log.reading import by_time
from kraftfast.node.tcp import list_offsets, partition_leader
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, ListOffsetsRequest, MetadataRequest
from tests.node.test_consumers import BASE, MAX_TIMESTAMP, START_MS, Asked, asked, batch_of

__all__ = ["asked"]
pytestmark = pytest.mark.processes
COST = 1
"""What a turn may cost here, in headers."""
BATCHES = 50
"""They have no entry in the time index: a search for the last walks over all."""


@pytest.fixture
def slow(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> Asked:
    """A leader with records behind which every search takes turns."""
    monkeypatch.setattr(list_offsets, "COST_MAX", COST)
    monkeypatch.setattr(by_time, "COST_MAX", COST)
    asked.elect()
    for number in range(BATCHES):
        asked.append(batch_of([b""], number))
    asked.commit()
    return asked


def searching(asked: Asked) -> Any:
    return asked.it.loop.sockets.consumers.offsets


def ask_late(asked: Asked, sock: Any, number: int, timestamp: int = START_MS + BATCHES - 1) -> None:
    """Ask for the last record by its time, without waiting for the answer."""
    kind = ListOffsetsRequest
    body = kind(-1, topics=[kind.Topic(METADATA_TOPIC, [kind.Partition(0, timestamp=timestamp)])])
    sock.send(frame.encode_request(ApiKey.LIST_OFFSETS, 7, number, "consumer", body))


def answer_of(data: bytes) -> Any:
    return frame.decode_response(ApiKey.LIST_OFFSETS, 7, data)[1].topics[0].partitions[0]


def test_a_search_takes_turns_and_others_are_served(
    slow: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    socks = [slow.it.connect() for _ in range(3)]
    for sock in socks:
        ask_late(slow, sock, 7)
    offsets = searching(slow)
    with monkeypatch.context() as held:
        held.setattr(list_offsets, "COST_MAX", 0)  # what is sent may come in later turns
        slow.it.until(lambda: len(offsets.searching) == len(socks))
    assert slow.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None)).controller_id == 1
    assert len(offsets.searching) == len(socks), "somebody else was served meanwhile"
    turns = 0
    while offsets.searching:
        offsets.spent = 0
        slow.it.turn()
        assert 0 <= offsets.spent <= 2 * COST, "more than its share"
        turns += offsets.spent > 0
    assert turns > 2, "it went by turns"
    for sock in socks:
        found = answer_of(slow.it.answers(sock, b"", 7)[-1])
        assert (found.error_code, found.offset) == (0, BASE + BATCHES - 1)
        sock.close()


def test_many_requests_of_one_connection_share_the_turns(slow: Asked) -> None:
    """They are answered in their order, whatever each of them costs."""
    sock, many = slow.it.connect(), 20
    for number in range(many):
        ask_late(slow, sock, number, (MAX_TIMESTAMP, START_MS)[number % 2])
    found = slow.it.answers(sock, b"", many - 1)
    offsets = [answer_of(each).offset for each in found]
    assert offsets == [BASE + BATCHES - 1, BASE] * (many // 2)
    sock.close()


def test_a_search_ends_with_the_leadership(slow: Asked) -> None:
    ask_late(slow, slow.sock, 7)
    slow.it.until(lambda: searching(slow).searching)
    slow.resign()
    assert not searching(slow).searching
    found = answer_of(slow.it.answers(slow.sock, b"", 7)[-1])
    assert (found.error_code, found.offset) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)


def test_a_search_ends_with_its_connection(slow: Asked) -> None:
    sock = slow.it.connect()
    ask_late(slow, sock, 7)
    slow.it.until(lambda: searching(slow).searching)
    sock.close()
    slow.it.until(lambda: not searching(slow).searching)
    assert not slow.it.raised


def test_a_batch_that_is_damaged_ends_no_connection(
    slow: Asked, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its client would connect and ask again, for ever."""

    def damaged(*_args: Any) -> Any:
        raise CorruptBatch("batch at byte 0: its records do not fit")
        yield

    monkeypatch.setattr(partition_leader, "at_timestamp", damaged)
    assert slow.list(START_MS)[:2] == (ErrorCode.CORRUPT_MESSAGE, -1)
    assert any("its records do not fit" in line for line in slow.it.lines)
