"""What is used after its close raises Closed, and meets nobody else's files."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.client.admin.admin import AsyncAdmin
from kraftfast.client.consumer.consumer import Consumer
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.producer import Producer
from kraftfast.client.watch import Watch
from kraftfast.errors import Closed, NoQuorum, UnauthenticatedListener, UnknownOutcome
from kraftfast.quorum import LocalQuorum
from tests.client.conftest import SMALL
from tests.client.kit import wait_until
from tests.client.scripted_quorum import ScriptedQuorum
from tests.client.test_forks import calls_of, calls_of_consumer, calls_of_quorum


def not_closed(calls: dict[str, Callable[[], Any]]) -> list[str]:
    """Those that did anything but raise Closed."""
    wrong = []
    for name, call in calls.items():
        try:
            wrong.append(f"{name}: {call()!r}")
        except Closed:
            pass
        except BaseException as error:
            wrong.append(f"{name}: {error!r}")
    return wrong


def strangers(path: Path, count: int = 64) -> list[int]:
    """Descriptors of empty files, which take the numbers that were given back."""
    return [os.open(path / f"stranger-{n}", os.O_RDWR | os.O_CREAT) for n in range(count)]


def untouched(fds: list[int]) -> bool:
    sizes = [os.fstat(fd).st_size for fd in fds]  # raises where somebody closed one
    for fd in fds:
        os.close(fd)
    return not any(sizes)


def test_a_producer(quorum: LocalQuorum, tmp_path: Path) -> None:
    producer = quorum.producer()
    ticket = producer.append(b"x")
    producer.close()
    fds = strangers(tmp_path)
    calls = calls_of(producer)
    answered = ("wait for the last", "wait for the first", "flush", "last_sequence")
    known = [calls.pop(name) for name in answered]
    assert not_closed(calls) == []
    assert producer.wait(ticket) > 0, "what became of a ticket can be asked for ever"
    for call in known:
        call()
    producer.close()
    assert untouched(fds)


def test_a_producer_that_another_thread_closes(quorum: LocalQuorum) -> None:
    """It waits for the record under way, and takes no more: no outcome is unknown."""
    for n in range(20):
        producer, acknowledged = quorum.producer(), 0
        closing = threading.Timer(0.002 + n * 0.0005, producer.close)
        closing.start()
        with pytest.raises(Closed):
            while True:
                producer.append_wait(b"y", timeout=5)
                acknowledged += 1
        closing.join()
        assert producer.resolved == acknowledged


def test_an_async_producer(quorum: LocalQuorum, tmp_path: Path) -> None:
    async def main() -> None:
        producer = await quorum.async_producer()
        future = producer.append(b"x")
        await producer.close()
        fds = strangers(tmp_path)
        assert await future > 0
        for call in (
            lambda: producer.append_wait(b"x"),
            lambda: producer.append_many([b"x"]),
        ):
            try:
                raise AssertionError(f"after close: {await call()!r}")
            except Closed:
                pass
        assert not_closed({"append": lambda: producer.append(b"x")}) == []
        await producer.flush()
        await producer.close()
        assert untouched(fds)

    asyncio.run(main())


@pytest.fixture
def mute(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedQuorum]:
    """A leader that answers nothing; the end of a block waits shortly for it."""
    for kind in (Producer, AsyncProducer):
        monkeypatch.setitem(kind.close.__kwdefaults__, "timeout", 0.05)
    found = ScriptedQuorum()
    found.mute = True
    yield found
    found.stop()


@pytest.mark.parametrize("taken", [True, False])
@pytest.mark.parametrize("idempotent", [True, False])
def test_records_that_a_close_leaves_are_told(
    mute: ScriptedQuorum, idempotent: bool, taken: bool
) -> None:
    """A flush under way and the end of a block returned as if they were committed."""
    raised: list[type[BaseException]] = []

    def flush(producer: Producer) -> None:
        with pytest.raises((UnknownOutcome, Closed)) as caught:
            producer.flush(timeout=10)
        raised.append(caught.type)

    with pytest.raises((UnknownOutcome, Closed)) as left:
        with Producer(mute, idempotent=idempotent) as producer:
            ticket = producer.append(b"lost?")
            flushing = threading.Thread(target=flush, args=(producer,))
            flushing.start()
            if taken:
                wait_until(mute.take)
    flushing.join()
    flush(producer)
    with pytest.raises((UnknownOutcome, Closed)) as waited:
        producer.wait(ticket)
    assert {*raised[1:], left.type} == {waited.type}
    assert raised[0] in (UnknownOutcome, waited.type)
    assert waited.type is UnknownOutcome or not taken


def test_records_that_a_close_leaves_are_told_to_asyncio(mute: ScriptedQuorum) -> None:
    async def main() -> None:
        with pytest.raises(UnknownOutcome):
            async with AsyncProducer(Producer(mute)) as producer:
                future = producer.append(b"lost?")
                flushing = asyncio.create_task(producer.flush(timeout=10))
                while not mute.take():
                    await asyncio.sleep(0.001)
        for told in (flushing, future, producer.flush()):
            with pytest.raises(UnknownOutcome):
                await told

    asyncio.run(main())


def test_the_end_of_a_block_raises_nothing_beside_another_exception_or_a_close(
    mute: ScriptedQuorum,
) -> None:
    async def main() -> None:
        async with AsyncProducer(Producer(mute)) as closed:
            closed.append(b"lost?")
            await closed.close(timeout=0.0)
        with pytest.raises(ZeroDivisionError):
            async with AsyncProducer(Producer(mute)) as failing:
                failing.append(b"lost?")
                raise ZeroDivisionError

    asyncio.run(main())
    with Producer(mute) as closed:
        closed.append(b"lost?")
        closed.close(timeout=0.0)
    with pytest.raises(ZeroDivisionError), Producer(mute) as failing:
        failing.append(b"lost?")
        raise ZeroDivisionError


def test_the_end_of_a_block_raises_nothing_that_was_raised_before(mute: ScriptedQuorum) -> None:
    """A program that handles the error of a record must not get it twice."""

    async def main() -> None:
        async with AsyncProducer(Producer(mute)) as producer:
            with pytest.raises(UnknownOutcome):
                await producer.append_wait(b"lost?", timeout=0.02)

    asyncio.run(main())
    with Producer(mute) as producer:
        producer.append(b"before")
        with pytest.raises(UnknownOutcome):
            producer.append_wait(b"lost?", timeout=0.02)
    with pytest.raises((UnknownOutcome, Closed)), Producer(mute) as producer:
        with pytest.raises(UnknownOutcome):
            producer.append_wait(b"lost?", timeout=0.02)
        producer.append(b"behind")


def test_a_consumer(quorum: LocalQuorum, tmp_path: Path) -> None:
    with quorum.producer() as producer:
        first = producer.append_wait(b"1")
        producer.append_wait(b"2")
    consumer = quorum.consumer(first)
    records = iter(consumer)
    next(records)
    consumer.close()
    fds = strangers(tmp_path)
    assert not_closed(calls_of_consumer(consumer, records)) == []
    consumer.close()
    assert untouched(fds)


def test_a_watch(ring_quorum: LocalQuorum, tmp_path: Path) -> None:
    watch = ring_quorum.watch(1)
    watch.close()
    fds = strangers(tmp_path)
    calls = {"alive": watch.alive, "wait_beyond": lambda: watch.wait_beyond(0, 1)}
    assert not_closed(calls) == []
    watch.close()
    assert untouched(fds)


def test_a_quorum(tmp_path: Path) -> None:
    quorum = LocalQuorum(tmp_path / "q", **SMALL | {"voters": 1})
    quorum.close()
    fds = strangers(tmp_path)
    calls = calls_of_quorum(quorum) | {"replace": lambda: quorum.replace(1)}
    assert not_closed(calls) == []
    quorum.close()
    assert untouched(fds)
    assert all(worker.process is None for worker in quorum.supervisor.workers.values())


def test_descriptors_go_with_what_was_never_closed(ring_quorum: LocalQuorum) -> None:
    def count() -> int:
        return len(os.listdir("/proc/self/fd"))

    list(ring_quorum.consumer())
    before = count()
    for _ in range(5):
        list(ring_quorum.consumer())
        ring_quorum.watch(1)
    assert count() <= before + 2


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_producers_of_a_closed_quorum(tmp_path: Path, transport: str) -> None:
    """Their appends went into a ring that nobody reads, and ended after 30 s as unknown."""

    def calls(producer: Any) -> dict[str, Callable[[], Any]]:
        return {
            "append": lambda: producer.append(b"x"),
            "try_append": lambda: producer.try_append(b"x", key=b"k"),
            "append_wait": lambda: producer.append_wait(b"x"),
            "append_many": lambda: producer.append_many([b"x"]),
        }

    async def main(quorum: LocalQuorum) -> None:
        producer = await quorum.async_producer()
        await producer.append_wait(b"before")
        await asyncio.to_thread(quorum.close)
        with pytest.raises(Closed, match="the quorum is closed; the record never left"):
            await producer.append_wait(b"x")
        with pytest.raises(Closed, match="the quorum is closed; the record never left"):
            await producer.append_many([b"x"])
        with pytest.raises(Closed, match="the quorum is closed; the record never left"):
            producer.append(b"x")
        await producer.close()

    settings = {**SMALL, "voters": 1, "transport": transport}
    quorum = LocalQuorum(tmp_path / "quorum", **settings)
    with quorum.producer() as used, quorum.producer(idempotent=False) as plain:
        offset = used.append_wait(b"before")
        ticket = used.append(b"committed")
        asyncio.run(main(quorum))
        assert not_closed(calls(used)) == not_closed(calls(plain)) == []
        assert used.wait(ticket) > offset, "what was appended before is known"
        used.flush()
    with LocalQuorum(tmp_path / "quorum", **settings) as again, again.consumer(offset) as consumer:
        assert b"x" not in [record.value for record in consumer]


def test_a_close_of_a_quorum_that_is_interrupted_leaves_no_replica(tmp_path: Path) -> None:
    """A second Ctrl-C: whoever waits for an orderly end does so no longer."""

    def interrupt(*_args: object) -> None:
        raise KeyboardInterrupt

    quorum = LocalQuorum(tmp_path / "quorum", **SMALL | {"voters": 3})
    with quorum.producer() as producer:
        offset = producer.append_wait(b"kept")
    pids = [quorum.supervisor.pid(id) for id in (1, 2, 3)]
    quorum.kill(2, signal.SIGSTOP)  # so that it takes long
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(KeyboardInterrupt):
            quorum.close()
    finally:
        signal.signal(signal.SIGALRM, before)
    assert not [pid for pid in pids if Path(f"/proc/{pid}").exists()]
    quorum.close()
    with LocalQuorum(tmp_path / "quorum", **SMALL) as again:
        assert [record.value for record in again.consumer(offset)] == [b"kept"]


def test_a_quorum_that_could_not_be_made_holds_no_directory(tmp_path: Path) -> None:
    with warnings.catch_warnings(), pytest.raises(UnauthenticatedListener):
        warnings.simplefilter("error")
        LocalQuorum(tmp_path / "quorum", **SMALL | {"transport": "socket"})
    LocalQuorum(tmp_path / "quorum", **SMALL).close()


def test_an_admin_and_a_consumer_of_a_closed_quorum(tmp_path: Path) -> None:
    """They looked for a replica until their time was over, and said that none runs."""
    quorum = LocalQuorum(tmp_path / "quorum", **SMALL | {"voters": 1})
    with quorum.producer() as producer:
        first = producer.append_wait(b"1")
    admin, consumer = quorum.admin(), quorum.consumer(first)
    following = quorum.consumer(first, follow=True)
    records = iter(following)
    next(records)
    found: list[Any] = []

    def follow() -> None:
        try:
            found.append(next(records))
        except BaseException as error:
            found.append(error)

    waiter = threading.Thread(target=follow)
    waiter.start()
    quorum.close()
    waiter.join(20)
    assert [str(error) for error in found] == ["the quorum is closed"]
    calls: dict[str, Callable[[], Any]] = {
        "describe": admin.describe,
        "read_barrier": admin.read_barrier,
        "cluster_id": admin.cluster_id,
        "transfer": admin.transfer,
        "async read_barrier": lambda: asyncio.run(AsyncAdmin(admin).read_barrier()),
        "read": lambda: consumer.read(1),
        "wait": lambda: consumer.wait(timeout=5),
        "iterate": lambda: list(consumer),
    }
    with pytest.raises(Closed, match="the quorum is closed"):
        consumer.read(1)
    assert not_closed(calls) == []
    consumer.close()
    following.close()


def test_what_is_refused_again_and_again_keeps_nothing_of_its_callers(tmp_path: Path) -> None:
    """I25: one exception was raised each time, and every raise added the caller's frames to it."""
    quorum = LocalQuorum(tmp_path / "quorum", **SMALL | {"voters": 1})
    producer, consumer = quorum.producer(), quorum.consumer()
    alone = Consumer(dict(quorum.directories))
    assert list(alone) == []
    watch = Watch(quorum.directories[1])
    for each in (producer, consumer, watch, quorum):
        each.close()
    assert not alone.wait(0), "it learns that its replica is gone"
    calls: dict[str, Callable[[], Any]] = {
        "producer": lambda: producer.append(b"x"),
        "consumer": lambda: consumer.wait(0),
        "of replicas that have ended": lambda: alone.wait(0),
        "watch": watch.alive,
        "quorum": quorum.describe,
    }
    for name, call in calls.items():
        depths = set()
        for _ in range(4):
            with pytest.raises((Closed, NoQuorum)) as caught:
                call()
            depths.add(len(caught.traceback))
        assert len(depths) <= 2, f"{name}: {depths}"  # it may look for replicas, or not just yet
    alone.close()
