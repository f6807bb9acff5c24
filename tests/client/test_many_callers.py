"""Threads that share a producer, each of which waits for its own record."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from kraftfast.client.producer import appender
from kraftfast.client.producer.producer import Producer
from kraftfast.errors import UnknownOutcome
from tests.client.kit import wait_until
from tests.client.scripted_quorum import ScriptedQuorum

LONG_S = 20.0


@pytest.fixture
def quorum() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum(window=64)
    yield found
    found.stop()


class Caller(threading.Thread):
    """Appends so many records and waits for each; ``offsets``: of those that were acknowledged."""

    def __init__(self, producer: Producer, value: bytes, timeout: float, records: int = 1) -> None:
        super().__init__(daemon=True)
        self.producer, self.value, self.timeout, self.records = producer, value, timeout, records
        self.offsets: list[int] = []
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            for _ in range(self.records):
                self.offsets.append(self.producer.append_wait(self.value, timeout=self.timeout))
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.failure = error


def ended(callers: list[Caller]) -> None:
    for each in callers:
        each.join(2 * LONG_S)
        assert not each.is_alive()


def test_their_records_share_batches(quorum: ScriptedQuorum) -> None:
    with Producer(quorum, 5.0) as producer:
        callers = [Caller(producer, b"%d" % number, LONG_S, 100) for number in range(8)]
        for each in callers:
            each.start()
        ended(callers)
        assert [each.failure for each in callers] == [None] * 8
        batches = len(quorum.log.stored)
    assert sorted(offset for each in callers for offset in each.offsets) == list(range(800))
    assert batches < 800 / 3, "each thread had a batch of its own"


@pytest.mark.parametrize("leave_early", [1, 4])
def test_who_leaves_early_has_another_one_take_in_the_answers(
    quorum: ScriptedQuorum, leave_early: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One thread takes in what comes for all. The next one must do it at once, and not after the
    half second in which each looks for itself."""
    monkeypatch.setattr(appender, "SLEEP_S_MAX", 10 * LONG_S)
    with Producer(quorum, 5.0) as producer:
        producer.append_wait(b"first")
        quorum.mute = True
        hasty = [Caller(producer, b"hasty", 0.2) for _ in range(leave_early)]
        patient = [Caller(producer, b"patient", LONG_S) for _ in range(3)]
        for each in hasty + patient:
            each.start()
        wait_until(lambda: producer.outcomes.next_ticket == 1 + leave_early + 3)
        ended(hasty)
        assert all(isinstance(each.failure, UnknownOutcome) for each in hasty)
        quorum.mute = False
        ended(patient)
        assert [each.failure for each in patient] == [None] * 3


def test_who_has_its_answer_leaves_and_another_one_takes_in_the_rest(
    quorum: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender, "SLEEP_S_MAX", 10 * LONG_S)
    with Producer(quorum, 5.0) as producer:
        for _ in range(100):
            first, second = Caller(producer, b"1", LONG_S), Caller(producer, b"2", LONG_S)
            first.start()
            second.start()
            ended([first, second])
            assert first.failure is None and second.failure is None
