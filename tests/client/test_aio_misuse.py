"""The asyncio clients where a program does what it should not, or leaves them little."""

from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from kraftfast.client.client_host import HOST
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.loop_threads import in_thread
from kraftfast.client.producer.producer import Producer
from kraftfast.errors import LocalError
from kraftfast.quorum import LocalQuorum
from tests.client.scripted_quorum import ScriptedQuorum

PATIENCE_S, BUSY_S = 10, 20


@pytest.fixture
def scripted() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum()
    yield found
    found.stop()


# --- the loop's own threads are all busy ------------------------------------------------------


@asynccontextmanager
async def busy_threads() -> AsyncIterator[None]:
    """Every thread of the loop's executor waits for something, and more calls wait for one."""
    loop, end = asyncio.get_running_loop(), threading.Event()
    waiting = [loop.run_in_executor(None, end.wait) for _ in range(100)]
    loop.call_later(BUSY_S, end.set)  # else a producer that needs one would never end
    try:
        yield
    finally:
        end.set()
        await asyncio.gather(*waiting)


def test_a_producer_needs_no_thread_of_the_loops_executor(scripted: ScriptedQuorum) -> None:
    """Those may wait for its records: the search for a leader and the close waited for them."""

    async def work() -> None:
        async with AsyncProducer(Producer(scripted, connect=False), 5.0) as producer:
            assert await producer.append_wait(b"first") >= 0
            scripted.lose()
            await producer.append_wait(b"of the next leader")
            await producer.append_wait(bytes(100_000))  # which needs a larger ring
            await producer.close(timeout=0.0)

    async def main() -> None:
        async with busy_threads():
            await asyncio.wait_for(work(), PATIENCE_S)

    asyncio.run(main())


def test_after_the_end_of_its_loop_too(scripted: ScriptedQuorum) -> None:
    async def make() -> AsyncProducer:
        return await AsyncProducer(Producer(scripted, 5.0))

    producer = asyncio.run(make())

    async def main() -> None:
        async with busy_threads():
            await asyncio.wait_for(producer.close(), PATIENCE_S)

    asyncio.run(main())


@pytest.mark.processes
def test_an_admin_needs_no_thread_of_the_loops_executor(ring_quorum: LocalQuorum) -> None:
    async def main() -> None:
        async with busy_threads():
            admin = ring_quorum.async_admin()
            assert (await asyncio.wait_for(admin.describe(), PATIENCE_S)).leader_id in (1, 2, 3)

    asyncio.run(main())


# --- another loop -----------------------------------------------------------------------------


async def enter(producer: AsyncProducer) -> None:
    async with producer:
        raise AssertionError("it is of another loop")


CALLS: dict[str, Callable[[AsyncProducer], Any]] = {
    "close": lambda producer: producer.close(),
    "async with": enter,
    "await": lambda producer: producer._connected(),
}


@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("under_way", [False, True], ids=["idle", "records under way"])
def test_another_loop_is_refused_and_leaves_a_producer_open(
    scripted: ScriptedQuorum, name: str, under_way: bool
) -> None:
    """A task was made in the first loop from another thread, which closed the producer."""
    problems: list[str] = []

    async def use(producer: AsyncProducer) -> None:
        asyncio.get_running_loop().set_exception_handler(
            lambda _loop, context: problems.append(str(context))
        )
        with pytest.raises(LocalError, match="another event loop"):
            await asyncio.wait_for(CALLS[name](producer), PATIENCE_S)

    async def main() -> None:
        producer = await AsyncProducer(Producer(scripted, 5.0))
        scripted.mute = under_way
        before = producer.append(b"before")
        if not under_way:
            await before
        await asyncio.to_thread(lambda: asyncio.run(use(producer)))
        scripted.mute = False
        assert await asyncio.wait_for(before, PATIENCE_S) == 0
        assert await producer.append_wait(b"after") == 1
        await producer.close()

    asyncio.run(main())
    assert not problems


def test_a_second_close_may_come_from_another_loop(scripted: ScriptedQuorum) -> None:
    first = asyncio.new_event_loop()

    async def make() -> AsyncProducer:
        async with AsyncProducer(Producer(scripted, 5.0)) as producer:
            return producer

    producer = first.run_until_complete(make())
    asyncio.run(producer.close())
    first.close()


def test_whatever_ends_a_thread_is_told_to_what_awaits_it() -> None:
    """Else it would wait for ever."""

    async def body() -> None:
        with pytest.raises(SystemExit):
            async with asyncio.timeout(5):
                await in_thread(HOST, sys.exit, 3)

    asyncio.run(body())
