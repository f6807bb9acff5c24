"""What an idempotent producer sends again, under which sequences: against scripted replicas."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.client.producer.init_producer_id import Identities
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.errors import (
    DiskFull,
    ErrorCode,
    InvalidOption,
    ProducerFenced,
    RecordsRefused,
    UnknownOutcome,
)
from kraftfast.record.batch import batch_at
from kraftfast.record.builder import Values
from kraftfast.wire.messages import InitProducerIdResponse
from tests.client.kit import ScriptedReplica, values_of

OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
LOST = UnknownOutcome("lost")


class Quorum:
    """Leaders, one after the other, that are asked for ids: a connector and who it reaches."""

    def __init__(self, name: str | None = None) -> None:
        self.outcomes = Outcomes()
        self.replicas: list[ScriptedReplica] = []
        self.asked: list[Any] = []
        self.grants = [(7, 0, -1)]
        self.identities = Identities(self, name)
        self.backlog: list[Any] = []

    def reach(self, _sender: Any, _deadline: float) -> Quorum:
        return self

    def ask(self, _api_key: int, body: Any, _deadline: float) -> Any:
        self.asked.append(body)
        id, epoch, last = self.grants.pop(0)
        if id < 0:
            return InitProducerIdResponse(error_code=-id)
        return InitProducerIdResponse(producer_id=id, producer_epoch=epoch, last_sequence=last)

    def close(self) -> None:
        for replica in self.replicas:
            replica.close()

    def lead(self, **settings: Any) -> ScriptedReplica:
        """The next leader, with what the one before left."""
        replica = ScriptedReplica(self.outcomes, **{"batch_bytes": 200, **settings})
        self.replicas.append(replica)
        self.identities.enlist(replica.sender, self.outcomes, self.backlog, time.monotonic() + 5)
        replica.sender.poll()
        self.backlog = []
        return replica

    def lose(self) -> None:
        """The present leader is gone."""
        self.backlog = self.replicas[-1].sender.give_up(LOST)
        self.replicas[-1].close()


@pytest.fixture
def quorum() -> Iterator[Quorum]:
    found = Quorum()
    yield found
    found.close()


def says(replica: ScriptedReplica) -> list[tuple[int, int, int, list[bytes | None]]]:
    """(producer id, epoch, base sequence, values) of each batch that came by now."""
    replica.look()
    replica.release()
    found = [batch_at(each) for each in replica.batches]
    assert all(each.crc_ok() for each in found)
    return [
        (each.producer_id, each.producer_epoch, each.base_sequence, values_of(each.data))
        for each in found
    ]


def send(replica: ScriptedReplica, *values: bytes) -> None:
    """Each in a batch of its own."""
    for value in values:
        replica.sender.append(value)
        replica.sender.seal()


def failures(quorum: Quorum) -> list[type | None]:
    outcomes = quorum.outcomes
    return [
        type(failure) if failure else None
        for first, end, _, failure in outcomes.runs(0, outcomes.resolved)
        for _ in range(end - first)
    ]


def test_records_are_numbered_without_a_gap(quorum: Quorum) -> None:
    leader = quorum.lead()
    send(leader, b"a", b"b")
    assert leader.sender.append_values(Values([b"c", b"d", b"e" * 150, b"f"]), 0) == (2, 4)
    send(leader, b"g")
    number = 0
    for id, epoch, sequence, values in says(leader):
        assert (id, epoch, sequence) == (7, 0, number)
        number += len(values)
    assert number == 7 and len(leader.batches) >= 5


def test_what_has_no_answer_goes_to_the_next_leader_as_it_was(quorum: Quorum) -> None:
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c")
    before = says(leader)
    leader.acknowledge(1)
    leader.sender.poll()
    quorum.lose()
    following = quorum.lead()
    send(following, b"d")
    assert says(following) == [*before[1:], (7, 0, 3, [b"d"])]
    following.acknowledge(3)
    following.sender.poll()
    assert failures(quorum) == [None] * 4 and len(quorum.asked) == 1


def test_an_answer_that_settles_nothing_is_asked_for_again(quorum: Quorum) -> None:
    """With what comes behind it, answered or not: tickets are told in their order."""
    leader = quorum.lead()
    send(leader, b"a", b"b")
    before = says(leader)
    leader.refuse(0, 1, ErrorCode.REQUEST_TIMED_OUT)
    leader.answered = 1
    leader.acknowledge(1)
    leader.sender.poll()
    assert failures(quorum) == []
    quorum.lose()
    assert says(quorum.lead()) == before


def test_what_was_refused_leaves_no_gap_behind(quorum: Quorum) -> None:
    """The rest goes on under the next epoch, which fences copies of the old one."""
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c", b"d")
    says(leader)
    leader.acknowledge(1)
    leader.refuse(1, 1, ErrorCode.KAFKA_STORAGE_ERROR)
    leader.refuse(2, 2, OUT_OF_ORDER)
    leader.sender.poll()
    assert failures(quorum) == [None, DiskFull]
    quorum.lose()
    again = quorum.lead()
    assert says(again) == [(7, 1, 0, [b"c"]), (7, 1, 1, [b"d"])]
    again.acknowledge(2)
    again.sender.poll()
    assert failures(quorum) == [None, DiskFull, None, None]


def test_what_may_be_in_a_log_is_never_numbered_anew(quorum: Quorum) -> None:
    """The first leader may have appended both; that the second has neither settles nothing."""
    leader = quorum.lead()
    send(leader, b"a", b"b")
    says(leader)
    quorum.lose()
    following = quorum.lead()
    send(following, b"c")
    says(following)
    following.refuse(0, 1, ErrorCode.INVALID_RECORD)
    following.refuse(1, 2, OUT_OF_ORDER)
    following.sender.poll()
    quorum.lose()
    last = quorum.lead()
    assert failures(quorum) == [UnknownOutcome, UnknownOutcome]
    assert says(last) == [(7, 1, 0, [b"c"])]


def test_what_may_be_in_a_log_stays_in_doubt_where_a_producer_ends_at_a_refusal(
    quorum: Quorum,
) -> None:
    quorum.identities.ends_at_refusal = True
    leader = quorum.lead()
    send(leader, b"a")
    says(leader)
    quorum.lose()
    following = quorum.lead()
    send(following, b"b")
    says(following)
    following.refuse(0, 1, ErrorCode.INVALID_RECORD)
    following.refuse(1, 1, OUT_OF_ORDER)
    following.sender.poll()
    quorum.lose()
    for _ in range(2):
        with pytest.raises(ProducerFenced, match="was refused"):
            quorum.lead()
    quorum.identities.fail_rest(quorum.outcomes, LOST)
    assert failures(quorum) == [UnknownOutcome, ProducerFenced] and len(quorum.asked) == 1


def test_a_producer_that_ends_at_a_refusal_goes_on_where_it_was_forgotten(quorum: Quorum) -> None:
    """Nothing was refused for good: all goes again under another id, in its order."""
    quorum.identities.ends_at_refusal = True
    quorum.grants.append((8, 0, -1))
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c")
    says(leader)
    leader.acknowledge(1)
    leader.refuse(1, 1, ErrorCode.UNKNOWN_PRODUCER_ID)
    leader.refuse(2, 2, OUT_OF_ORDER)
    leader.sender.poll()
    quorum.lose()
    again = quorum.lead()
    assert [values for *_, values in says(again)] == [[b"b"], [b"c"]]
    again.acknowledge(2)
    again.sender.poll()
    assert failures(quorum) == [None, None, None]


def test_what_nobody_looked_at_is_numbered_anew(quorum: Quorum) -> None:
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c")
    leader.look(2)
    leader.release()
    leader.refuse(0, 1, ErrorCode.INVALID_RECORD)
    leader.leave()
    leader.sender.poll()
    assert failures(quorum) == [RecordsRefused]
    quorum.lose()
    assert says(quorum.lead()) == [(7, 1, 0, [b"b"]), (7, 1, 1, [b"c"])]


def test_a_forgotten_producer_begins_again(quorum: Quorum) -> None:
    """It was silent, and others came: nothing of it is under way, so nothing is in doubt.

    With another id: of this one so many epochs may be refused as any producer ever had.
    """
    quorum.grants.append((8, 0, -1))
    leader = quorum.lead()
    send(leader, b"a")
    says(leader)
    leader.acknowledge(1)
    leader.sender.poll()
    send(leader, b"b")
    leader.refuse(1, 1, ErrorCode.UNKNOWN_PRODUCER_ID)
    leader.sender.poll()
    quorum.lose()
    assert says(quorum.lead()) == [(8, 0, 0, [b"b"])]
    assert failures(quorum) == [None] and not quorum.identities.identity.forgotten


def test_a_full_disk_settles_nothing_for_what_was_sent_before(quorum: Quorum) -> None:
    leader = quorum.lead()
    send(leader, b"a")
    says(leader)
    quorum.lose()
    full = quorum.lead()
    says(full)
    full.refuse(0, 1, ErrorCode.KAFKA_STORAGE_ERROR)
    full.sender.poll()
    quorum.lose()
    assert says(quorum.lead()) == [(7, 0, 0, [b"a"])] and failures(quorum) == []


def test_after_its_last_epoch_comes_another_id(quorum: Quorum) -> None:
    quorum.grants = [(7, 32766, -1), (8, 0, -1)]
    leader = quorum.lead()
    send(leader, b"a", b"b")
    says(leader)
    leader.refuse(0, 1, ErrorCode.INVALID_RECORD)
    leader.sender.poll()
    quorum.lose()
    assert says(quorum.lead()) == [(8, 0, 0, [b"b"])]


def test_an_offset_that_nobody_knows_any_more(quorum: Quorum) -> None:
    leader = quorum.lead()
    send(leader, b"a", b"b")
    says(leader)
    leader.refuse(0, 1, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
    leader.sender.poll()
    assert failures(quorum) == [UnknownOutcome] and leader.sender.broken is None


def test_a_window_that_is_larger_than_what_is_remembered(quorum: Quorum) -> None:
    with pytest.raises(InvalidOption, match="at most 64"):
        quorum.lead(window=65)


# --- names ------------------------------------------------------------------------------------


def test_a_name_goes_on_where_it_was() -> None:
    quorum = Quorum("n")
    quorum.grants = [(7, 3, 99), (7, 4, 100)]
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c")
    assert [each[:3] for each in says(leader)] == [(7, 3, 100), (7, 3, 101), (7, 3, 102)]
    leader.acknowledge(1)
    leader.refuse(1, 1, ErrorCode.INVALID_RECORD)
    leader.sender.poll()
    quorum.lose()
    assert says(quorum.lead()) == [(7, 4, 101, [b"c"])]
    first, second = quorum.asked
    assert (first.transactional_id, first.producer_id, first.resumes) == ("n", -1, True)
    assert (second.producer_id, second.producer_epoch) == (7, 3), "nobody else's epoch is taken"
    assert quorum.identities.last_sequence(quorum.outcomes) == 100
    quorum.close()


def test_sequences_go_round() -> None:
    quorum = Quorum("n")
    quorum.grants = [(7, 0, 2**31 - 3)]
    leader = quorum.lead()
    send(leader, b"a", b"b", b"c")
    assert [each[2] for each in says(leader)] == [2**31 - 2, 2**31 - 1, 0]
    quorum.close()


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_name_that_another_has_or_nobody_knows(code: ErrorCode) -> None:
    quorum = Quorum("n")
    quorum.grants = [(7, 0, -1), (-int(code), 0, 0)]
    leader = quorum.lead()
    send(leader, b"a", b"b")
    says(leader)
    leader.refuse(0, 1, ErrorCode.INVALID_RECORD)
    leader.sender.poll()
    quorum.lose()
    with pytest.raises(ProducerFenced):
        quorum.lead()
    quorum.close()


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED])
def test_a_fenced_producer_sends_nothing_more(code: ErrorCode) -> None:
    quorum = Quorum("n")
    leader = quorum.lead()
    send(leader, b"a", b"b")
    says(leader)
    leader.refuse(0, 1, code)
    leader.sender.poll()
    assert isinstance(leader.sender.broken, ProducerFenced)
    quorum.identities.fail_rest(quorum.outcomes, LOST)
    assert failures(quorum) == [ProducerFenced, ProducerFenced]
    with pytest.raises(ProducerFenced):
        quorum.lead()
    quorum.close()


@pytest.mark.parametrize("name", ["", "n" * 256, "ü" * 128])
def test_names_that_cannot_be(name: str) -> None:
    with pytest.raises(InvalidOption, match="name"):
        Quorum(name)


def test_what_follows_a_batch_that_may_be_in_the_log_is_not_numbered_anew(quorum: Quorum) -> None:
    """It had the first one from an earlier leader, refused it unseen, and appended the next."""
    leader = quorum.lead()
    send(leader, b"a")
    says(leader)
    quorum.lose()
    following = quorum.lead()
    send(following, b"b")
    says(following)
    following.refuse(0, 1, ErrorCode.INVALID_RECORD)
    following.sender.poll()
    quorum.lose()
    assert says(quorum.lead()) == [] and failures(quorum) == [UnknownOutcome] * 2


def test_a_refused_record_is_not_counted() -> None:
    """Whoever goes on behind the last sequence must not pass it over."""
    for name, grants in (("n", [(7, 0, 9), (7, 1, 10)]), (None, [(7, 0, -1)])):
        quorum = Quorum(name)
        quorum.grants = list(grants)
        first = 10 if name else 0
        leader = quorum.lead()
        numbers = [quorum.identities.last_sequence(quorum.outcomes)]
        send(leader, b"a", b"b", b"c")
        says(leader)
        leader.acknowledge(1)
        leader.refuse(1, 1, ErrorCode.KAFKA_STORAGE_ERROR)
        leader.sender.poll()
        numbers.append(quorum.identities.last_sequence(quorum.outcomes))
        quorum.lose()
        again = quorum.lead()
        numbers.append(quorum.identities.last_sequence(quorum.outcomes))
        says(again)
        again.acknowledge(1)
        again.sender.poll()
        numbers.append(quorum.identities.last_sequence(quorum.outcomes))
        send(again, b"d")
        quorum.lose()
        quorum.identities.fail_rest(quorum.outcomes, LOST)
        numbers.append(quorum.identities.last_sequence(quorum.outcomes))
        assert numbers == [first - 1, first, first, first + 1, first + 1], name
        quorum.close()
