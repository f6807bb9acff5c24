"""Tickets and what became of them, against a plain dictionary."""

from __future__ import annotations

import asyncio
import math
from collections import deque
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.tickets import offsets_of
from kraftfast.errors import DiskFull, ErrorCode, LocalError, RecordTooLarge, UnknownOutcome
from tests.client.kit import ACK, ScriptedReplica, ack

FAILURES = {
    ErrorCode.KAFKA_STORAGE_ERROR: DiskFull,
    ErrorCode.MESSAGE_TOO_LARGE: RecordTooLarge,
    ErrorCode.REQUEST_TIMED_OUT: UnknownOutcome,
}


class Model:
    """One record a batch; every one is answered as told, and remembered in a dictionary."""

    def __init__(self, window: int = 256) -> None:
        self.outcomes = Outcomes()
        self.replica = ScriptedReplica(self.outcomes, window=window)
        self.outcome: dict[int, int | type[Exception]] = {}

    def commit(self, count: int, gap: int) -> None:
        """``count`` batches of one record, behind ``gap`` records of somebody else."""
        first = self._hand_over(count)
        base = self.replica.offset + gap
        for i in range(count):
            self.outcome[first + i] = base + i
        self.replica.say(ACK, ack(first, count, base, base + count))
        self.replica.offset = base + count
        self.replica.sender.poll()

    def fail(self, count: int, code: int) -> None:
        """``count`` batches are refused."""
        first = self._hand_over(count)
        self.outcome |= dict.fromkeys(range(first, first + count), FAILURES[code])
        self.replica.refuse(first, count, code)
        self.replica.sender.poll()

    def _hand_over(self, count: int) -> int:
        first = self.outcomes.next_ticket
        for _ in range(count):
            assert self.replica.sender.append(b"v") >= 0
            self.replica.sender.seal()
        assert len(self.replica.look()) == count
        self.replica.release()
        return first


actions = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(1, 4), st.integers(0, 2)),
        st.tuples(st.just("fail"), st.integers(1, 3), st.sampled_from(sorted(FAILURES))),
    ),
    max_size=20,
)


@settings(max_examples=40, deadline=None)
@given(actions)
def test_what_is_said_of_each_ticket_is_what_became_of_it(steps: list[Any]) -> None:
    model = Model()
    for name, count, how in steps:
        getattr(model, name)(count, how)
    outcomes = model.outcomes
    assert outcomes.resolved == outcomes.next_ticket == len(model.outcome)
    for ticket, expected in model.outcome.items():
        if isinstance(expected, int):
            assert outcomes.offset_of(ticket) == expected
        else:
            with pytest.raises(expected):
                outcomes.offset_of(ticket)
    runs = outcomes.runs(0, outcomes.resolved)
    told: dict[int, Any] = {}
    for first, end, base, failure in runs:
        assert first < end and first == len(told), "runs follow each other"
        for ticket in range(first, end):
            told[ticket] = base + ticket - first if failure is None else type(failure)
    assert told == model.outcome


def test_tickets_that_are_not_resolved_or_were_never_handed_out_are_told_apart() -> None:
    model = Model()
    model.commit(2, 0)
    assert model.replica.sender.append(b"open") == 2
    for ticket, text in ((2, "not resolved"), (3, "never handed out"), (-1, "never handed out")):
        with pytest.raises(LocalError, match=text):
            model.outcomes.offset_of(ticket)
    with pytest.raises(LocalError, match="not all of them"):
        model.outcomes.runs(0, 3)


def test_each_asker_gets_a_failure_of_its_own() -> None:
    model = Model()
    model.fail(2, ErrorCode.KAFKA_STORAGE_ERROR)
    seen = []
    for _ in range(2):
        with pytest.raises(DiskFull) as caught:
            model.outcomes.offset_of(1)
        seen.append(caught.value)
    assert seen[0] is not seen[1] and str(seen[0]) == str(seen[1])


def test_memory_is_bounded_and_what_is_forgotten_is_said_to_be() -> None:
    model = Model(window=4096)
    model.fail(1, ErrorCode.KAFKA_STORAGE_ERROR)
    for _ in range(1100):
        model.fail(1, ErrorCode.MESSAGE_TOO_LARGE)
    with pytest.raises(UnknownOutcome, match="too long ago"):
        model.outcomes.offset_of(0)  # why it failed is forgotten; it is not taken for committed
    for _ in range(66_000):
        model.commit(1, 1)
    assert model.outcomes.first_known > 0
    with pytest.raises(UnknownOutcome, match="forgotten"):  # all else says "not appended" (D24)
        model.outcomes.offset_of(0)
    with pytest.raises(UnknownOutcome, match="forgotten"):
        model.outcomes.runs(0, 1)
    with pytest.raises(UnknownOutcome, match="forgotten") as caught:
        offsets_of(model.outcomes, [range(0, 5)])
    assert caught.value.tickets == [range(0, 5)]
    last = model.outcomes.resolved - 1
    assert model.outcomes.offset_of(last) == model.outcome[last]
    first = model.outcomes.first_known
    assert model.outcomes.offset_of(first) == model.outcome[first]


def test_futures_get_what_became_of_their_tickets() -> None:
    async def main() -> None:
        model = Model()
        loop = asyncio.get_running_loop()
        waiting = deque((ticket, loop.create_future(), math.inf) for ticket in range(5))
        futures = [future for _, future, _ in waiting]
        futures[1].cancel()
        model.commit(2, 0)
        model.fail(1, ErrorCode.KAFKA_STORAGE_ERROR)
        model.outcomes.settle(waiting)
        assert futures[0].result() == model.outcome[0] and futures[1].cancelled()
        assert isinstance(futures[2].exception(), DiskFull)
        assert not futures[3].done() and len(waiting) == 2
        model.commit(2, 5)
        model.outcomes.settle(waiting)
        assert [future.result() for future in futures[3:]] == [model.outcome[3], model.outcome[4]]

    asyncio.run(main())
