"""Whatever is passed where it does not belong is refused by InvalidOption, and nothing is done."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import kraftfast
from kraftfast import limits
from kraftfast.client.timing import deadline_after
from kraftfast.errors import InvalidOption, LocalError
from kraftfast.quorum import LocalQuorum
from tests.client.conftest import SMALL

NAN = math.nan


class Odd:
    """What no call takes; its text is as unkind as it may be."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


NO_NUMBERS = ("5", 1.5, b"1", [], {}, Odd(), True, NAN, 10**30, -(10**30))
NO_OFFSETS = (*NO_NUMBERS, -1)
NO_IDS = (*NO_OFFSETS, 2**31)
NO_TIMES = ("5", "", b"1", [], Odd(), True, NAN, 1j)
NO_FLAGS = ("no", "", 0, 1, 5, [], Odd(), NAN)
NO_TEXTS = (5, b"x", [], ("a",), Odd(), True, "", "\ud800", "x" * 40_000)
ADDRESSES = np.array([[object()]])  # its buffer is an address in memory
PARTLY_ADDRESSES = np.zeros(1, [("number", int), ("object", object)])
NO_BYTES = ("text", 5, 1.5, [], Odd(), True, ADDRESSES, PARTLY_ADDRESSES)
NO_HEADERS = (
    5, True, "ab", b"ab", {}, {"a": b"b"}, Odd(), [5], ["ab"], [None], [("a",)], [("a", 5)],
    [("a", b"b", b"c")], [(5, b"")], [(b"a", b"b")], [(None, b"")], [("\ud800", b"")],
    [("caf\udce9", b"")], [("many", b"")] * (limits.HEADERS_PER_RECORD_MAX + 1),
)  # fmt: skip
NO_COLUMNS = (
    5, None, "ab", b"ab", [5], ["a"], Odd(), {"a": 1}, {b"a"}, [[b"a"]], True, ADDRESSES,
    [ADDRESSES],
)  # fmt: skip
NO_SETS_OF_IDS = (
    1, 5.5, True, "1,2", b"12", {}, {1: 2}, Odd(), ["1"], [1.5], [None], [True], [-1], [2**31],
)  # fmt: skip
NO_UUIDS = ("a", 1.5, b"1", [], Odd(), True, 5, "x" * 16, b"x" * 17)
NO_ENDPOINTS = (
    5, None, "x", b"x", {}, Odd(), [5], [("C",)], [("C", "h", 1, 2)], [("C", "h", "p")],
    [("C", 5, 5)], [("C", "h", -1)], [("C", "h", 1 << 16)], [(None, "h", 1)], [("C", "", 1)],
)  # fmt: skip
NO_ADDRESSES = (
    5, None, True, [], "", "a", b"h:1", Odd(), {"h": 1}, [5], [None], [("h",)], [("h", "p")],
    [("h", -1)], [("h", 1, 2)], [(5, 5)], [b"h:1"], ["h:1", 5], "h:99999", "h:" + "9" * 5000,
)  # fmt: skip
NO_PATHS = (5, None, 1.5, True, [], {}, Odd(), "", b"", b"quorum", "a\0b")

Calls = Iterator[tuple[str, tuple[Any, ...], Callable[[Any], Any]]]


def complaint(name: str, value: object, error: BaseException | None, got: object) -> str:
    """What is wrong with the answer to one wrong argument; '' if nothing is."""
    what = f"{name} with a {type(value).__name__}"
    if error is None:
        return f"{what} gave a {type(got).__name__}"
    text = str(error)
    if not isinstance(error, InvalidOption):
        return f"{what}: {type(error).__name__}: {text}"
    last = name.split()[-1].rstrip("=")
    named = last in text or "replicas are 1, 2, 3" in text
    if not named or "\n" in text or len(text) > 200:
        return f"{what}: {text}"
    return ""


def not_refused(calls: Calls) -> list[str]:
    """Those that were not refused as they must be."""
    found = []
    for name, values, call in calls:
        for value in values:
            got, error = None, None
            try:
                got = call(value)
            except Exception as raised:
                error = raised
            found.append(complaint(name, value, error, got))
    return [each for each in found if each]


async def not_refused_there(calls: Calls) -> list[str]:
    """The same of calls that may be awaited."""
    found = []
    for name, values, call in calls:
        for value in values:
            got, error = None, None
            try:
                got = call(value)
                got = await asyncio.wait_for(got, 10) if hasattr(got, "__await__") else got
            except Exception as raised:
                error = raised
            found.append(complaint(name, value, error, got))
    return [each for each in found if each]


def calls_of_any_quorum(quorum: Any) -> Calls:
    def setting(name: str) -> Callable[[Any], Any]:
        return lambda value: quorum.producer(**{name: value})

    for name in ("batch_bytes", "window", "record_bytes_max"):
        yield f"producer {name}", (*NO_OFFSETS, None), setting(name)
    yield "producer window", (0, 32769), setting("window")
    yield "producer batch_bytes", (124,), setting("batch_bytes")
    yield "producer timeout", (*NO_TIMES, None), setting("timeout")
    yield "producer name", (*NO_TEXTS, "x" * 256), setting("name")
    yield "producer idempotent", NO_FLAGS, setting("idempotent")
    yield "producer connect", (*NO_FLAGS, None), setting("connect")
    yield "consumer from_offset", (*NO_OFFSETS, None), lambda v: quorum.consumer(v)
    yield "consumer follow", (*NO_FLAGS, None), lambda v: quorum.consumer(follow=v)
    yield "consumer timeout", (*NO_TIMES, None), lambda v: quorum.consumer(timeout=v)
    yield "describe timeout", (*NO_TIMES, None), lambda v: quorum.describe(timeout=v)
    yield "read_barrier timeout", (*NO_TIMES, None), lambda v: quorum.read_barrier(timeout=v)


def calls_of_admin(admin: Any) -> Calls:
    there = [("CONTROLLER", "h", 1)]
    for name in ("describe", "cluster_id", "read_barrier", "reassignment"):
        call = getattr(admin, name, None)
        if call is not None:
            yield f"{name} timeout", (*NO_TIMES, None), lambda v, call=call: call(timeout=v)
    yield "reassign target", NO_SETS_OF_IDS, lambda v: admin.reassign(v)
    yield "reassign wait", (*NO_FLAGS, None), lambda v: admin.reassign((9,), wait=v)
    yield "reassign timeout", (*NO_TIMES, None), lambda v: admin.reassign((9,), timeout=v)
    yield "transfer to", NO_IDS, lambda v: admin.transfer(v)
    yield "transfer timeout", (*NO_TIMES, None), lambda v: admin.transfer(9, timeout=v)
    yield "upgrade kraft_version", (*NO_OFFSETS, None), lambda v: admin.upgrade(v)
    yield "upgrade timeout", (*NO_TIMES, None), lambda v: admin.upgrade(1, timeout=v)
    yield "upgrade validate_only", NO_FLAGS, lambda v: admin.upgrade(1, validate_only=v)
    yield "remove_voter id", (*NO_IDS, None), lambda v: admin.remove_voter(v)
    yield "remove_voter directory_id", NO_UUIDS, lambda v: admin.remove_voter(9, v)
    yield "remove_voter cluster_id", NO_TEXTS, lambda v: admin.remove_voter(9, cluster_id=v)
    yield "remove_voter timeout", (*NO_TIMES, None), lambda v: admin.remove_voter(9, timeout=v)
    add = admin.add_voter
    yield "add_voter id", (*NO_IDS, None), lambda v: add(v, b"d" * 16, there)
    yield "add_voter directory_id", (*NO_UUIDS, None), lambda v: add(9, v, there)
    yield "add_voter endpoints", NO_ENDPOINTS, lambda v: add(9, b"d" * 16, v)
    yield "add_voter cluster_id", NO_TEXTS, lambda v: add(9, b"d" * 16, there, cluster_id=v)
    yield "add_voter timeout", (*NO_TIMES, None), lambda v: add(9, b"d" * 16, there, timeout=v)


def calls_of_the_local_quorum(quorum: LocalQuorum) -> Calls:
    one_replica = ("status", "identity", "watch", "kill", "query", "stop_replica", "replace")
    for name in one_replica:
        call = getattr(quorum, name)
        yield f"{name} id", (*NO_IDS, None, 99), call
    yield "statuses timeout", (*NO_TIMES, None), lambda v: quorum.statuses(timeout=v)
    for name in ("add_replica", "add_voter", "remove_voter"):
        yield f"{name} id", NO_IDS, getattr(quorum, name)
    for name in ("remove_voter", "stop_replica", "replace", "query", "add_replica", "add_voter"):
        call = getattr(quorum, name)
        yield f"{name} timeout", (*NO_TIMES, None), lambda v, call=call: call(1, timeout=v)
    for name in ("adopt", "upgrade", "wait_leader", "read_barrier", "transfer", "close"):
        call = getattr(quorum, name)
        yield f"{name} timeout", (*NO_TIMES, None), lambda v, call=call: call(timeout=v)
    yield "read_barrier id", (*NO_IDS, 99), lambda v: quorum.read_barrier(v)
    yield "consumer id", (*NO_IDS, 99), lambda v: quorum.consumer(replica=v)
    yield "query at_least", (*NO_NUMBERS, -2), lambda v: quorum.query(1, at_least=v)
    yield "query timeout", (0, -1), lambda v: quorum.query(1, timeout=v)
    yield "kill signo", (*NO_OFFSETS, None, 65), lambda v: quorum.kill(1, v)
    yield "reassign target", NO_SETS_OF_IDS, lambda v: quorum.reassign(v)
    yield "reassign twice", ([1, 1], (2, 1, 2)), lambda v: quorum.reassign(v)
    yield "reassign wait", (*NO_FLAGS, None), lambda v: quorum.reassign((1,), wait=v)
    yield "remove_voter stop", (*NO_FLAGS, None), lambda v: quorum.remove_voter(1, stop=v)
    yield "replace share_device", (*NO_FLAGS, None), lambda v: quorum.replace(1, share_device=v)
    yield "transfer to", NO_IDS, lambda v: quorum.transfer(v)
    yield "upgrade kraft_version", (*NO_OFFSETS, None), lambda v: quorum.upgrade(v)


def calls_of_appends(producer: Any, *, timed: bool) -> Calls:
    """The calls that both kinds of producer have."""
    for name in ("append", "append_wait", "try_append"):
        call = getattr(producer, name, None)
        if call is None:
            continue
        yield f"{name} value", NO_BYTES, call
        yield f"{name} key", NO_BYTES, lambda v, call=call: call(b"x", key=v)
        yield f"{name} headers", NO_HEADERS, lambda v, call=call: call(b"x", headers=v)
        yield f"{name} timestamp", NO_OFFSETS, lambda v, call=call: call(b"x", timestamp=v)
        if name == "append_wait" or (timed and name == "append"):
            yield f"{name} timeout", (*NO_TIMES, None), lambda v, call=call: call(b"x", timeout=v)
    many = producer.append_many
    yield "append_many value", NO_COLUMNS, many
    yield "append_many offsets", (5, "ab", [0, 1], [0, 9], 1.5, Odd()), lambda v: many(b"abc", v)
    yield "append_many size", (*NO_OFFSETS, 0, 2), lambda v: many(b"abc", size=v)
    yield "append_many size", (1,), lambda v: many([b"abc"], size=v)
    yield "append_many size of a value", (ADDRESSES,), lambda v: many(v, size=8)
    yield "append_many offsets", (b"\0" * 8,), lambda v: many([b"abc"], v)
    yield "append_many timeout", (*NO_TIMES, None), lambda v: many([b"x"], timeout=v)
    yield "flush timeout", (*NO_TIMES, None), lambda v: producer.flush(timeout=v)
    yield "close timeout", (*NO_TIMES, None), lambda v: producer.close(timeout=v)


def calls_of_producer(producer: Any) -> Calls:
    yield from calls_of_appends(producer, timed=True)
    yield "append_many_nowait value", NO_COLUMNS, producer.append_many_nowait
    many = producer.append_many_nowait
    yield "append_many_nowait timeout", (*NO_TIMES, None), lambda v: many([b"x"], timeout=v)
    yield "wait ticket", (*NO_NUMBERS, None), producer.wait
    yield "wait timeout", (*NO_TIMES, None), lambda v: producer.wait(0, timeout=v)
    yield "last_sequence timeout", (*NO_TIMES, None), lambda v: producer.last_sequence(timeout=v)
    yield "on_commit callback", (5, None, "x", Odd()), producer.on_commit


def calls_of_consumer(consumer: Any) -> Calls:
    def placed(value: Any) -> Any:
        before, consumer.position = consumer.position, value
        try:
            return consumer.read(1, timeout=1)
        finally:
            consumer.position = before

    def following(value: Any) -> Any:
        before, consumer.follow = consumer.follow, value
        try:
            return next(iter(consumer))
        finally:
            consumer.follow = before

    yield "wait timeout", NO_TIMES, consumer.wait
    yield "read count", (*NO_OFFSETS, None), consumer.read
    yield "read timeout", (*NO_TIMES, None), lambda v: consumer.read(1, timeout=v)
    yield "position=", (*NO_OFFSETS, None), placed
    yield "follow=", (*NO_FLAGS, None), following


def other_handle(quorum: LocalQuorum) -> Any:
    """The same quorum as another process would use it."""
    if quorum.addresses:
        return kraftfast.connect([tuple(each) for each in quorum.addresses.values()])
    return kraftfast.connect(quorum.path)


def test_calls_of_a_quorum(quorum: LocalQuorum) -> None:
    def state() -> Any:
        ids = {id: status["voters"] for id, status in quorum.statuses().items()}
        return ids, dict(quorum.directories), quorum.leader(), quorum.describe().voter_ids

    before = state()
    assert not_refused(calls_of_the_local_quorum(quorum)) == []
    with other_handle(quorum) as other:
        for each in (quorum, other):
            assert not_refused(calls_of_any_quorum(each)) == []
            assert not_refused(calls_of_admin(each.admin())) == []
    assert state() == before


def test_calls_of_a_producer(quorum: LocalQuorum) -> None:
    with other_handle(quorum) as other, other.producer() as producer:
        offset = producer.append_wait(b"before")
        assert not_refused(calls_of_producer(producer)) == []
        assert producer.outcomes.next_ticket == 1, "nothing was handed over"
        assert producer.append_wait(b"after") == offset + 1
    with pytest.raises(LocalError, match="was never handed out"):
        producer.wait(-1)


def test_calls_of_a_consumer(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        offset = producer.append_wait(b"before")
    with other_handle(quorum) as other, other.consumer(offset) as consumer:
        assert not_refused(calls_of_consumer(consumer)) == []
        assert consumer.position == offset
        assert [record.value for record in consumer.read(1)] == [b"before"]


def test_calls_of_asyncio(quorum: LocalQuorum) -> None:
    async def main() -> None:
        names = ("batch_bytes", "window", "record_bytes_max")
        made: list[tuple[str, tuple[Any, ...]]] = [
            *((f"async_producer {name}", (*NO_OFFSETS, None)) for name in names),
            ("async_producer timeout", (*NO_TIMES, None)),
            ("async_producer name", NO_TEXTS),
            ("async_producer idempotent", NO_FLAGS),
        ]

        def make(name: str) -> Callable[[Any], Any]:
            return lambda value: quorum.async_producer(**{name: value})

        calls = ((name, values, make(name.split()[1])) for name, values in made)
        assert await not_refused_there(calls) == []
        async with quorum.async_producer() as producer:
            offset = await producer.append_wait(b"before")
            assert await not_refused_there(calls_of_appends(producer, timed=False)) == []
            assert producer.producer.outcomes.next_ticket == 1
            assert await producer.append_wait(b"after") == offset + 1
        assert await not_refused_there(calls_of_admin(quorum.async_admin())) == []

    asyncio.run(main())


def test_an_async_producer_outside_a_loop(ring_quorum: LocalQuorum) -> None:
    with pytest.raises(LocalError, match="inside a running event loop"):
        ring_quorum.async_producer()


def test_headers_by_an_iterator_are_those_of_every_try(ring_quorum: LocalQuorum) -> None:
    """A first try that found no room used them up: the record was appended without them."""

    async def main() -> int:
        async with ring_quorum.async_producer(window=1, batch_bytes=200) as producer:
            many = [
                producer.append_wait(b"v" * 100, headers=(pair for pair in [("a", b"b")]))
                for _ in range(20)
            ]
            return min(await asyncio.gather(*many))

    first = asyncio.run(main())
    with ring_quorum.consumer(first) as consumer:
        assert {record.headers for record in consumer.read(20)} == {(("a", b"b"),)}


def test_what_makes_a_quorum(tmp_path: Path) -> None:
    def make(value: Any, name: str = "voters", path: Any = tmp_path / "quorum") -> Any:
        quorum = LocalQuorum(path, **{**SMALL, name: value})
        quorum.close()
        return quorum

    flags = ("restart", "expose_without_authentication")
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("durability", NO_TEXTS),
        ("records", NO_TEXTS),
        ("kraft_version", (*NO_OFFSETS, None, 2)),
        ("timeout", (*NO_TIMES, None, 0, -1)),
        *((name, (*NO_FLAGS, None)) for name in flags),
        ("host", NO_TEXTS),
        ("processors", (5, "01", b"\0", ["a"], [1.5], [True], [-1], {0: 1}, Odd())),
        *((name, NO_TEXTS) for name in ("flush", "transport", "idle")),
        ("producers_max", (*NO_OFFSETS, None)),
    ]
    assert not_refused((n, v, lambda x, n=n: make(x, n)) for n, v in calls) == []
    paths = ((*NO_PATHS, "/etc/passwd", "/etc/passwd/quorum"), lambda v: make(3, path=v))
    assert not_refused(iter([("LocalQuorum directory", *paths)])) == []
    no_paths = [each for each in NO_PATHS if not isinstance(each, list)]  # which holds addresses
    reached = ((*no_paths, "/etc/passwd"), kraftfast.connect)
    assert not_refused(iter([("connect directory", *reached)])) == []
    assert not list(tmp_path.iterdir()), "nothing was made"


def test_what_makes_a_connection() -> None:
    def wrong() -> Calls:
        connect = kraftfast.connect
        yield "connect host", NO_ADDRESSES, connect
        yield "connect topic", NO_TEXTS, lambda v: connect("127.0.0.1:1", v)
        yield "connect timeout", (*NO_TIMES, None), lambda v: connect("127.0.0.1:1", timeout=v)

    assert not_refused(wrong()) == []


def test_times_at_the_ends() -> None:
    """Infinity is a year, less than nothing is over already, and no number is too large."""
    now = deadline_after(0)
    assert deadline_after(math.inf) > now + 1e7 and deadline_after(10**400) > now + 1e7
    assert deadline_after(-math.inf) < now and deadline_after(-(10**400)) < now
    assert deadline_after(-5) < now < deadline_after(5)
