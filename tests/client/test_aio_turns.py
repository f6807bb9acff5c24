"""The asyncio producer where room is scarce: order of calls, and which descriptor is watched."""

from __future__ import annotations

import asyncio
import gc
import random
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.producer import Producer
from kraftfast.errors import Closed, NoQuorum, TimedOut, UnknownOutcome, WouldBlock
from tests.client.scripted_quorum import ScriptedQuorum


@pytest.fixture
def quorum() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum(batch_bytes=400, window=2)
    yield found
    found.stop()


def run(quorum: ScriptedQuorum, body: Callable[[AsyncProducer], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        async with AsyncProducer(Producer(quorum, 5.0)) as producer:
            await body(producer)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_records_are_in_the_log_in_the_order_of_the_calls(quorum: ScriptedQuorum) -> None:
    """One or many, with room or without, small or such that need a larger ring."""
    chance = random.Random(3)
    wanted: list[bytes] = []

    async def body(producer: AsyncProducer) -> None:
        tasks = []
        for number in range(150):
            quorum.mute = chance.random() < 0.3
            size = 50_000 if number % 40 == 20 else chance.choice((1, 100, 300))
            if chance.random() < 0.5:
                values = [b"%d:" % number + b"v" * size]
                tasks.append(asyncio.create_task(producer.append_wait(values[0])))
            else:
                count = chance.randint(1, 6)
                values = [b"%d.%d:" % (number, i) + b"v" * size for i in range(count)]
                tasks.append(asyncio.create_task(producer.append_many(values)))
            wanted.extend(values)
            if chance.random() < 0.3:
                await asyncio.sleep(0.001)
        quorum.mute = False
        await asyncio.gather(*tasks)

    run(quorum, body)
    assert quorum.values() == wanted


def test_an_append_that_cannot_wait_does_not_overtake_those_that_do(
    quorum: ScriptedQuorum,
) -> None:
    async def body(producer: AsyncProducer) -> None:
        quorum.mute = True
        waiting = asyncio.create_task(producer.append_many([b"%d" % i * 300 for i in range(9)]))
        await asyncio.sleep(0.01)
        with pytest.raises(WouldBlock):
            producer.append(b"overtakes")
        quorum.mute = False
        while not waiting.done():
            try:
                await producer.append(b"after")
            except WouldBlock:
                await asyncio.sleep(0)
        assert list(await waiting) == list(range(9))
        await producer.append_wait(b"after")

    run(quorum, body)
    assert set(quorum.values()[9:]) == {b"after"}


def test_waiting_for_a_turn_ends_in_time(quorum: ScriptedQuorum) -> None:
    async def body(producer: AsyncProducer) -> None:
        quorum.mute = True
        tasks = [
            asyncio.create_task(producer.append_wait(b"v" * 300, timeout=0.2)) for _ in range(9)
        ]
        tasks.append(asyncio.create_task(producer.append_many([b"v" * 300] * 9, timeout=0.2)))
        found = await asyncio.gather(*tasks, return_exceptions=True)
        assert {type(each) for each in found} == {TimedOut, UnknownOutcome}
        assert isinstance(found[-1], TimedOut), "nothing of it was handed over"
        quorum.mute = False
        await producer.append_wait(b"goes on", timeout=5)

    run(quorum, body)
    assert quorum.values()[-1] == b"goes on"


def test_no_descriptor_is_watched_that_a_thread_may_close(quorum: ScriptedQuorum) -> None:
    """Its number may be another connection's by the time that the loop looks."""

    async def body(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first")
        enlarge, reconnect = producer.producer.enlarge, producer.producer.reconnect
        seen: list[Any] = []

        def look(call: Any, *arguments: Any) -> Any:
            """In a thread of its own; the loop goes on meanwhile."""
            seen.append(producer._watched)
            time.sleep(0.02)
            seen.append(producer._watched)
            return call(*arguments)

        producer.producer.enlarge = lambda *each: look(enlarge, *each)
        large = asyncio.create_task(producer.append_wait(b"v" * 60_000))
        while not large.done():
            producer._end_turn()
            await asyncio.sleep(0.001)
        await large
        producer.producer.reconnect = lambda *each: look(reconnect, *each)
        quorum.lose()
        last = asyncio.create_task(producer.append_wait(b"last"))
        while not last.done():
            producer._end_turn()
            await asyncio.sleep(0.001)
        await last
        assert len(seen) >= 4 and set(seen) == {None}
        assert producer._watched is producer.producer.sender

    run(quorum, body)


def test_an_exchange_goes_on_though_its_append_is_cancelled(quorum: ScriptedQuorum) -> None:
    async def body(producer: AsyncProducer) -> None:
        quorum.mute = True
        small = asyncio.create_task(producer.append_wait(b"small"))
        await asyncio.sleep(0.01)
        large = asyncio.create_task(producer.append_wait(b"v" * 60_000))
        await asyncio.sleep(0.01)
        large.cancel()
        with pytest.raises(asyncio.CancelledError):
            await large
        quorum.mute = False
        await small
        assert await producer.append_wait(b"w" * 60_000, timeout=5) == 1
        assert await producer.append_wait(b"last", timeout=5) == 2

    run(quorum, body)


def test_an_append_waits_quietly_while_another_ring_is_made(
    quorum: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The append that the exchange is for was cancelled, and the next one has its turn: each of the
    two that wait for room woke the other, without a pause."""
    looks = 0

    async def body(producer: AsyncProducer) -> None:
        quorum.mute = True
        under_way = [asyncio.create_task(producer.append_wait(b"v" * 300)) for _ in range(2)]
        await asyncio.sleep(0.01)
        large = asyncio.create_task(producer.append_wait(b"v" * 50_000))
        await asyncio.sleep(0.01)
        large.cancel()
        following = asyncio.create_task(producer.append_wait(b"v" * 300))
        await asyncio.sleep(0.01)
        attend = producer._attend

        def counted() -> None:
            nonlocal looks
            looks += 1
            attend()

        monkeypatch.setattr(producer, "_attend", counted)
        await asyncio.sleep(0.3)
        assert not following.done()
        quorum.mute = False
        await asyncio.gather(*under_way, following)

    run(quorum, body)
    assert looks < 100


def test_a_leader_is_looked_for_after_an_exchange_that_found_none(quorum: ScriptedQuorum) -> None:
    """Otherwise nothing is appended any more, and no future of what was handed over is told."""

    async def body(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first")
        quorum.reachable, quorum.problem = False, NoQuorum("no replica runs")
        with pytest.raises(NoQuorum):
            await producer.append_wait(b"v" * 60_000, timeout=0.05)
        assert producer.producer.sender is None
        quorum.reachable = True
        assert await producer.append_wait(b"last", timeout=5) == 1

    run(quorum, body)


def test_another_search_begins_whatever_ended_the_last_one(
    quorum: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftfast.client.producer.aio.LEADER_SILENCE_S", 0.02)

    async def body(producer: AsyncProducer) -> None:
        producer._loop.set_exception_handler(lambda *_: None)
        await producer.append_wait(b"first")
        quorum.reachable, quorum.problem = False, MemoryError()  # type: ignore[assignment]
        quorum.lose()
        with pytest.raises(UnknownOutcome):
            await producer.append_wait(b"v", timeout=0.1)
        quorum.reachable = True
        await producer.append_wait(b"last", timeout=5)

    run(quorum, body)
    assert quorum.values()[-1] == b"last"


@pytest.mark.parametrize("turns", range(4))
def test_a_close_that_is_cancelled_lets_go_and_tells_every_future(
    quorum: ScriptedQuorum, turns: int
) -> None:
    async def body(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first")
        quorum.mute = True
        future = producer.append(b"under way")
        closing = asyncio.create_task(producer.close(timeout=0.01))
        await asyncio.sleep(0)  # it has begun
        for _ in range(turns):
            await asyncio.sleep(0.005)
        closing.cancel()
        with pytest.raises(UnknownOutcome):
            await asyncio.wait_for(future, 5)
        await producer.close()
        with pytest.raises(Closed):
            producer.append(b"more")

    run(quorum, body)


def test_many_that_are_not_acknowledged_in_time_are_named(quorum: ScriptedQuorum) -> None:
    """D24: all were handed over; a program that took none for it would append them twice."""

    async def body(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first")
        quorum.mute = True
        with pytest.raises(UnknownOutcome) as late:
            await producer.append_many([b"one", b"two"], timeout=0.05)
        assert late.value.handed_over == 2 and late.value.tickets == [range(1, 3)]
        quorum.mute = False

    run(quorum, body)


def test_a_wait_for_a_leader_that_is_abandoned_waits_for_nothing_more(
    quorum: ScriptedQuorum,
) -> None:
    """A loop that ends under it has its coroutine collected, which must not await then."""
    quorum.reachable, quorum.problem = False, NoQuorum("no replica runs")

    async def main() -> None:
        producer = AsyncProducer(Producer(quorum, 5.0, connect=False))
        waiting = producer.__await__()
        next(waiting)
        waiting.close()
        await producer.close(timeout=0.0)

    asyncio.run(asyncio.wait_for(main(), 30))


def test_a_blocking_call_names_many_too(quorum: ScriptedQuorum) -> None:
    """D24, as above: each ticket can be asked later."""
    with Producer(quorum, 5.0) as producer:
        quorum.mute = True
        with pytest.raises(UnknownOutcome) as late:
            producer.append_many([b"one", b"two"], timeout=0.05)
        assert late.value.handed_over == 2 and late.value.tickets == [range(2)]
        quorum.mute = False
        assert [producer.wait(ticket, timeout=5) for ticket in late.value.tickets[0]] == [0, 1]


def test_a_close_does_not_wait_for_a_larger_ring_that_nobody_gives(quorum: ScriptedQuorum) -> None:
    async def body(producer: AsyncProducer) -> None:
        await producer.append_wait(b"first")
        quorum.reachable, quorum.problem = False, NoQuorum("no replica runs")
        large = asyncio.create_task(producer.append_wait(b"v" * 60_000, timeout=25))
        await asyncio.sleep(0.1)
        began = time.monotonic()
        await producer.close(timeout=0.1)
        assert time.monotonic() - began < 10
        with pytest.raises(Closed):
            await large

    run(quorum, body)


def test_a_larger_ring_that_no_append_waits_for_fails_in_silence(quorum: ScriptedQuorum) -> None:
    """asyncio printed a traceback of a task that nothing awaits: that append was cancelled."""
    said: list[Any] = []

    async def body(producer: AsyncProducer) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _loop, context: said.append(context))
        await producer.append_wait(b"first")
        quorum.reachable, quorum.problem = False, NoQuorum("no replica runs")
        large = asyncio.create_task(producer.append_wait(b"v" * 60_000, timeout=25))
        await asyncio.sleep(0.1)
        large.cancel()
        await asyncio.wait((large,))
        await producer.close(timeout=0.1)
        gc.collect()  # a task says so at its end

    run(quorum, body)
    assert said == []


def test_an_append_waits_no_longer_for_a_larger_ring_than_it_may(quorum: ScriptedQuorum) -> None:
    """It is made for another one, which was cancelled and might have waited longer."""

    async def body(producer: AsyncProducer) -> None:
        quorum.mute = True
        small = asyncio.create_task(producer.append_wait(b"small"))
        await asyncio.sleep(0.01)
        patient = asyncio.create_task(producer.append_wait(b"v" * 60_000, timeout=25))
        await asyncio.sleep(0.01)
        patient.cancel()
        began = time.monotonic()
        with pytest.raises(TimedOut):
            await producer.append_wait(b"v" * 50_000, timeout=0.1)
        assert time.monotonic() - began < 10
        quorum.mute = False
        await small
        await producer.append_wait(b"v" * 50_000, timeout=10)

    run(quorum, body)


def test_what_was_given_no_time_says_what_it_lacked(quorum: ScriptedQuorum) -> None:
    """It said that the quorum does not keep up, or that no replica leads."""

    async def body(producer: AsyncProducer) -> None:
        with pytest.raises(TimedOut, match="no time is left to make room for a record of this"):
            await producer.append_wait(b"v" * 50_000, timeout=0)
        quorum.mute = True
        with pytest.raises(UnknownOutcome, match="what is under way is not acknowledged yet"):
            await producer.append_many([b"v" * 300] * 9, timeout=0)
        quorum.mute = False
        await producer.flush()

    async def without_a_leader() -> None:
        producer = AsyncProducer(Producer(quorum, connect=False))
        for call in (
            producer.append_wait(b"v", timeout=0),
            producer.append_many([b"v"], timeout=0),
        ):
            with pytest.raises(TimedOut, match="no leader was found in time"):
                await call
        await producer.append_wait(b"v")
        await producer.close()

    run(quorum, body)
    asyncio.run(without_a_leader())
