"""The blocking producer, over rings and over sockets, against real workers."""

from __future__ import annotations

import array
import asyncio
import threading
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from kraftfast.client.local_connector import LocalConnector
from kraftfast.client.local_socket import RefusedByReplica
from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.producer import Producer
from kraftfast.client.producer.sender import RECORD_BYTES_MAX
from kraftfast.client.producer.tickets import TicketedBatch
from kraftfast.errors import (
    Closed,
    InvalidOption,
    LocalError,
    NoQuorum,
    RecordTooLarge,
    UnknownOutcome,
)
from kraftfast.quorum import LocalQuorum
from tests.client.kit import wait_until

pytestmark = pytest.mark.processes


def read_from(quorum: LocalQuorum, offset: int) -> list[tuple[int, bytes | None]]:
    """(offset, value) of everything from an offset on."""
    with quorum.consumer(offset) as consumer:
        return [(record.offset, record.value) for record in consumer]


def test_one_record_and_its_offset(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        first = producer.append_wait(b"hello", timeout=30)
        assert producer.append_wait(b"again") > first
        ticket = producer.append(b"ticket")
        offset = producer.wait(ticket, timeout=30)
        assert producer.resolved == ticket + 1 == 3
        assert producer.wait(0) == first, "an outcome may be asked for again"
        assert read_from(quorum, first)[-1] == (offset, b"ticket")


def test_a_window_of_appends_is_resolved_in_order(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        tickets = [producer.append(b"%d" % i) for i in range(5000)]
        assert tickets == list(range(5000))
        offsets = [producer.wait(ticket) for ticket in tickets]
        assert offsets == sorted(set(offsets))
        assert read_from(quorum, offsets[0]) == [
            (offset, b"%d" % i) for i, offset in enumerate(offsets)
        ]


def test_what_nobody_waits_for_leaves_all_the_same(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        for _ in range(50):
            producer.append(b"first")
            producer.append(b"stays in the open batch")
            wait_until(
                lambda: (
                    producer.outcomes.next_ticket == producer.resolved
                    or not producer.sender.has_open
                )
            )
        producer.flush()
        assert producer.resolved == 100


def test_records_keep_keys_headers_and_timestamps(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        offset = producer.append_wait(
            b"v", key=b"k", headers=[("a", b"1"), ("b", None)], timestamp=1_234_567
        )
        nothing = producer.append_wait(None, key=b"k")
        view = producer.append_wait(memoryview(b"view"))
        assert producer.wait(producer.try_append(b"tried", headers=[("h", b"")])) == view + 1
    with quorum.consumer(offset) as consumer:
        records = consumer.read(4)
    assert (records[0].key, records[0].value, records[0].timestamp) == (b"k", b"v", 1_234_567)
    assert list(records[0].headers) == [("a", b"1"), ("b", None)]
    assert (records[1].offset, records[1].value, records[2].value) == (nothing, None, b"view")
    assert abs(records[2].timestamp - time.time() * 1000) < 60_000


VALUES = [b"", b"a", b"bcd", b"e" * 300, b"f" * 70_000, b"g"]
BLOB = b"".join(VALUES)
ENDS = np.cumsum([0, *map(len, VALUES)])
ROWS = np.arange(120, dtype=np.uint8).reshape(20, 6)
MANY: list[tuple[str, tuple[Any, ...], dict[str, Any], list[bytes | None]]] = [
    ("list", (VALUES,), {}, list(VALUES)),
    (
        "tuple of anything like bytes",
        ((bytearray(b"x"), memoryview(b"yz"), None),),
        {},
        [b"x", b"yz", None],
    ),
    ("blob, int64 offsets", (BLOB, ENDS.astype(np.int64)), {}, list(VALUES)),
    ("blob, int32 offsets", (bytearray(BLOB), array.array("i", ENDS.tolist())), {}, list(VALUES)),
    ("blob, size", (b"abcdef",), {"size": 2}, [b"ab", b"cd", b"ef"]),
    ("rows", (ROWS,), {}, [row.tobytes() for row in ROWS]),
    ("arrow binary", (pa.array([b"p", None, b"q" * 100]),), {}, [b"p", None, b"q" * 100]),
    (
        "arrow slice",
        (pa.array([b"p", b"q", b"r", None], pa.large_binary())[1:],),
        {},
        [b"q", b"r", None],
    ),
    ("arrow fixed", (pa.array([b"ab", b"cd"], pa.binary(2)),), {}, [b"ab", b"cd"]),
    ("arrow chunks", (pa.chunked_array([[b"a"], [b"b", b"c"]]),), {}, [b"a", b"b", b"c"]),
    ("nothing", ([],), {}, []),
]


@pytest.mark.parametrize(
    ("args", "kwargs", "expected"), [case[1:] for case in MANY], ids=[case[0] for case in MANY]
)
def test_many_records_in_every_form(
    ring_quorum: LocalQuorum, args: Any, kwargs: Any, expected: list[bytes | None]
) -> None:
    with ring_quorum.producer() as producer:
        before = producer.append_wait(b"before")
        offsets = producer.append_many(*args, **kwargs)
        assert list(offsets) == list(range(before + 1, before + 1 + len(expected)))
        assert read_from(ring_quorum, before + 1) == list(zip(offsets, expected))


def test_many_records_at_once(quorum: LocalQuorum) -> None:
    values = [b"%d" % i + b"v" * (i % 200) for i in range(30_000)]
    with quorum.producer() as producer:
        offsets = producer.append_many(values, timeout=60)
        assert isinstance(offsets, range) and len(offsets) == 30_000
        assert read_from(quorum, offsets[0]) == list(zip(offsets, values))


@pytest.mark.parametrize(
    ("args", "kwargs", "kind"),
    [
        ((b"abc", np.array([0, 2, 1], np.int64)), {}, InvalidOption),
        ((b"abc", np.array([0, 9], np.int32)), {}, InvalidOption),
        ((["text"],), {}, InvalidOption),
        ((5,), {}, InvalidOption),
        ((b"abc",), {"size": 2}, InvalidOption),
        (([b"good"] * 1000 + [b"v" * (RECORD_BYTES_MAX + 1)],), {}, RecordTooLarge),
    ],
)
def test_a_bad_value_among_many_costs_nothing(
    quorum: LocalQuorum, args: Any, kwargs: Any, kind: type[Exception]
) -> None:
    with quorum.producer() as producer:
        with pytest.raises(kind):
            producer.append_many(*args, **kwargs)
        assert producer.outcomes.next_ticket == 0


def test_large_records_get_the_room_they_need(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        small = producer.append(b"under way")
        offset = producer.append_wait(b"v" * (5 << 20), timeout=60)
        assert producer.wait(small) == offset - 1
        largest = producer.append(b"w" * RECORD_BYTES_MAX, timeout=60)
        offsets = producer.append_many([b"x" * (6 << 20), b"y"], timeout=60)
        assert producer.wait(largest) == offset + 1 and list(offsets) == [offset + 2, offset + 3]
        for append in (producer.append, producer.try_append, producer.append_wait):
            with pytest.raises(RecordTooLarge):
                append(b"v" * (RECORD_BYTES_MAX + 1))  # type: ignore[operator]
    assert [len(value or b"") for _, value in read_from(quorum, offset)] == [
        5 << 20,
        RECORD_BYTES_MAX,
        6 << 20,
        1,
    ]


def test_a_ring_can_be_large_from_the_start(ring_quorum: LocalQuorum) -> None:
    with ring_quorum.producer(record_bytes_max=3 << 20) as producer:
        sender = producer.sender
        assert sender.record_bytes_max >= 3 << 20
        producer.append_wait(b"v" * (3 << 20), timeout=60)
        assert producer.sender is sender
        with pytest.raises(RecordTooLarge, match="can be sent"):
            producer.try_append(b"v" * (5 << 20))


# --- threads ----------------------------------------------------------------------------------


def test_any_number_of_threads_append_and_wait(quorum: LocalQuorum) -> None:
    committed: dict[int, list[int]] = {}

    def work(name: int) -> None:
        mine = []
        for i in range(300):
            if i % 50 == 7:
                mine += producer.append_many([b"%d:%d" % (name, i)] * 3)
            elif i % 10:
                mine.append(producer.append(b"%d:%d" % (name, i)))
                mine[-1] = producer.wait(mine[-1]) if i % 20 == 3 else -1 - mine[-1]
            else:
                mine.append(producer.append_wait(b"%d:%d" % (name, i)))
        committed[name] = [offset if offset >= 0 else producer.wait(-1 - offset) for offset in mine]

    with quorum.producer() as producer:
        start = producer.append_wait(b"start")
        threads = [threading.Thread(target=work, args=(name,)) for name in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert sorted(committed) == list(range(6))
    found = dict(read_from(quorum, start + 1))
    assert len(found) == sum(map(len, committed.values()))
    for name, offsets in committed.items():
        assert offsets == sorted(set(offsets)), "a thread's records are in its order"
        numbers = [int((found[offset] or b"").split(b":")[1]) for offset in offsets]
        assert all((found[offset] or b"").startswith(b"%d:" % name) for offset in offsets)
        assert numbers == sorted(numbers) and set(numbers) == set(range(300))


def test_callbacks_come_in_order_for_everything_and_from_one_thread(quorum: LocalQuorum) -> None:
    seen: list[TicketedBatch] = []
    threads: set[int] = set()

    def note(batch: TicketedBatch) -> None:
        threads.add(threading.get_ident())
        seen.append(batch)

    with quorum.producer() as producer:
        producer.append_wait(b"before it was asked for")
        producer.on_commit(note)
        other: list[TicketedBatch] = []
        producer.on_commit(other.append)
        for i in range(3000):
            producer.append(b"%d" % i)
            if i % 1000 == 999:
                time.sleep(0.02)  # it goes to sleep, and is woken
        wait_until(lambda: seen and seen[-1].end_ticket == 3001)
        assert (
            seen[0].first_ticket == 1 and len(threads) == 1 and threads != {threading.get_ident()}
        )
        assert [b.end_ticket for b in seen[:-1]] == [b.first_ticket for b in seen[1:]]
        for batch in seen:
            assert batch.error is None and producer.wait(batch.first_ticket) == batch.base_offset
            assert (
                producer.wait(batch.end_ticket - 1)
                == batch.base_offset + batch.end_ticket - batch.first_ticket - 1
            )
        assert repr(seen[0]).startswith("TicketedBatch(first_ticket=1, ")
    assert other == seen


def test_a_slow_or_broken_callback_delays_nobody(
    quorum: LocalQuorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, seen, said = threading.Event(), [], []
    monkeypatch.setattr(threading, "excepthook", said.append)

    def slow(batch: TicketedBatch) -> None:
        seen.append(batch)
        gate.wait(20)
        raise ZeroDivisionError("of the user's own making")

    with quorum.producer() as producer:
        producer.on_commit(slow)
        for _ in range(20):
            producer.append_wait(b"v", timeout=20)
        producer.append(b"a")
        producer.append(b"stays open")
        wait_until(lambda: producer.resolved == 22)
        assert len(seen) == 1
        gate.set()
        wait_until(lambda: seen[-1].end_ticket == 22)
    assert len(said) == len(seen) and {each.exc_type for each in said} == {ZeroDivisionError}
    assert {each.thread.name for each in said} == {"kraftfast-callbacks"}


def test_closing_waits_for_what_is_under_way_and_calls_back(quorum: LocalQuorum) -> None:
    seen: list[TicketedBatch] = []
    producer = quorum.producer()
    producer.on_commit(seen.append)
    tickets = [producer.append(b"%d" % i) for i in range(1000)]
    producer.close(timeout=30)
    assert producer.resolved == 1000 and seen[-1].end_ticket == 1000
    assert producer.wait(tickets[-1]) == seen[-1].base_offset + 999 - seen[-1].first_ticket
    for call in (producer.append, producer.try_append, producer.append_wait):
        with pytest.raises(Closed):
            call(b"v")  # type: ignore[operator]
    with pytest.raises(Closed):
        producer.append_many([b"v"])
    with pytest.raises(Closed):
        producer.on_commit(seen.append)
    producer.close()
    assert not [t for t in threading.enumerate() if t in (producer._keeper, producer._caller)]


def test_tickets_that_were_never_handed_out(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        for ticket in (0, -1, 5):
            with pytest.raises(LocalError, match="never handed out"):
                producer.wait(ticket)
        producer.flush()


def test_a_wait_without_time_says_that_the_outcome_is_unknown(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        tickets = [producer.append(b"v" * 60_000) for _ in range(40)]
        with pytest.raises(UnknownOutcome):
            producer.wait(tickets[-1], timeout=0)
        assert producer.wait(tickets[-1], timeout=30) > 0


def test_a_leader_that_takes_no_more_producers_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not that no replica runs, nor that none leads."""

    def offer(_connector: Any, directory: str, *_settings: Any) -> int:
        if directory == "leader":
            raise RefusedByReplica("process 7 has 384 connections of kind producer already")
        return 1

    monkeypatch.setattr(LocalConnector, "_offer", offer)
    for directories in ({1: "leader"}, {1: "leader", 2: "other"}, {2: "other", 1: "leader"}):
        connector = LocalConnector(directories, 1000, 8)
        with pytest.raises(NoQuorum, match="replica 1 takes no more producers: process 7 has 384"):
            connector.connect(Outcomes(), 0, time.monotonic() + 1)


def test_one_producer_too_many_is_told_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """It waited for its whole timeout, and asked 200 times a second; each is a line somewhere."""
    asked = 0

    def offer(*_settings: Any) -> int:
        nonlocal asked
        asked += 1
        raise RefusedByReplica("process 7 has 384 connections of kind producer already")

    async def in_a_loop(producer: Producer) -> None:
        with pytest.raises(NoQuorum, match="^replica 1 takes no more producers: .*; close some"):
            await AsyncProducer(producer, 1000)

    monkeypatch.setattr(LocalConnector, "_offer", offer)
    connector = LocalConnector({1: "leader"}, 1000, 8)
    with pytest.raises(NoQuorum, match="^replica 1 takes no more producers: .*; close some"):
        Producer(connector, 1000)
    assert 1 < asked < 8, "a slot that was given up a moment ago is waited for"
    with pytest.raises(NoQuorum, match="takes no more producers"):
        Producer(connector, 1000, connect=False).append(b"x", timeout=1000)
    asyncio.run(in_a_loop(Producer(connector, connect=False)))
    assert asked < 24
