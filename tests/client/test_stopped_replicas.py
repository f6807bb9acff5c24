"""Replicas that hang: a call that asks all of them keeps to its time, however many hang."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from kraftfast.client import local_quorum
from kraftfast.errors import KraftfastError, NoQuorum, UnknownOutcome
from kraftfast.quorum import LocalQuorum
from tests.client.test_faults import stopped

pytestmark = pytest.mark.processes

MORE_S = 0.9
"""Beyond a timeout: less than one replica more is waited for, a second."""


@pytest.fixture
def hung(ring_quorum: LocalQuorum) -> Iterator[LocalQuorum]:
    """All three voters hang."""
    ring_quorum.wait_leader(timeout=20)
    with stopped(ring_quorum, *ring_quorum.directories):
        yield ring_quorum
    ring_quorum.wait_leader(timeout=20)


def seconds(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


def test_statuses_takes_as_long_as_one_status_at_most(
    hung: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_quorum, "STATUS_S", 1.5)
    assert seconds(lambda: hung.statuses() == {}) < 1.5 + MORE_S
    assert seconds(hung.leader) < 1.5 + MORE_S


def test_a_replica_that_answers_is_heard_beside_those_that_hang(
    ring_quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_quorum, "STATUS_S", 1.5)
    with stopped(ring_quorum, 1, 2):
        assert list(ring_quorum.statuses()) == [3]
    assert list(ring_quorum.statuses()) == [1, 2, 3]


def test_a_consumer_is_refused_in_time(hung: LocalQuorum) -> None:
    def make() -> None:
        with pytest.raises(NoQuorum, match="timed out"):
            hung.consumer(timeout=1)

    assert seconds(make) < 1 + MORE_S


def test_a_wait_ends_in_time(ring_quorum: LocalQuorum) -> None:
    with ring_quorum.consumer() as consumer:
        consumer.position = consumer.high_watermark
        with stopped(ring_quorum, *ring_quorum.directories):
            for id in ring_quorum.directories:
                if consumer._watches[id] is not consumer._source:
                    consumer._forget(id)
            assert seconds(lambda: consumer.wait(0.3)) < 0.3 + MORE_S
    ring_quorum.wait_leader(timeout=20)


@pytest.mark.parametrize("name", ["wait_leader", "producer", "read_barrier"])
def test_others_end_in_time(hung: LocalQuorum, name: str) -> None:
    def call() -> None:
        with pytest.raises(KraftfastError) as caught:
            getattr(hung, name)(timeout=1)
        assert "None" not in str(caught.value), "it says what was waited for"

    assert seconds(call) < 1 + MORE_S


@pytest.mark.parametrize("called_back", [False, True])
def test_a_close_takes_as_long_as_it_was_told(ring_quorum: LocalQuorum, called_back: bool) -> None:
    """Whatever time the producer was given to find a leader."""
    producer = ring_quorum.producer(timeout=20)
    told: list[object] = []
    if called_back:
        producer.on_commit(lambda batch: told.append(batch.error))
    producer.append_wait(b"before", timeout=20)
    with stopped(ring_quorum, *ring_quorum.directories):
        ticket = producer.append(b"under way")
        assert 0.3 <= seconds(lambda: producer.close(timeout=0.3)) < 0.3 + MORE_S
        with pytest.raises(UnknownOutcome, match="closed before the answer came"):
            producer.wait(ticket, timeout=0)
    assert [type(error) for error in told] == [type(None), UnknownOutcome][: 2 * called_back]
    ring_quorum.wait_leader(timeout=20)
