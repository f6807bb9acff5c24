"""Producers while replicas die, stop and come back: what was said of a record is true.

Nothing acknowledged is lost, moved, doubled or out of order; what was reported as failed never
appears; the rest was reported as unknown (I23, I24).
"""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.consumer import consumer as consumer_module
from kraftfast.client.local_socket import ask
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import (
    Closed,
    KraftfastError,
    NoQuorum,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.quorum import LocalQuorum
from tests.client.conftest import SMALL
from tests.client.kit import wait_until


class Load:
    """Threads that append numbered values in a window, and note what is said of each.

    ``outcomes``: value -> offset, or the exception. They stop when the block ends, or fails.
    """

    WINDOW = 100

    def __init__(self, quorum: LocalQuorum, producer: Producer, threads: int) -> None:
        self.quorum, self.producer = quorum, producer
        self.start_offset = producer.append_wait(b"load begins") + 1
        self.outcomes: dict[bytes, Any] = {}
        self.committed = [0] * threads
        self._stop = threading.Event()
        self._threads = [
            threading.Thread(target=self._run, args=(name,)) for name in range(threads)
        ]

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_exc: object) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive(), "an append or a wait has no end"

    def _run(self, name: int) -> None:
        under_way: deque[tuple[int, bytes]] = deque()
        number = 0
        while not self._stop.is_set():
            value = b"%d:%d:" % (name, number) + b"v" * (number % 500)
            number += 1
            try:
                under_way.append((self.producer.append(value, timeout=20), value))
            except Closed:
                break
            except KraftfastError as error:
                self.outcomes[value] = error
            if len(under_way) >= self.WINDOW:
                self._settle(name, *under_way.popleft())
        for each in under_way:
            self._settle(name, *each)

    def _settle(self, name: int, ticket: int, value: bytes) -> None:
        try:
            self.outcomes[value] = self.producer.wait(ticket, timeout=20)
            self.committed[name] += 1
        except KraftfastError as error:
            self.outcomes[value] = error

    def go_on(self, count: int = 300) -> None:
        """Until so many more records are committed."""
        before = sum(self.committed)
        wait_until(lambda: sum(self.committed) >= before + count, 20)

    def verify(self) -> dict[str, int]:
        """Compare what was said with the log. Counts by kind of outcome."""
        with self.quorum.consumer(self.start_offset) as consumer:
            log = [(record.offset, record.value) for record in consumer]
        where = {value: offset for offset, value in log}
        assert len(where) == len(log), "a record appears twice"
        counts = {"committed": 0, "unknown": 0, "failed": 0}
        for value, outcome in self.outcomes.items():
            if isinstance(outcome, int):
                counts["committed"] += 1
                assert where.get(value) == outcome, f"{value[:20]!r} was acknowledged"
            elif isinstance(outcome, UnknownOutcome):
                counts["unknown"] += 1
            else:
                counts["failed"] += 1
                assert value not in where, f"{value[:20]!r} was reported as failed: {outcome!r}"
        last: dict[bytes, int] = {}
        for _, value in log:
            name, number, _ = value.split(b":")
            assert int(number) > last.get(name, -1), "a thread's records are in its order"
            last[name] = int(number)
        return counts


def leader_of(quorum: LocalQuorum) -> int:
    return wait_until(quorum.leader, 20)


@contextlib.contextmanager
def stopped(quorum: LocalQuorum, *ids: int) -> Iterator[None]:
    """These replicas do nothing, as long as it lasts."""
    for id in ids:
        quorum.kill(id, signal.SIGSTOP)
    try:
        yield
    finally:
        for id in ids:
            quorum.kill(id, signal.SIGCONT)


def followers_of(quorum: LocalQuorum) -> list[int]:
    leader = leader_of(quorum)
    return [id for id in quorum.directories if id != leader]


@pytest.mark.processes
def test_the_leader_is_killed_under_load(mortal_quorum: LocalQuorum) -> None:
    batches: list[TicketedBatch] = []
    with mortal_quorum.producer() as producer:
        producer.on_commit(batches.append)
        with Load(mortal_quorum, producer, threads=3) as load:
            for _ in range(3):
                load.go_on()
                mortal_quorum.kill(leader_of(mortal_quorum))
            load.go_on()
    counts = load.verify()
    assert counts["committed"] > 1200
    assert counts["unknown"] <= 3 * 3 * load.WINDOW, (
        "of a leader that died, what was under way at most"
    )
    assert [b.first_ticket for b in batches] == [0, *(b.end_ticket for b in batches[:-1])]
    assert batches[-1].end_ticket == producer.resolved
    told = sum(b.end_ticket - b.first_ticket for b in batches if b.error is None)
    assert told == counts["committed"] + 1


@pytest.mark.processes
def test_an_idle_producer_outlives_its_leader(mortal_quorum: LocalQuorum) -> None:
    """Nothing of it was under way, so there is no doubt about anything."""
    producers = [mortal_quorum.producer(idempotent=False) for _ in range(20)]
    for producer in producers:
        producer.append_wait(b"before")
    leader = leader_of(mortal_quorum)
    epoch = mortal_quorum.status(leader)["epoch"]
    mortal_quorum.kill(leader)
    told = mortal_quorum.statuses
    wait_until(lambda: any(e["leader_id"] > 0 and e["epoch"] > epoch for e in told().values()), 20)
    for producer in producers:
        assert producer.append_wait(b"after") > 0
        producer.close()


@pytest.mark.processes
@pytest.mark.parametrize("idempotent", [False, True])
def test_the_leader_is_stopped_and_comes_back(mortal_quorum: LocalQuorum, idempotent: bool) -> None:
    with mortal_quorum.producer(idempotent=idempotent) as producer:
        with Load(mortal_quorum, producer, threads=2) as load:
            load.go_on()
            leader = leader_of(mortal_quorum)
            with stopped(mortal_quorum, leader):
                load.go_on()
                assert producer.sender is not None and producer.sender.node_id not in (leader, -1)
            load.go_on()
        assert producer.sender.node_id != leader
    counts = load.verify()
    assert (counts["unknown"] == 0) == idempotent, "what it had taken when it was stopped"


@pytest.mark.processes
@pytest.mark.parametrize("idempotent", [False, True])
def test_callbacks_learn_of_a_stopped_leader_though_nobody_waits(
    mortal_quorum: LocalQuorum, idempotent: bool
) -> None:
    told: list[Any] = []
    with mortal_quorum.producer(idempotent=idempotent) as producer:
        producer.append_wait(b"before")
        producer.on_commit(told.append)
        with stopped(mortal_quorum, leader_of(mortal_quorum)):
            ticket = producer.append(b"nobody asks for it")
            wait_until(lambda: told)
        assert told[0].first_ticket <= ticket < told[0].end_ticket
        assert isinstance(told[0].error, UnknownOutcome) != idempotent


@pytest.mark.processes
def test_without_a_majority_every_call_ends_in_time_with_the_truth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer_module, "SEARCH_S", 0.3)
    settings = SMALL | {"fetch_timeout_ms": 600, "restart": False}
    with LocalQuorum(tmp_path / "q", **settings) as quorum, quorum.producer() as producer:
        producer.append_wait(b"committed")
        reader = quorum.consumer()
        for id in followers_of(quorum):
            quorum.kill(id)
        with pytest.raises(UnknownOutcome):
            producer.append_wait(b"taken", timeout=0.3)
        wait_until(lambda: quorum.leader() is None)  # it finds that it has no majority, and resigns
        with pytest.raises((NoQuorum, UnknownOutcome)):
            producer.append_wait(b"nobody leads", timeout=0.3)
        with pytest.raises(WouldBlock):
            for _ in range(10_000):
                producer.try_append(b"v" * 40_000)
        for id in quorum.directories:
            quorum.kill(id)
        calls: list[tuple[Callable[[], Any], Any]] = [
            (lambda: producer.append(b"v", timeout=0.2), (NoQuorum, TimedOut)),
            (lambda: producer.append_many([b"v"] * 10, timeout=0.2), (NoQuorum, TimedOut)),
            (lambda: producer.append_wait(b"v" * (5 << 20), timeout=0.2), (NoQuorum, TimedOut)),
            (lambda: producer.flush(timeout=0.2), UnknownOutcome),
            (lambda: quorum.producer(timeout=0.2), NoQuorum),
            (lambda: quorum.consumer(0, timeout=0.2), NoQuorum),
            (lambda: reader.read(10, timeout=0.2), NoQuorum),  # it found one, and gives it back
            (lambda: reader.wait(None), NoQuorum),
        ]
        for call, kinds in calls:
            began = time.monotonic()
            with pytest.raises(kinds):
                call()
            assert time.monotonic() - began < 3.0
        assert reader.position == 0
        producer.close(timeout=0.2)


# covers: testAppendFailedWithBufferAllocationException, testMaxNumberOfBatches
@pytest.mark.processes
def test_back_pressure_waits_for_room_and_says_so(quorum: LocalQuorum) -> None:
    value = b"v" * 50_000
    with quorum.producer(window=4) as producer:
        start = producer.append_wait(b"start")
        handed_over, done = 0, list[int]()
        waiter = threading.Thread(
            target=lambda: done.append(producer.append_wait(b"waited" + value, timeout=20))
        )
        with stopped(quorum, *followers_of(quorum)):
            with pytest.raises(WouldBlock):
                for handed_over in range(1000):
                    producer.try_append(b"%d" % handed_over + value)
            began = time.monotonic()
            with pytest.raises(TimedOut):
                producer.append(b"late" + value, timeout=0.2)
            with pytest.raises(TimedOut):
                producer.append_many([b"late" + value], timeout=0.2)
            assert 0.3 < time.monotonic() - began < 3.0
            waiter.start()
            with pytest.raises(UnknownOutcome):
                producer.wait(handed_over, timeout=0.2)
        waiter.join(30)
        producer.flush()
    with quorum.consumer(start + 1) as consumer:
        found = [record.value[:-50_000] for record in consumer]
    assert found == [b"%d" % i for i in range(handed_over)] + [b"waited"]
    assert done == [start + 1 + handed_over]


@pytest.mark.processes
def test_many_that_are_cut_short_say_how_many(quorum: LocalQuorum) -> None:
    values = [b"%06d" % i * 1000 for i in range(1000)]
    with quorum.producer(window=4) as producer:
        start = producer.append_wait(b"start")
        with stopped(quorum, *followers_of(quorum)), pytest.raises(UnknownOutcome) as caught:
            producer.append_many(values, timeout=0.4)
        error = caught.value
        assert 0 < error.handed_over < 1000 and error.tickets == [range(1, 1 + error.handed_over)]
        producer.flush()
        offsets = [producer.wait(ticket) for ticket in error.tickets[0]]
    with quorum.consumer(start + 1) as consumer:
        assert [(record.offset, record.value) for record in consumer] == list(zip(offsets, values))


@pytest.mark.processes
def test_closing_while_nothing_is_acknowledged(quorum: LocalQuorum) -> None:
    seen: list[TicketedBatch] = []
    producer = quorum.producer()
    producer.on_commit(seen.append)
    producer.append_wait(b"committed")
    waiter_said: list[Exception] = []

    def wait() -> None:
        try:
            producer.wait(tickets[0], timeout=60)
        except KraftfastError as error:
            waiter_said.append(error)

    waiter = threading.Thread(target=wait)
    with stopped(quorum, *followers_of(quorum)):
        tickets = [producer.append(b"%d" % i) for i in range(3)]
        waiter.start()
        began = time.monotonic()
        producer.close(timeout=0.3)
        assert time.monotonic() - began < 3.0
        waiter.join(10)
    assert [type(error) for error in waiter_said] == [UnknownOutcome]
    for ticket in tickets:
        with pytest.raises((UnknownOutcome, Closed)):
            producer.wait(ticket)
    assert seen[-1].end_ticket == 4 and seen[-1].error is not None


CLAIMS = """
import os, signal, sys
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.local_connector import LocalConnector
import time
directories = {int(id): path for id, path in (each.split("=", 1) for each in sys.argv[1:])}
sender = LocalConnector(directories, 65536, 64).connect(Outcomes(), 0, time.monotonic() + 10)
sender.append(b"sent by the one that died")
while sender.under_way:
    sender.poll()
while not (sender.append(b"half a batch") >= 0 and sender.has_open):
    pass
print("claimed", flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.processes
def test_a_producer_that_dies_in_the_middle_of_a_claim(ring_quorum: LocalQuorum) -> None:
    leader = leader_of(ring_quorum)
    with ring_quorum.producer() as producer:
        start = producer.append_wait(b"start")
        producers = ask(ring_quorum.directories[leader], {"kind": "status"})["producers"]
        arguments = [f"{id}={path}" for id, path in ring_quorum.directories.items()]
        child = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(CLAIMS), *arguments],
            capture_output=True,
            timeout=60,
            check=False,
        )
        assert (child.returncode, child.stdout) == (-signal.SIGKILL, b"claimed\n"), (
            child.stderr.decode()
        )
        wait_until(
            lambda: (
                ask(ring_quorum.directories[leader], {"kind": "status"})["producers"] == producers
            )
        )
        end = producer.append_wait(b"goes on")
        with ring_quorum.consumer(start + 1) as consumer:
            values = [record.value for record in consumer]
    assert values[0] == b"sent by the one that died" and values[-1] == b"goes on"
    assert set(values[1:-1]) <= {b"half a batch"} and len(values) == end - start
    assert ring_quorum.leader() == leader
