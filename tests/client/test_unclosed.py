"""What is forgotten without a close: it warns, is collected, and leaves nothing behind."""

from __future__ import annotations

import asyncio
import copy
import gc
import os
import pickle
import socket
import subprocess
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.cluster import Cluster
from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.producer import Producer
from kraftfast.errors import Closed, LocalError, NoQuorum
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC
from tests.client.conftest import SMALL
from tests.client.kit import wait_until
from tests.client.scripted_quorum import ScriptedQuorum
from tests.client.test_producer import read_from


@pytest.fixture
def scripted() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum()
    yield found
    found.stop()


@contextmanager
def told() -> Iterator[list[str]]:
    """The texts of ResourceWarnings. A recorded warning would keep its source alive."""
    found: list[str] = []

    def show(message: Warning | str, kind: type[Warning], *_place: Any) -> None:
        if kind is ResourceWarning:
            found.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield found


def forgotten(make: Callable[[], Any], warning: str) -> None:
    """What ``make`` returns warns and is collected as soon as nobody has it."""
    with told() as warnings_told:
        known = weakref.ref(make())
        wait_until(lambda: gc.collect() >= 0 and known() is None)
    assert [text for text in warnings_told if warning in text]


def threads() -> list[str]:
    return sorted(each.name for each in threading.enumerate() if "kraftfast-" in each.name)


def fds() -> int:
    return len(os.listdir("/proc/self/fd"))


@pytest.mark.processes
def test_a_producer(quorum: LocalQuorum) -> None:
    quorum.producer().close()  # whatever is kept for all of them
    gc.collect()
    before, running = fds(), threads()

    def make() -> Producer:
        producer = quorum.producer()
        producer.on_commit(lambda batch: None)
        producer.append_wait(b"before")
        return producer

    forgotten(make, "a producer was not closed")
    wait_until(lambda: (fds(), threads()) == (before, running))


@pytest.mark.processes
def test_what_a_producer_still_holds_is_sent(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        offset = producer.append_wait(b"begin")
    with told() as warnings_told:
        quorum.producer().append(b"forgotten")
        gc.collect()
        wait_until(lambda: read_from(quorum, offset)[-1][1] == b"forgotten")
    assert "a producer was not closed" in warnings_told


def test_a_producer_that_nobody_got_does_not_warn(scripted: ScriptedQuorum) -> None:
    scripted.reachable, scripted.problem = False, NoQuorum("none")
    with told() as warnings_told:
        with pytest.raises(NoQuorum):
            Producer(scripted, 0.01)
        gc.collect()
    assert not warnings_told


@pytest.mark.parametrize("over_tcp", [False, True], ids=["of this host", "over TCP"])
def test_a_consumer_that_nobody_got_does_not_warn(tmp_path: Path, over_tcp: bool) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with told() as warnings_told:
        with pytest.raises(NoQuorum):
            if over_tcp:
                RemoteConsumer(Cluster([address], METADATA_TOPIC), timeout=0.01)
            else:
                Consumer({1: str(tmp_path / "1")}, timeout=0.01)
        gc.collect()
    assert not warnings_told


@pytest.mark.processes
def test_a_consumer(quorum: LocalQuorum) -> None:
    gc.collect()
    before = fds()
    forgotten(quorum.consumer, "a consumer was not closed")
    wait_until(lambda: fds() == before)


@pytest.mark.processes
def test_an_async_producer(quorum: LocalQuorum) -> None:
    """The loop goes on, and watches nothing of it."""

    async def main() -> None:
        async with quorum.async_producer() as producer:
            await producer.append_wait(b"before")
        del producer
        gc.collect()
        before = fds()
        made: list[Any] = [await quorum.async_producer()]
        await made[0].append_wait(b"x")
        known = weakref.ref(made[0])
        with told() as warnings_told:
            made.clear()
            gc.collect()
        assert known() is None
        assert warnings_told == ["an async producer was not closed"]
        async with asyncio.timeout(10):
            while fds() != before:
                await asyncio.sleep(0.01)

    asyncio.run(main())


def test_futures_of_a_forgotten_producer_are_resolved(scripted: ScriptedQuorum) -> None:
    async def main() -> None:
        scripted.mute = True
        producer = [await AsyncProducer(Producer(scripted, 5.0))]
        future = producer[0].append(b"x")
        producer.clear()
        gc.collect()
        await asyncio.sleep(0)
        scripted.mute = False
        assert await asyncio.wait_for(future, 10) >= 0

    with told() as warnings_told:
        asyncio.run(main())
    assert warnings_told == ["an async producer was not closed"]


FORGOTTEN = """
import asyncio, gc, sys
import kraftfast
async def main():
    producer = await kraftfast.connect(sys.argv[1]).async_producer()
    producer.append(b"forgotten")
asyncio.run(main())
gc.collect()
"""


def test_an_async_producer_that_is_forgotten_at_the_end_of_its_loop(quorum: LocalQuorum) -> None:
    """The loop ended before the producer was closed: asyncio warned of a task and a coroutine."""
    command = [sys.executable, "-W", "default", "-c", FORGOTTEN, str(quorum.path)]
    for _ in range(3):
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        told = [line for line in done.stderr.splitlines() if "Warning:" in line or "rror" in line]
        told = [line for line in told if "tracemalloc" not in line]
        assert done.returncode == 0 and len(told) == 1, done.stderr
        assert "ResourceWarning: an async producer was not closed" in told[0]


def test_a_producer_outlives_its_loop_and_says_so(scripted: ScriptedQuorum) -> None:
    """Not asyncio's RuntimeError."""

    async def main() -> AsyncProducer:
        producer = await AsyncProducer(Producer(scripted, 5.0))
        await producer.append_wait(b"in time")
        return producer

    producer = asyncio.run(main())
    taken = len(scripted.values())
    calls = (
        lambda: producer.append(b"late"),
        lambda: producer.append_wait(b"late"),
        lambda: producer.append_many([b"late"]),
    )

    async def again() -> None:
        for call in calls:
            with pytest.raises(Closed, match="the event loop .* has ended"):
                await call()  # type: ignore[misc]
        await producer.flush()
        await producer.close()
        with pytest.raises(Closed, match="the producer is closed"):
            producer.append(b"late")

    with pytest.raises(Closed, match="the event loop .* has ended"):
        producer.append(b"late")
    asyncio.run(again())
    assert len(scripted.values()) == taken


def test_a_producer_of_another_loop(scripted: ScriptedQuorum) -> None:
    other = asyncio.new_event_loop()

    async def make() -> AsyncProducer:
        return await AsyncProducer(Producer(scripted, 5.0))

    producer = other.run_until_complete(make())

    async def use() -> None:
        with pytest.raises(LocalError, match="another event loop"):
            await producer.append_wait(b"x")

    asyncio.run(use())
    other.run_until_complete(producer.close())
    other.close()


def test_nothing_of_an_async_producer_blocks_its_loop(scripted: ScriptedQuorum) -> None:
    """The first search for a leader neither."""
    scripted.reachable, scripted.problem = False, NoQuorum("none")

    async def main() -> None:
        turns = 0

        async def count() -> None:
            nonlocal turns
            while True:
                await asyncio.sleep(0.001)
                turns += 1

        counting = asyncio.create_task(count())
        with pytest.raises(NoQuorum):
            async with AsyncProducer(Producer(scripted, connect=False), 0.2):
                raise AssertionError("there is no leader")
        assert turns > 3
        scripted.reachable = True
        async with AsyncProducer(Producer(scripted, connect=False), 5.0) as producer:
            assert await producer.append_wait(b"x") >= 0
        counting.cancel()

    asyncio.run(main())


@pytest.mark.processes
def test_a_quorum(tmp_path: Path) -> None:
    path = tmp_path / "quorum"
    forgotten(lambda: LocalQuorum(path, **{**SMALL, "voters": 1}), f"{path} was not closed")
    wait_until(lambda: "kraftfast-close" not in threads())
    LocalQuorum(path).close()  # nobody holds it


ENDS = """
import kraftfast

settings = dict(segment_bytes=32 << 20, stride_bytes=8 << 20, prepare_bytes=1 << 20)
if __name__ == "__main__":
    quorum = kraftfast.LocalQuorum({path!r}, voters=1, **settings)
    producer = kraftfast.connect({path!r}).producer()
    producer.append_wait(b"committed")
    if {closed}:
        quorum.close()
        producer.append(b"under way")
"""


@pytest.mark.parametrize("closed", [False, True], ids=["a quorum", "a record under way"])
def test_a_program_ends_with_what_it_forgot(tmp_path: Path, closed: bool) -> None:
    """A thread that was begun while the interpreter ended was waited for, for ever."""
    script = tmp_path / "ends.py"
    script.write_text(ENDS.format(path=str(tmp_path / "quorum"), closed=closed))
    done = subprocess.run(
        [sys.executable, "-W", "ignore", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.processes
def test_a_copy_is_refused_and_so_ends_nothing(tmp_path: Path) -> None:
    """One that was collected closed what it shared: the replicas, or a consumer's watches."""

    async def of_async(quorum: LocalQuorum) -> None:
        async with quorum.async_producer() as producer:
            refused(producer)
            await producer.append_wait(b"1", timeout=30)

    def refused(thing: object) -> None:
        for way in (copy.copy, copy.deepcopy, pickle.dumps):
            with pytest.raises(TypeError, match="^a .* cannot be copied or pickled|^cannot pickle"):
                way(thing)
        gc.collect()

    with LocalQuorum(tmp_path / "q", **SMALL) as quorum, quorum.producer() as producer:
        refused(quorum)
        refused(producer)
        offset = producer.append_wait(b"0", timeout=30)
        with quorum.consumer(offset) as consumer:
            refused(consumer)
            assert [record.value for record in consumer] == [b"0"]
        asyncio.run(of_async(quorum))
