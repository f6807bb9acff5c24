"""Where an outcome is unknown, only the quorum says how many records of a name are committed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.client.producer.producer import Producer
from kraftfast.errors import DiskFull, ErrorCode, NoQuorum, ProducerFenced, UnknownOutcome
from kraftfast.wire.messages import InitProducerIdResponse
from tests.client.scripted_quorum import ScriptedQuorum


class NamingQuorum(ScriptedQuorum):
    """One that gives a name the next epoch, and says how many records stand under it."""

    def ask(self, *_question: Any) -> Any:
        self._ids += 1
        numbered = len(self.log.records())
        return InitProducerIdResponse(
            producer_id=1,
            producer_epoch=self._ids,
            last_sequence=numbered - 1,
            last_offset=numbered - 1,
        )


@pytest.fixture
def quorum() -> Iterator[NamingQuorum]:
    found = NamingQuorum()
    yield found
    found.stop()


def test_a_record_that_the_next_leader_refuses_is_counted_where_it_is_committed(
    quorum: NamingQuorum,
) -> None:
    """A program that begins again behind a smaller number appends the record once more."""
    with Producer(quorum, 5.0, name="source") as producer:
        producer.append_wait(b"first")
        quorum.mute = True
        ticket = producer.append(b"pay 100")
        quorum.commit_unanswered()
        quorum.refusal, quorum.refused = ErrorCode.INVALID_RECORD, {b"pay 100"}
        quorum.mute = False
        with pytest.raises(UnknownOutcome):
            producer.wait(ticket, timeout=5)
        quorum.refused = set()
        assert quorum.values() == [b"first", b"pay 100"]
        assert producer.last_sequence(timeout=5) == 1


def test_without_a_quorum_no_number_is_told(quorum: NamingQuorum) -> None:
    with Producer(quorum, 5.0, name="source") as producer:
        quorum.mute = True
        ticket = producer.append(b"pay 100")
        quorum.commit_unanswered()
        quorum.refusal, quorum.refused = ErrorCode.INVALID_RECORD, {b"pay 100"}
        quorum.mute = False
        with pytest.raises(UnknownOutcome):
            producer.wait(ticket, timeout=5)
        quorum.reachable, quorum.problem = False, NoQuorum("nobody leads")
        with pytest.raises(NoQuorum):
            producer.last_sequence(timeout=0.2)


def test_a_producer_that_was_fenced_is_told_no_number(quorum: NamingQuorum) -> None:
    """What it had under way may stand in the log: the other producer knows."""
    with Producer(quorum, 5.0, name="source") as producer:
        quorum.refusal, quorum.refused = ErrorCode.INVALID_PRODUCER_EPOCH, {b"late"}
        with pytest.raises(ProducerFenced):
            producer.append_wait(b"late", timeout=5)
        with pytest.raises(ProducerFenced):
            producer.last_sequence(timeout=5)


def test_a_producer_that_ends_at_a_refusal_stores_its_first_records_alone(
    quorum: NamingQuorum,
) -> None:
    """Else a program that counts what is stored passes over the record that was refused."""
    values = [b"%d" % number * 1500 for number in range(5)]  # each fills a batch
    with Producer(quorum, 5.0, name="source") as producer:
        producer.end_at_refusal()
        quorum.refused = {values[2]}
        quorum.mute = True
        tickets = [producer.append(value) for value in values]
        quorum.mute = False
        with pytest.raises(DiskFull):
            producer.wait(tickets[2], timeout=5)
        for ticket in tickets[3:]:
            with pytest.raises(ProducerFenced, match="was refused"):
                producer.wait(ticket, timeout=5)
        with pytest.raises(ProducerFenced, match="was refused"):
            producer.append_wait(b"later", timeout=5)
        assert quorum.values() == values[:2]
