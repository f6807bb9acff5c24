"""A producer's own threads, and the search for a leader, where the process has nothing left."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import resource
import threading
import time
import weakref
from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.client.client_host import KernelClientHost
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.own_threads import OwnThreads, _call_back_for_ever
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import (
    Closed,
    DiskFull,
    ErrorCode,
    KraftfastError,
    NoQuorum,
    OutOfResources,
    ProducerFenced,
    RequestRefused,
    StorageError,
    UnknownOutcome,
    WouldBlock,
)
from kraftfast.quorum import LocalQuorum
from kraftfast.wire.messages import InitProducerIdResponse
from tests.client.kit import wait_until
from tests.client.scripted_quorum import ScriptedQuorum


@pytest.fixture
def scripted() -> Iterator[ScriptedQuorum]:
    found = ScriptedQuorum()
    yield found
    found.stop()


def test_threads_outlive_what_a_search_raises(
    scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody else calls back or sends what is open."""
    monkeypatch.setattr("kraftfast.client.producer.own_threads.SLEEP_S_MAX", 0.01)
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    batches: list[TicketedBatch] = []
    with Producer(scripted, 5.0) as producer:
        producer.on_commit(batches.append)
        scripted.mute = True
        for number in range(5):
            producer.append(b"%d" % number)
        scripted.problem, scripted.reachable = MemoryError(), False  # type: ignore[assignment]
        scripted.lose()
        names = {"kraftfast-keeper", "kraftfast-callbacks"}

        def both_raised() -> bool:
            producer.wake_threads()  # the keeper sleeps if all was sealed before the loss
            return names <= {each.thread.name for each in said}

        wait_until(both_raised)
        scripted.mute, scripted.reachable = False, True
        wait_until(lambda: batches and batches[-1].end_ticket == 5)
    assert all(each.exc_type is MemoryError for each in said)


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError()])
def test_callbacks_outlive_whatever_one_raises(
    raised: BaseException, scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And it is printed, also where Python's own threads would end in silence."""
    said: list[Any] = []
    monkeypatch.setattr(threading, "excepthook", said.append)
    batches: list[TicketedBatch] = []

    def raising(batch: TicketedBatch) -> None:
        batches.append(batch)
        raise raised

    with Producer(scripted, 5.0) as producer:
        producer.on_commit(raising)
        for number in range(5):
            producer.append_wait(b"%d" % number, timeout=5)
        wait_until(lambda: batches and batches[-1].end_ticket == 5)
    assert len(said) == len(batches)
    assert all(each.exc_type is not SystemExit for each in said)


@pytest.mark.processes
def test_without_descriptors_a_producer_says_so(
    quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not an OSError: it would end whoever looks for one."""

    refused = []

    def refuse() -> None:
        refused.append(1)
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    fds = len(os.listdir("/proc/self/fd"))
    with monkeypatch.context() as patched:
        patched.setattr(KernelClientHost, "poller", staticmethod(refuse))
        while not refused:  # a busy server may not answer in time
            with pytest.raises((NoQuorum, OutOfResources)) as raised:
                quorum.producer(timeout=0.1)
    assert raised.type is OutOfResources
    with quorum.producer(timeout=30) as producer:
        producer.append_wait(b"goes on", timeout=30)
    assert len(os.listdir("/proc/self/fd")) <= fds


class Ending(OwnThreads):
    """A producer that ends just behind a look at what is resolved."""

    _called_back, _ended, _resolved = 0, False, 0

    @property
    def outcomes(self) -> Any:  # type: ignore[override]
        return self

    @property
    def resolved(self) -> int:
        before, self._resolved, self._ended = self._resolved, 5, True
        return before

    def _call_back_once(self) -> bool:
        self._called_back = self.resolved
        return True


def test_callbacks_are_called_for_what_is_resolved_as_the_producer_ends() -> None:
    producer = Ending()
    _call_back_for_ever(weakref.ref(producer))
    assert producer._called_back == 5


@pytest.mark.parametrize("code", [ErrorCode.PRODUCER_FENCED, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_name_that_is_lost_resolves_everything(scripted: ScriptedQuorum, code: int) -> None:
    """Nothing of it can be sent any more: callbacks learn of it though nobody waits or closes."""
    answers = [
        InitProducerIdResponse(producer_id=1, producer_epoch=0),
        InitProducerIdResponse(error_code=code),
    ]
    scripted.ask = lambda *_: answers.pop(0)  # type: ignore[method-assign]
    batches: list[TicketedBatch] = []
    with Producer(scripted, 5.0, name="lost") as producer:
        producer.on_commit(batches.append)
        scripted.mute, scripted.refused = True, {b"refused"}
        producer.append(b"refused")
        producer.append(b"behind")
        scripted.mute = False
        wait_until(lambda: batches and batches[-1].end_ticket == 2)
        assert [type(each.error) for each in batches] == [DiskFull, ProducerFenced]
        with pytest.raises(ProducerFenced):
            producer.append(b"more", timeout=5)
        assert not answers, "and nobody is asked again"

        async def more() -> None:
            wrapped = AsyncProducer(producer)
            for call in (wrapped.append_wait(b"more"), wrapped.append_many([b"more"])):
                with pytest.raises(ProducerFenced):
                    await asyncio.wait_for(call, 5)
            await wrapped.close()

        asyncio.run(more())


@contextlib.contextmanager
def descriptors(count: int) -> Iterator[None]:
    """Let this process open so many more."""
    limit, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    held = []
    highest = max(int(fd) for fd in os.listdir("/proc/self/fd"))  # others' may be many
    resource.setrlimit(resource.RLIMIT_NOFILE, (highest + 1 + count, most))
    try:
        with contextlib.suppress(OSError):
            while True:
                held.append(os.open(os.devnull, os.O_RDONLY))
        for _ in range(count):
            os.close(held.pop())
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (limit, most))
        for fd in held:
            os.close(fd)


@pytest.mark.processes
def test_a_consumer_without_descriptors_says_so_and_leaves_none(quorum: LocalQuorum) -> None:
    with quorum.producer(timeout=30) as producer:
        offset = producer.append_wait(b"read", timeout=30)
    quorum.consumer(offset).close()  # what it imports is read from files
    before = len(os.listdir("/proc/self/fd"))
    worked = 0
    for count in (*range(18), 64):  # with 64 it must work, however busy the machine is
        timeout = 0.01 if count < 18 else 30
        with descriptors(count), contextlib.suppress(NoQuorum, StorageError):
            with quorum.consumer(offset, timeout=timeout) as consumer:
                worked += next(iter(consumer)).value == b"read"
    assert worked > 0 and len(os.listdir("/proc/self/fd")) <= before


def test_a_close_waits_no_longer_than_wanted_for_another_thread(scripted: ScriptedQuorum) -> None:
    """That one waits for the leader to give it an identity, and sends nothing once it has it."""
    asked, answered = threading.Event(), threading.Event()

    def ask(*_question: Any) -> InitProducerIdResponse:
        asked.set()
        assert answered.wait(30)
        return InitProducerIdResponse(producer_id=1, producer_epoch=0)

    scripted.ask = ask  # type: ignore[method-assign]
    producer = Producer(scripted, connect=False)
    failures: list[Exception] = []

    def append() -> None:
        try:
            producer.append(b"never sent")
        except Exception as error:  # noqa: BLE001 - it is looked at
            failures.append(error)

    thread = threading.Thread(target=append)
    thread.start()
    assert asked.wait(10)
    producer.close(timeout=0.01)
    assert thread.is_alive(), "it waits still, and is not waited for"
    answered.set()
    thread.join(10)
    assert [type(each) for each in failures] == [Closed]
    wait_until(lambda: producer._ended)
    assert scripted.values() == []


def test_a_close_while_the_interpreter_ends_raises_nothing(scripted: ScriptedQuorum) -> None:
    """No thread begins then, and another one holds what the close waits for."""

    class Ending(KernelClientHost):
        def thread(self, run: Any, name: str) -> threading.Thread:
            made = super().thread(run, name)
            if name == "kraftfast-close":
                made.start = no_more  # type: ignore[method-assign]
            return made

    def no_more() -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    scripted.host = Ending()  # type: ignore[assignment]
    producer = Producer(scripted, connect=False)
    held, leave = threading.Event(), threading.Event()

    def hold() -> None:
        with producer._exchange:
            held.set()
            leave.wait(30)

    thread = threading.Thread(target=hold)
    thread.start()
    assert held.wait(10)
    producer.close(timeout=0.01)
    leave.set()
    thread.join(10)
    producer.close()
    assert producer._ended


def test_a_sender_that_cannot_take_over_is_closed(
    scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[Any] = []
    connect = scripted.connect

    def note(*arguments: Any) -> Any:
        sender = connect(*arguments)
        made.append((sender, sender.fileno()))
        return sender

    def fail(*_arguments: Any) -> None:
        raise MemoryError

    monkeypatch.setattr(scripted, "connect", note)
    monkeypatch.setattr(Producer, "_hand_over_to", fail)
    with pytest.raises(MemoryError):
        Producer(scripted, 5.0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(made[0][1])


class CountedSleeps(KernelClientHost):
    """Counts the pauses of a producer's threads."""

    def __init__(self) -> None:
        self.slept = 0

    def sleep(self, seconds: float) -> None:  # type: ignore[override]
        self.slept += 1
        time.sleep(seconds)


def send_nothing_more(scripted: ScriptedQuorum, producer: Producer, how: str) -> None:
    """Take a producer's name, or close its quorum, while its threads are awake."""
    scripted.mute = True
    ticket = producer.append(b"under way")
    with contextlib.suppress(WouldBlock):  # a batch stays open: the keeper does not sleep
        while True:
            producer.try_append(bytes(100))
    if how == "quorum closed":
        producer.lose_quorum()
    else:
        refused = InitProducerIdResponse(error_code=ErrorCode.PRODUCER_FENCED)
        scripted.ask = lambda *_: refused  # type: ignore[method-assign]
        scripted.refused = {b"under way"}
        scripted.mute = False
    with pytest.raises(KraftfastError):
        producer.wait(ticket, timeout=5)


@pytest.mark.parametrize("how", ["fenced", "quorum closed"])
def test_a_producer_that_can_send_nothing_more_rests(scripted: ScriptedQuorum, how: str) -> None:
    """Its threads tried again every 5 ms, until it was closed (L7)."""
    scripted.host = host = CountedSleeps()  # type: ignore[assignment]
    with Producer(scripted, 5.0, name="lost") as producer:
        producer.on_commit(lambda batch: None)
        send_nothing_more(scripted, producer, how)
        with pytest.raises((ProducerFenced, Closed)):
            producer.append(b"more", timeout=5)
        wait_until(lambda: producer.keeper_sleeps and producer.caller_sleeps)
        before = host.slept
        time.sleep(0.2)
        assert host.slept == before and producer.keeper_sleeps
        with pytest.raises((ProducerFenced, Closed)):
            producer.append(b"more", timeout=5)


@pytest.mark.parametrize("how", ["fenced", "quorum closed"])
def test_an_async_producer_that_can_send_nothing_more_rests(
    scripted: ScriptedQuorum, how: str
) -> None:
    """It had a thread look for a leader every 50 ms."""

    async def main() -> None:
        producer = Producer(scripted, 5.0, name="lost")
        async with AsyncProducer(producer) as wrapped:
            send_nothing_more(scripted, producer, how)
            with pytest.raises((ProducerFenced, Closed)):
                await asyncio.wait_for(wrapped.append_wait(b"more"), 5)
            async with asyncio.timeout(5):
                while wrapped._search is not None:
                    await asyncio.sleep(0.01)
            calls: list[float] = []

            def search(deadline: float) -> Any:
                calls.append(deadline)
                raise NoQuorum("none")

            producer.reconnect = search  # type: ignore[method-assign]
            await asyncio.sleep(1.2)  # also beyond what looks after it once a second
            assert not calls

    asyncio.run(main())


def test_who_waits_for_a_first_leader_learns_that_none_is_looked_for(
    scripted: ScriptedQuorum,
) -> None:
    """The quorum was closed between two looks."""

    async def main() -> None:
        producer = Producer(scripted, connect=False)
        producer.lose_quorum()
        with pytest.raises(Closed):
            await asyncio.wait_for(AsyncProducer(producer)._connected(), 5)

    asyncio.run(main())


def test_futures_are_told_before_an_async_producer_rests(scripted: ScriptedQuorum) -> None:
    """Whichever thread learnt that nothing more is sent."""

    async def main() -> None:
        producer = Producer(scripted, 5.0)
        async with AsyncProducer(producer) as wrapped:
            scripted.mute = True
            future = wrapped.append(b"under way")
            await asyncio.sleep(0)
            producer.lose_quorum()
            with pytest.raises(Closed):
                producer.reconnect(time.monotonic() + 5)
            with pytest.raises(UnknownOutcome):
                await asyncio.wait_for(future, 5)

    asyncio.run(main())


def refuse_all(scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Lose the leader, and let nobody in; return what has an entry for each search from now on."""
    refused = RequestRefused("not allowed", ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    scripted.problem, scripted.reachable = refused, False
    searches, connect = list[int](), scripted.connect
    monkeypatch.setattr(scripted, "connect", lambda *args: (searches.append(1), connect(*args))[1])
    scripted.lose()
    return searches


def test_a_search_that_is_refused_is_made_seldom(
    scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection was made for each, every 5 ms. What waits is sent once one is let in."""
    made: list[TicketedBatch] = []
    with Producer(scripted, 5.0) as producer:
        producer.on_commit(made.append)
        scripted.mute = True
        producer.append(b"waits")
        searches = refuse_all(scripted, monkeypatch)
        time.sleep(1.0)
        assert 3 <= len(searches) <= 30, "of two threads"
        scripted.mute, scripted.reachable = False, True
        wait_until(lambda: made and made[-1].end_ticket == 1)
        assert made[-1].error is None


def test_an_async_search_that_is_refused_is_made_seldom(
    scripted: ScriptedQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def main() -> None:
        async with AsyncProducer(Producer(scripted, 5.0)) as producer:
            scripted.mute = True
            waits = asyncio.ensure_future(producer.append_wait(b"waits"))
            await asyncio.sleep(0)
            searches = refuse_all(scripted, monkeypatch)
            await asyncio.sleep(2.0)
            assert 3 <= len(searches) <= 10
            scripted.mute, scripted.reachable = False, True
            assert await asyncio.wait_for(waits, 10) >= 0

    asyncio.run(main())
