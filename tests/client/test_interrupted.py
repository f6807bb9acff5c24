"""An exception at every point of a call, as a signal handler may raise it: the producer goes on.

A trace function raises at the n-th line of Python code, for every n until the call gets through;
compiled code runs no handlers. Afterwards the producer must work, and what is said must be true.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from kraftfast.client.producer.producer import Producer
from kraftfast.errors import (
    Closed,
    DiskFull,
    InconsistentClusterId,
    KraftfastError,
    UnknownOutcome,
)
from tests.client.scripted_quorum import ScriptedQuorum
from tests.histories import COMMITTED, FAILED, Append, check

OURS = ("kraftfast/client/", "kraftfast/errors.py")


class Interrupted(BaseException):
    """What the handler raises."""


def interrupt(call: Callable[[], Any], lines: int) -> bool:
    """Make the call, and raise in it after so many lines; whether it got that far."""
    left, raised = lines, False

    def line(_frame: FrameType, event: str, _argument: Any) -> Any:
        nonlocal left, raised
        if event == "line":
            left -= 1
            if left < 0:
                sys.settrace(None)
                raised = True
                raise Interrupted
        return line

    def begin(frame: FrameType, _event: str, _argument: Any) -> Any:
        return line if any(part in frame.f_code.co_filename for part in OURS) else None

    before = sys.gettrace()
    sys.settrace(begin)
    try:
        call()
    except Interrupted:
        pass
    finally:
        sys.settrace(before)
    return raised


@pytest.fixture
def quorum() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum()
    yield found
    found.stop()


def told(quorum: ScriptedQuorum, producer: Producer, values: dict[int, bytes]) -> list[Append]:
    """What the outcomes says of these tickets."""
    found = []
    for ticket, value in values.items():
        append = Append("p", ticket, value, 0.0)
        try:
            append.offset = producer.outcomes.offset_of(ticket)
            append.outcome, append.acked = COMMITTED, 1.0
        except UnknownOutcome:
            pass
        except KraftfastError:
            append.outcome = FAILED
        found.append(append)
    return found


CALLS: dict[str, Callable[[ScriptedQuorum, Producer, bytes], Any]] = {
    "append_wait": lambda _, producer, value: producer.append_wait(value, timeout=5),
    "append_many": lambda _, producer, value: producer.append_many([value] + [b""] * 20, timeout=5),
    "large": lambda _, producer, value: producer.append_wait(value + b"v" * 60_000, timeout=5),
    "failover": lambda quorum, producer, value: (
        producer.append(value),
        quorum.lose(),
        producer.flush(timeout=5),
    ),
    "resigned": lambda quorum, producer, value: (
        setattr(quorum, "mute", True),
        producer.append(value),
        quorum.resign(),
        producer.flush(timeout=5),
    ),
}


@pytest.mark.parametrize("idempotent", [True, False])
@pytest.mark.parametrize("name", list(CALLS))
def test_a_producer_goes_on_wherever_an_exception_came(
    quorum: ScriptedQuorum, name: str, idempotent: bool
) -> None:
    number, lines, reached = 0, 0, True
    while reached:
        with Producer(quorum, 5.0, 0, idempotent) as producer:
            number += 1
            begun = producer.append_wait(b"begun %d" % number, timeout=5)
            reached = interrupt(lambda: CALLS[name](quorum, producer, b"%d" % number), lines)
            quorum.mute = False
            after = producer.append_wait(b"after %d" % number, timeout=5)
            producer.flush(timeout=5)
            assert producer.resolved == producer.outcomes.next_ticket and after > begun
            assert not producer.pumping
        lines += 1
    values = [value[:20] for value in quorum.values() if value]
    assert len(values) == len(set(values)), "something was appended twice"
    assert lines > 10


def test_a_close_that_was_interrupted_is_finished_by_the_next(quorum: ScriptedQuorum) -> None:
    lines, reached = 0, True
    while reached:
        called_back: list[int] = []
        producer = Producer(quorum, 5.0)
        producer.on_commit(
            lambda batch, to=called_back: to.extend(range(batch.first_ticket, batch.end_ticket))
        )
        producer.append_wait(b"begun")
        quorum.mute = True
        tickets = [producer.append(b"v") for _ in range(3)]
        reached = interrupt(lambda: producer.close(timeout=0.02), lines)
        producer.close(timeout=0.02)
        for ticket in tickets:
            with pytest.raises((UnknownOutcome, Closed)):
                producer.wait(ticket)
        assert called_back == [0, *tickets]
        quorum.mute = False
        lines += 3


# --- outcomes ---------------------------------------------------------------------------------


def test_a_search_that_fails_says_nothing_of_a_ticket(quorum: ScriptedQuorum) -> None:
    """A leader may have it: an error of the way there must not read as 'not appended'."""
    with Producer(quorum, 5.0) as producer:
        producer.append_wait(b"first")
        quorum.mute = True
        ticket = producer.append(b"pay 100")
        quorum.reachable, quorum.problem = False, InconsistentClusterId("of another cluster")
        quorum.lose()
        asks = (lambda: producer.wait(ticket, timeout=0.3), lambda: producer.flush(timeout=0.3))
        for ask in asks:
            with pytest.raises(UnknownOutcome, match="another cluster|not acknowledged"):
                ask()
        quorum.mute, quorum.reachable = False, True
        offset = producer.wait(ticket, timeout=5)
        producer.append_wait(b"last")
    assert quorum.values().count(b"pay 100") == 1 and quorum.values()[offset] == b"pay 100"


def test_many_of_which_some_are_refused_are_not_reported_as_refused(
    quorum: ScriptedQuorum,
) -> None:
    values = [b"%d" % number + b"v" * 900 for number in range(6)]
    quorum.refused = {values[3]}
    with Producer(quorum, 5.0) as producer:
        with pytest.raises(UnknownOutcome) as caught:
            producer.append_many(values, timeout=5)
        assert caught.value.handed_over == 6 and caught.value.tickets == [range(6)]
        with pytest.raises(DiskFull):
            producer.wait(3)
        quorum.refused = {b"alone"}
        with pytest.raises(DiskFull):
            producer.append_many([b"alone"], timeout=5)
        quorum.refused = set()
        assert producer.last_sequence() == len(quorum.values()) - 1
        appends = told(quorum, producer, dict(enumerate(values)))
    assert not check(appends, [each for each in quorum.log.records() if each[1] in values])
    assert {append.outcome for append in appends} >= {COMMITTED, FAILED}


def test_callbacks_are_called_for_all_that_a_close_gave_up(quorum: ScriptedQuorum) -> None:
    for _ in range(20):
        called_back: list[int] = []
        quorum.mute = False
        producer = Producer(quorum, 5.0)
        producer.append_wait(b"begun")
        producer.on_commit(
            lambda batch, to=called_back: to.extend(range(batch.first_ticket, batch.end_ticket))
        )
        quorum.mute = True
        tickets = [producer.append(b"v") for _ in range(3)]
        producer.close(timeout=0.01)
        assert called_back == tickets
