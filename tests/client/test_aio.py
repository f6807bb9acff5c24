"""The asyncio producer, over rings and over sockets, against real workers."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
import pytest

from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.sender import RECORD_BYTES_MAX
from kraftfast.errors import (
    Closed,
    InvalidOption,
    RecordTooLarge,
    TimedOut,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.quorum import LocalQuorum
from tests.client.test_producer import read_from

pytestmark = pytest.mark.processes


def run(
    quorum: LocalQuorum, work: Callable[[AsyncProducer], Awaitable[Any]], **settings: Any
) -> Any:
    """``work`` with a producer in a fresh event loop."""

    async def main() -> Any:
        async with quorum.async_producer(**settings) as producer:
            return await asyncio.wait_for(work(producer), 60)

    return asyncio.run(main())


def test_one_record_and_its_offset(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> int:
        first = await producer.append_wait(b"hello", timeout=30)
        future = producer.append(b"future", key=b"k")
        assert await future == first + 1
        assert await producer.append_wait(memoryview(b"view"), headers=[("h", b"")]) == first + 2
        return first

    first = run(quorum, work)
    assert [value for _, value in read_from(quorum, first)] == [b"hello", b"future", b"view"]


def test_a_future_each(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> list[int]:
        futures = []
        while len(futures) < 5000:
            try:
                futures.append(producer.append(b"%d" % len(futures)))
            except WouldBlock:
                await asyncio.sleep(0.001)
        return await asyncio.gather(*futures)

    offsets = run(quorum, work)
    assert read_from(quorum, offsets[0]) == [
        (offset, b"%d" % i) for i, offset in enumerate(offsets)
    ]


def test_many_tasks_wait_for_room_and_for_their_record(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> list[int]:
        return await asyncio.gather(
            *(producer.append_wait(b"%d" % i + b"v" * 20_000) for i in range(500))
        )

    offsets = run(quorum, work, window=4)
    found = dict(read_from(quorum, min(offsets)))
    assert len(set(offsets)) == 500
    assert all((found[offset] or b"").startswith(b"%dv" % i) for i, offset in enumerate(offsets))


def test_many_records_at_once_beside_single_ones(quorum: LocalQuorum) -> None:
    values = [b"%d" % i for i in range(20_000)]

    async def work(producer: AsyncProducer) -> tuple[Any, ...]:
        rows = np.arange(60, dtype=np.uint8).reshape(10, 6)
        return await asyncio.gather(
            producer.append_many(values),
            producer.append_wait(b"one"),
            producer.append_many(rows),
            producer.append_many([]),
        )

    many, one, rows, none = run(quorum, work)
    found = dict(read_from(quorum, min(many[0], one, rows[0])))
    assert [found[offset] for offset in many] == values and found[one] == b"one"
    assert len(rows) == 10 and list(none) == []


def test_large_records_get_the_room_they_need(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> None:
        before = producer.append(b"before")
        offset = await producer.append_wait(b"v" * (5 << 20))
        assert await before == offset - 1
        assert list(await producer.append_many([b"w" * (7 << 20), b"x"])) == [
            offset + 1,
            offset + 2,
        ]
        with pytest.raises(RecordTooLarge):
            await producer.append_wait(b"v" * (RECORD_BYTES_MAX + 1))

    run(quorum, work)


def test_bad_input_costs_nothing(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> None:
        with pytest.raises(InvalidOption):
            producer.append("text")
        with pytest.raises(InvalidOption):
            await producer.append_wait(b"v", timestamp=-1)
        with pytest.raises(InvalidOption):
            await producer.append_many(b"abc", size=2)
        with pytest.raises(RecordTooLarge):
            await producer.append_many([b"v", b"v" * (RECORD_BYTES_MAX + 1)])
        assert producer.producer.outcomes.next_ticket == 0

    run(quorum, work)


def test_a_cancelled_waiter_leaves_the_others_in_order(quorum: LocalQuorum) -> None:
    async def work(producer: AsyncProducer) -> None:
        tasks = [asyncio.ensure_future(producer.append_wait(b"%d" % i)) for i in range(10)]
        await asyncio.sleep(0)
        tasks[3].cancel()
        future = producer.append(b"cancelled future")
        future.cancel()
        last = await producer.append_wait(b"last")
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(done[3], asyncio.CancelledError)
        others = [offset for i, offset in enumerate(done) if i != 3]
        assert others == [last - 11 + i for i in range(10) if i != 3], (
            "it was handed over before it was cancelled"
        )

    run(quorum, work)


def test_nothing_is_said_of_futures_that_nobody_looks_at(
    mortal_quorum: LocalQuorum, capfd: pytest.CaptureFixture[str]
) -> None:
    async def work(producer: AsyncProducer) -> None:
        leader = mortal_quorum.leader()
        assert leader is not None
        for _ in range(20):
            producer.append(b"v")
        mortal_quorum.kill(leader)
        with contextlib.suppress(UnknownOutcome):  # a socket took it, perhaps
            await producer.append_wait(b"lost", timeout=20)
        await producer.append_wait(b"goes on", timeout=20)

    run(mortal_quorum, work)
    assert "never retrieved" not in capfd.readouterr().err


def test_a_full_window_is_said_and_time_limits_hold(quorum: LocalQuorum) -> None:
    leader = quorum.leader()
    assert leader is not None
    followers = [id for id in quorum.directories if id != leader]

    async def work(producer: AsyncProducer) -> None:
        await producer.append_wait(b"v")
        for id in followers:
            quorum.kill(id, signal.SIGSTOP)
        try:
            handed_over = 0
            with pytest.raises(WouldBlock):
                for handed_over in range(1000):
                    producer.append(b"v" * 40_000)
            began = time.monotonic()
            with pytest.raises(TimedOut):
                await producer.append_wait(b"v" * 40_000, timeout=0.2)
            with pytest.raises(TimedOut):
                await producer.append_many([b"v" * 40_000], timeout=0.2)
            with pytest.raises(UnknownOutcome):
                await producer.flush(timeout=0.1)
            assert time.monotonic() - began < 3.0
            assert producer.producer.outcomes.next_ticket == handed_over + 1
        finally:
            for id in followers:
                quorum.kill(id, signal.SIGCONT)
        await producer.flush(timeout=30)

    run(quorum, work, window=4)


def test_every_deadline_is_kept_whatever_their_order(quorum: LocalQuorum) -> None:
    leader = quorum.leader()
    followers = [id for id in quorum.directories if id != leader]

    async def late(producer: AsyncProducer, timeout: float) -> float:
        began = time.monotonic()
        with pytest.raises(UnknownOutcome):
            await producer.append_wait(b"late", timeout=timeout)
        return time.monotonic() - began

    async def work(producer: AsyncProducer) -> int:
        await producer.append_wait(b"v", timeout=20)
        for id in followers:
            quorum.kill(id, signal.SIGSTOP)
        try:
            patient = asyncio.ensure_future(producer.append_wait(b"patient", timeout=20))
            timeouts = (0.3, 0.1, 0.2, 0.0)
            took = await asyncio.gather(*(late(producer, timeout) for timeout in timeouts))
        finally:
            for id in followers:
                quorum.kill(id, signal.SIGCONT)
        for timeout, seconds in zip(timeouts, took):
            assert timeout - 0.01 <= seconds < timeout + 1.0
        return await patient

    offset = run(quorum, work)
    values = [value for _, value in read_from(quorum, offset)]
    assert values == [b"patient"] + [b"late"] * 4, "they were under way all the same"


def test_closing_tells_every_future(quorum: LocalQuorum) -> None:
    async def main() -> None:
        producer = await quorum.async_producer()
        futures = [producer.append(b"%d" % i) for i in range(100)]
        await producer.close()
        assert [type(future.result()) for future in futures] == [int] * 100
        for call in (
            lambda: producer.append(b"v"),
            lambda: producer.append_wait(b"v"),
            lambda: producer.append_many([b"v"]),
        ):
            with pytest.raises(Closed):
                result: Any = call()
                await result
        await producer.close()

    asyncio.run(main())


def test_an_append_that_waits_for_room_leaves_the_loop_asleep(
    quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It found no room, was told by itself that there may be some, and asked again at once."""
    waits = 0
    wait_room = AsyncProducer._wait_room

    async def counted(self: AsyncProducer, *words: Any) -> Any:
        nonlocal waits
        waits += 1
        return await wait_room(self, *words)

    async def work(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first", timeout=30)
        leader = quorum.wait_leader()
        quorum.kill(leader, signal.SIGSTOP)
        try:
            with contextlib.suppress(WouldBlock):
                while True:
                    producer.append(b"x" * 300)
            with pytest.raises(TimedOut):
                await producer.append_wait(b"y" * 300, timeout=0.5)
        finally:
            quorum.kill(leader, signal.SIGCONT)

    monkeypatch.setattr(AsyncProducer, "_wait_room", counted)
    run(quorum, work, window=2, batch_bytes=400)
    assert waits < 200, "thousands, before: it kept a processor busy"
