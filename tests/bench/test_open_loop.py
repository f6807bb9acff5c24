"""Loads at a rate: a stall is paid by every record that was due in it."""

from __future__ import annotations

import numpy as np
import pytest

from kraftfast.bench.loads.inputs import InputRows
from kraftfast.bench.loads.load import Latency, LoadRun
from kraftfast.bench.loads.open_loop import Commits, Step, at_rate, of_counts
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import KraftfastError, TimedOut
from kraftfast.link.percentiles import quantile_us
from kraftfast.link.stats import bucket_tops
from tests.client.scripted_quorum import ScriptedQuorum

MS = 1_000_000
TIMEOUT_S = 30


def commits(*told: tuple[int, int]) -> Commits:
    """Batches (told at ms, the ticket behind its last)."""
    made = Commits()
    for at_ms, end in told:
        made.at_ns.append(at_ms * MS)
        made.ends.append(end)
    return made


def test_a_response_begins_when_the_record_was_due() -> None:
    """1,000 records a second; ten were due in a stall of 10 ms, and all come at its end."""
    made = commits((11, 110), (12, 111))
    counts = made.responses(100, 11, began_ns=0, rate=1000)
    assert counts.sum() == 11
    us = np.repeat(np.array(bucket_tops()) / 1000, counts)
    expected = sorted([11_000 - 1000 * due for due in range(10)] + [2000])
    assert us == pytest.approx(expected, rel=0.02)
    assert of_counts(counts)["max_us"] == pytest.approx(11_000, rel=0.02)
    assert quantile_us(counts, 0.5) == pytest.approx(6000, rel=0.02)
    assert quantile_us(0 * counts, 0.5) is None


@pytest.mark.parametrize(
    "took_s, sent_all, held",
    [(1.0, True, True), (1.09, True, True), (1.2, True, False), (1.0, False, False)],
)
def test_a_rate_is_held_where_all_is_committed_in_time(
    took_s: float, sent_all: bool, held: bool
) -> None:
    latency = Latency(1.0, 2.0, 3.0, 4.0, 5000)
    response = commits((11, 10)).responses(0, 10, 0, 1000)
    step = Step(LoadRun(1000, 1, took_s, latency, 1000), 1000.0, response, 5.0, 1.0, sent_all)
    assert step.held is held


def test_no_rate_is_above_what_was_due() -> None:
    """Few records are committed faster, one behind the other, than they were due."""
    quorum = ScriptedQuorum()
    try:
        with Producer(quorum, TIMEOUT_S) as producer:
            told = Commits()
            producer.on_commit(told.note)
            for rate in (10.0, 30.0):
                step = at_rate(producer, told, InputRows(None, 100), 0, rate=rate, seconds=0.2)
                assert step.run.records_per_s <= rate * 1.001
    finally:
        quorum.stop()


def test_what_was_not_held_has_no_times() -> None:
    latency = Latency(1.0, 2.0, 3.0, 4.0, 5000)
    response = commits((11, 10)).responses(0, 10, 0, 1000)
    slow = Step(LoadRun(1000, 1, 1.25, latency, 1000), 1000.0, response, 5.0, 1.0, True).line()
    assert (slow["held"], slow["behind_percent"]) == (False, 20.0)
    assert slow["p50_us"] is slow["max_us"] is slow["service_p50_us"] is None
    good = Step(LoadRun(1000, 1, 1.0, latency, 1000), 1000.0, response, 5.0, 1.0, True).line()
    assert good["held"] and good["behind_percent"] == 0.0
    assert good["max_us"] > 0 and good["service_p50_us"] == 1.0


def test_a_rate_that_cannot_be_handed_over_ends_in_time() -> None:
    quorum = ScriptedQuorum()
    try:
        with Producer(quorum, TIMEOUT_S) as producer:
            told = Commits()
            producer.on_commit(told.note)
            step = at_rate(producer, told, InputRows(None, 100), 0, rate=1e9, seconds=0.1)
            assert not step.held and step.run.records < 1e8
            assert step.response.sum() == step.run.records
    finally:
        quorum.stop()


def test_batches_that_failed_are_not_commits() -> None:
    made = Commits()
    made.note(TicketedBatch(0, 5, -1, KraftfastError("failed")))
    assert not made.ends
    with pytest.raises(TimedOut, match="not told"):
        made.wait(5, timeout_s=0.01)


def test_records_go_on_in_the_cycle_and_all_are_counted() -> None:
    quorum = ScriptedQuorum()
    rows = InputRows(None, 300_000)  # a cycle of three
    try:
        with Producer(quorum, TIMEOUT_S) as producer:
            told = Commits()
            producer.on_commit(told.note)
            step = at_rate(producer, told, rows, 2, rate=100.0, seconds=0.1)
            assert step.run.records == 10 and step.response.sum() == 10
            again = at_rate(producer, told, rows, 12, rate=50.0, seconds=0.1)
            assert again.run.records == 5 and again.response.sum() == 5
    finally:
        quorum.stop()
