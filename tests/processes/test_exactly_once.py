"""kill -9 of leaders under load, with idempotent producers: every record once, in order."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast.errors import NoQuorum, ProducerFenced, UnknownOutcome
from kraftfast.quorum import LocalQuorum
from tests.histories import COMMITTED
from tests.processes.kit import (
    PATIENCE_S,
    Load,
    a_quorum,
    data_records,
    followers_of,
    go_on,
    leader_of,
    loads,
    log_path,
    pid_of,
    settled,
    verify,
    wait_back,
    wait_until,
)

pytestmark = pytest.mark.processes
TRANSPORTS = ("ring", "socket")


def exactly_once(log: list[tuple[int, bytes]], running: list[Load]) -> None:
    """What every producer handed over is in the log, once, in its order, and it knows where."""
    for load in running:
        assert load.refusals == []
        assert {append.outcome for append in load.appends} == {COMMITTED}
        begin = f"{load.name}-".encode()
        mine = [(offset, value) for offset, value in log if value.startswith(begin)]
        assert mine == [(append.offset, append.value) for append in load.appends]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_leader_is_killed_again_and_again(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum, pause=0.0) as running:
            for _ in range(4):
                leader = leader_of(quorum)
                pid = pid_of(quorum, leader)
                epoch = quorum.status(leader)["epoch"]
                quorum.kill(leader)
                go_on(running)
                wait_back(quorum, leader, pid)
                assert quorum.status(leader)["epoch"] > epoch
        log = verify(quorum, settled(quorum), running)
        assert len(log) > 4 * 2 * 20
        exactly_once(log, running)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_the_leader_is_stopped_and_comes_back(tmp_path: Path, transport: str) -> None:
    """What it had taken reaches the next leader by the producer, and nobody by the old one."""
    with a_quorum(tmp_path / "q", transport=transport, fetch_timeout_ms=1000) as quorum:
        with loads(quorum, pause=0.0) as running:
            for _ in range(2):
                leader = leader_of(quorum)
                quorum.kill(leader, signal.SIGSTOP)
                go_on(running)
                quorum.kill(leader, signal.SIGCONT)
                go_on(running)
        exactly_once(verify(quorum, settled(quorum), running), running)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_all_are_killed_at_once(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with loads(quorum, pause=0.0) as running:
            for _ in range(2):
                pids = {id: pid_of(quorum, id) for id in quorum.directories}
                for id in pids:
                    quorum.kill(id)
                for id, pid in pids.items():
                    wait_back(quorum, id, pid)
                go_on(running)
        exactly_once(verify(quorum, settled(quorum), running), running)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_bulk_appends_in_large_batches(tmp_path: Path, transport: str) -> None:
    """The whole window is under way when the leader goes: more than Kafka's five batches."""
    values = [b"%d" % i for i in range(60_000)]
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with quorum.producer(batch_bytes=2048) as producer:
            tickets = []
            for begin in range(0, len(values), 10_000):
                tickets += producer.append_many_nowait(values[begin : begin + 10_000], timeout=60)
                quorum.kill(leader_of(quorum))
            producer.flush(timeout=PATIENCE_S)
            offsets = [producer.wait(each) for run in tickets for each in run]
        log = data_records(log_path(quorum, 1), settled(quorum))
        assert log == list(zip(offsets, values, strict=True))


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_with_asyncio(tmp_path: Path, transport: str) -> None:
    values = [b"%d" % i for i in range(3000)]

    async def append_all(quorum: LocalQuorum) -> list[int]:
        async with quorum.async_producer(batch_bytes=512) as producer:
            done: list[int] = []
            for begin in range(0, len(values), 500):
                some = values[begin : begin + 500]
                waiting = asyncio.gather(*(producer.append_wait(each, timeout=60) for each in some))
                await asyncio.sleep(0.01)
                await asyncio.to_thread(quorum.kill, await asyncio.to_thread(leader_of, quorum))
                done += await waiting
            return done

    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        offsets = asyncio.run(append_all(quorum))
        log = data_records(log_path(quorum, 1), settled(quorum))
        assert log == list(zip(offsets, values, strict=True))


# --- names ------------------------------------------------------------------------------------

LOADER = """
import sys, kraftfast
addresses, count = sys.argv[1], int(sys.argv[2])
settings = {"name": "loader", "batch_bytes": 512}
with kraftfast.connect(addresses) as quorum, quorum.producer(**settings) as producer:
    begin = producer.last_sequence() + 1
    print(begin, flush=True)
    for number in range(begin, count):
        producer.append(b"%d" % number)
        if number % 50 == 0:
            producer.flush()
    producer.flush()
print("done", flush=True)
"""


def test_a_client_is_killed_and_begins_again(tmp_path: Path) -> None:
    """Its source is numbered; it skips what the log has under its name, and nothing comes twice."""
    count = 100_000  # several kills on a quick machine, too
    with a_quorum(tmp_path / "q", transport="socket") as quorum:
        addresses = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
        begins, done = [], False
        while not done:
            command = [sys.executable, "-c", LOADER, addresses, str(count)]
            loader = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
            assert loader.stdout is not None
            begins.append(int(loader.stdout.readline()))
            try:
                loader.wait(0.4)
            except subprocess.TimeoutExpired:
                loader.kill()
            done = "done" in loader.stdout.read()
            assert len(begins) < 60
        assert len(begins) > 1 and begins[0] == 0 and begins == sorted(begins)
        log = data_records(log_path(quorum, 1), settled(quorum))
    assert [value for _, value in log] == [b"%d" % number for number in range(count)]


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_name_goes_to_the_next_producer(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        with quorum.producer(name="n") as old:
            assert old.last_sequence() == -1
            old.append_many([b"0", b"1", b"2"])
            assert old.last_sequence() == 2
            with quorum.producer(name="n") as new:
                assert new.last_sequence() == 2
                with pytest.raises(ProducerFenced):
                    old.append_wait(b"too late")
                with pytest.raises(ProducerFenced):
                    old.append(b"too late")
                quorum.kill(leader_of(quorum))
                new.append_wait(b"3", timeout=PATIENCE_S)
                assert new.last_sequence() == 3
            assert isinstance(old.outcomes.runs(3, 4)[0][3], ProducerFenced)
        log = data_records(log_path(quorum, 1), settled(quorum))
    assert [value for _, value in log] == [b"0", b"1", b"2", b"3"]


def test_a_name_is_told_of_what_is_acknowledged_alone(tmp_path: Path) -> None:
    """durability=all: who takes a name passes over what it is told of, as over what was answered.
    So it is told once all voters have that."""
    with a_quorum(tmp_path / "q", durability="all") as quorum:
        with quorum.producer(name="n") as old:
            old.append_wait(b"0", timeout=PATIENCE_S)
            silent = max(followers_of(quorum))  # asked last by whoever looks for the leader
            quorum.kill(silent, signal.SIGSTOP)
            ticket = old.append(b"1")
            with pytest.raises(UnknownOutcome):
                old.wait(ticket, timeout=0.3)
            with pytest.raises(NoQuorum):
                quorum.producer(name="n", timeout=1)
            quorum.kill(silent, signal.SIGCONT)
            with quorum.producer(name="n", timeout=PATIENCE_S) as new:
                assert new.last_sequence() == 1
        log = data_records(log_path(quorum, silent), settled(quorum))
    assert [value for _, value in log] == [b"0", b"1"]


# --- what cannot be known, and what was refused ---------------------------------------------------


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_without_a_majority_the_outcome_is_open_until_it_is_known(
    tmp_path: Path, transport: str
) -> None:
    """A wait ends in time; the record is committed later all the same, once."""
    with a_quorum(tmp_path / "q", transport=transport, fetch_timeout_ms=1000) as quorum:
        with quorum.producer() as producer:
            producer.append_wait(b"before")
            followers = followers_of(quorum)
            for follower in followers:
                quorum.kill(follower, signal.SIGSTOP)
            ticket = producer.append(b"meanwhile")
            with pytest.raises(UnknownOutcome):
                producer.wait(ticket, timeout=0.3)
            time.sleep(2.5)  # the leader resigns
            for follower in followers:
                quorum.kill(follower, signal.SIGCONT)
            offset = producer.wait(ticket, timeout=PATIENCE_S)
            assert producer.append_wait(b"after", timeout=PATIENCE_S) > offset
        log = data_records(log_path(quorum, 1), settled(quorum))
    assert [value for _, value in log] == [b"before", b"meanwhile", b"after"]


def test_a_disk_that_is_full_leaves_no_gap(small_disk: Path) -> None:
    """What is refused has failed, what comes after space is there has not, and nothing is twice."""
    filler = small_disk / "filler"
    with a_quorum(small_disk / "q", voters=1, segment_bytes=8 << 20) as quorum:
        with quorum.producer(batch_bytes=32 * 1024) as producer:
            producer.append_wait(b"begin")
            with open(filler, "wb") as file:
                try:
                    while file.write(bytes(1 << 20)):
                        file.flush()
                except OSError:
                    pass
            refused, tickets = 0, []
            deadline = time.monotonic() + PATIENCE_S
            while not refused and time.monotonic() < deadline:
                tickets.append(producer.append(b"%d" % len(tickets) + bytes(20_000), timeout=60))
                runs = producer.outcomes.runs(tickets[0], producer.resolved)
                refused = sum(failure is not None for *_, failure in runs)
            assert refused
            filler.unlink()
            wait_until(lambda: can_append(producer))
            runs = producer.outcomes.runs(0, producer.resolved)
        kept = [
            first + i
            for first, end, base, failure in runs
            if failure is None
            for i in range(end - first)
        ]
        assert not any(isinstance(failure, UnknownOutcome) for *_, failure in runs)
        log = data_records(log_path(quorum, 1), settled(quorum))
    assert len(log) == len(kept) == len({value for _, value in log})


def can_append(producer: Any) -> bool:
    try:
        producer.append_wait(b"end %d" % producer.outcomes.next_ticket, timeout=5)
    except kraftfast.errors.KraftfastError:
        return False
    return True


def test_a_name_that_may_have_been_forgotten_is_not_begun_again(tmp_path: Path) -> None:
    """It would be told that nothing is committed under it, and append all of its source again."""
    lines = [b"line %d" % number for number in range(20)]
    with LocalQuorum(tmp_path, 1, producers_max=2) as quorum:
        for name in ("loader", "one", "two", "three"):
            with quorum.producer(name=name) as producer:
                assert producer.last_sequence(never_used=True) == -1
                producer.append_many(lines)
                assert producer.last_sequence() == len(lines) - 1
        with quorum.producer(name="loader") as producer:
            with pytest.raises(UnknownOutcome, match="may have forgotten it"):
                producer.last_sequence()
        with quorum.producer(name="three") as producer:
            assert producer.last_sequence() == len(lines) - 1
        with quorum.producer(name="new") as producer:
            assert producer.last_sequence(never_used=True) == -1
