"""Batches that a producer compresses: every codec, every way in, and what interrupts it."""

from __future__ import annotations

import asyncio
import threading
import zlib
from collections.abc import Callable
from typing import Any

import pytest

from kraftfast.client.producer.aio import AsyncProducer
from kraftfast.client.producer.producer import Producer
from kraftfast.errors import Closed, InvalidOption, LocalError, PeerGone
from kraftfast.quorum import LocalQuorum
from kraftfast.record.compression import Compressor
from kraftfast.record.shapes import Codec
from kraftfast.types import METADATA_TOPIC
from tests.client.kit import wait_until

pytestmark = pytest.mark.processes

CODECS = ["zstd", "lz4", "gzip", "snappy"]
VALUES = [b'{"number": %d, "text": "the same in each of them"}' % n for n in range(2000)]


def read_from(quorum: LocalQuorum, offset: int) -> list[Any]:
    with quorum.consumer(offset) as consumer:
        return list(consumer)


@pytest.mark.parametrize("codec", CODECS)
def test_every_record_comes_back_and_less_is_sent(quorum: LocalQuorum, codec: str) -> None:
    with quorum.producer(compression=codec) as producer:
        offsets = list(producer.append_many(VALUES))
        assert producer.sender is not None
        assert producer.sender.bytes_sent < sum(map(len, VALUES)) / 2
        tickets = [
            producer.append(value, key=b"key", headers=[("h", b"1")], timestamp=7)
            for value in VALUES[:500]
        ]
        offsets += [producer.wait(ticket) for ticket in tickets]
    records = read_from(quorum, offsets[0])
    assert [record.offset for record in records] == offsets
    assert [record.value for record in records] == VALUES + VALUES[:500]
    fields = {(record.key, record.headers, record.timestamp) for record in records[2000:]}
    assert fields == {(b"key", (("h", b"1"),), 7)}


def test_what_cannot_be_made_smaller_is_sent_as_it_is(quorum: LocalQuorum) -> None:
    with quorum.producer(compression="zstd", compression_level=1) as producer:
        offset = producer.append_wait(b"x")
        assert producer.sender is not None and producer.sender.bytes_sent < 100
    assert read_from(quorum, offset)[0].value == b"x"


def test_with_asyncio(quorum: LocalQuorum) -> None:
    async def append(producer: AsyncProducer) -> list[int]:
        async with producer:
            return await asyncio.gather(*(producer.append_wait(value) for value in VALUES))

    async def run() -> list[int]:
        return await append(quorum.async_producer(compression="lz4", compression_level=3))

    offsets = asyncio.run(run())
    assert [record.value for record in read_from(quorum, offsets[0])] == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_kafka_clients_read_it(socket_quorum: LocalQuorum, codec: str) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    with socket_quorum.producer(compression=codec) as producer:
        offset = producer.append_many(VALUES)[0]
    servers = [f"{host}:{port}" for host, port in socket_quorum.addresses.values()]
    theirs = kafka.KafkaConsumer(bootstrap_servers=servers, consumer_timeout_ms=30_000)
    theirs.assign([kafka.TopicPartition(METADATA_TOPIC, 0)])
    theirs.seek(kafka.TopicPartition(METADATA_TOPIC, 0), offset)
    assert [next(theirs).value for _ in VALUES] == VALUES
    theirs.close()


def test_large_records_get_the_room_they_need(quorum: LocalQuorum) -> None:
    values = [b"large" * 500_000, b"small", b"\0" * 3_000_000]
    with quorum.producer(compression="zstd") as producer:
        offsets = [producer.append_wait(value, timeout=60) for value in values]
    assert [record.value for record in read_from(quorum, offsets[0])] == values


@pytest.mark.parametrize(
    "name, level, told",
    [
        ("brotli", None, "compression is none, gzip, snappy, lz4, zstd, not 'brotli'"),
        (4, None, "compression is none"),
        ("", None, "compression is none"),
        ("zstd", 23, "compression_level must be from -131072 to 22"),
        ("gzip", 0, "compression_level must be from 1 to 9"),
        ("lz4", "fast", "compression_level"),
        ("snappy", 1, "compression snappy has no levels"),
        (None, 3, "compression none has no levels"),
    ],
)
def test_what_is_no_compression_is_refused(
    ring_quorum: LocalQuorum, name: Any, level: Any, told: str
) -> None:
    with pytest.raises(InvalidOption, match=told):
        ring_quorum.producer(compression=name, compression_level=level)


# --- what comes in between ------------------------------------------------------------------------


def compress_by(producer: Producer, compress: Callable[[bytes], bytes]) -> None:
    """Have batches compressed by this, marked as gzip."""
    assert producer.sender is not None
    producer.sender.compressor = Compressor(Codec.GZIP, compress)


def gzip(records: bytes) -> bytes:
    return zlib.compress(records, wbits=31)


class Interrupted:
    """Raises as a signal handler may, so many times, and compresses after that."""

    def __init__(self, times: int) -> None:
        self.left = times

    def __call__(self, records: bytes) -> bytes:
        self.left -= 1
        if self.left >= 0:
            raise KeyboardInterrupt
        return gzip(records)


class Slow:
    """Compresses once it may, and says when it has begun."""

    def __init__(self) -> None:
        self.begun, self.may = threading.Event(), threading.Event()

    def __call__(self, records: bytes) -> bytes:
        self.begun.set()
        assert self.may.wait(30)
        return gzip(records)


def test_a_compressor_that_fails_costs_nothing(quorum: LocalQuorum) -> None:
    def fail(_records: bytes) -> bytes:
        raise MemoryError

    with quorum.producer() as producer:
        compress_by(producer, fail)
        offsets = list(producer.append_many(VALUES[:100])) + [producer.append_wait(VALUES[100])]
    assert [record.value for record in read_from(quorum, offsets[0])] == VALUES[:101]


def test_an_interrupt_while_it_compresses_loses_and_doubles_nothing(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        compress_by(producer, Interrupted(3))
        with pytest.raises(KeyboardInterrupt):
            producer.append(VALUES[0])
        with pytest.raises(KeyboardInterrupt):
            producer.append_many(VALUES[1:100])  # its first step sends what is open
        with pytest.raises(KeyboardInterrupt):
            producer.flush()
        producer.flush()
        offset = producer.wait(0)
        producer.append_many(VALUES[100:200])
    found = [record.value for record in read_from(quorum, offset)]
    assert found == VALUES[:1] + VALUES[100:200]


@pytest.mark.parametrize("many", [False, True])
def test_others_append_once_it_has_compressed(quorum: LocalQuorum, many: bool) -> None:
    slow = Slow()
    with quorum.producer() as producer:
        compress_by(producer, slow)
        first = threading.Thread(
            target=lambda: producer.append_many(VALUES[:50]) if many else producer.append(VALUES[0])
        )
        first.start()
        assert slow.begun.wait(30)
        others = [
            threading.Thread(target=producer.append_wait, args=(value,)) for value in VALUES[50:60]
        ]
        for other in others:
            other.start()
        slow.may.set()
        for thread in (first, *others):
            thread.join(30)
        producer.flush()
        offset = producer.wait(0)
    found = [record.value for record in read_from(quorum, offset)]
    assert found[: 50 if many else 1] == VALUES[: 50 if many else 1]
    assert sorted(found[50 if many else 1 :]) == VALUES[50:60]


def test_a_leader_that_is_lost_while_it_compresses(mortal_quorum: LocalQuorum) -> None:
    """Another thread gives the sender up, and the next leader has the batch, once."""
    slow = Slow()
    with mortal_quorum.producer() as producer:
        offset = producer.append_wait(b"before")
        compress_by(producer, slow)
        first = threading.Thread(target=producer.append, args=(VALUES[0],))
        first.start()
        assert slow.begun.wait(30)
        old = producer.sender
        mortal_quorum.kill(mortal_quorum.wait_leader(30))
        other = threading.Thread(target=producer.append_wait, args=(VALUES[1],), daemon=True)
        other.start()
        wait_until(lambda: producer.sender is not old, 30)
        slow.may.set()
        first.join(30)
        other.join(30)
        producer.flush()
    found = [record.value for record in read_from(mortal_quorum, offset)]
    assert sorted(found[1:]) == VALUES[:2]


def test_each_sender_compresses_by_itself(mortal_quorum: LocalQuorum) -> None:
    """The thread of one that was given up may still be at it: a context is for one thread."""
    with mortal_quorum.producer(compression="zstd") as producer:
        assert producer.sender is not None
        old = producer.sender.compressor
        producer.sender.fail(PeerGone("enough"))
        producer.append_wait(b"by the next one")
        assert producer.sender is not None and producer.sender.compressor is not None
        assert old is not None and producer.sender.compressor.compress is not old.compress


def test_many_that_are_interrupted_while_they_are_compressed(quorum: LocalQuorum) -> None:
    with quorum.producer() as producer:
        compress_by(producer, Interrupted(1))
        with pytest.raises(KeyboardInterrupt):
            producer.append_many(VALUES[:100])
        offset = producer.append_wait(VALUES[100])
        producer.append_many(VALUES[101:200])
    assert [record.value for record in read_from(quorum, offset)] == VALUES[100:200]


def test_a_producer_that_is_closed_while_it_compresses(quorum: LocalQuorum) -> None:
    slow = Slow()
    producer = quorum.producer()
    compress_by(producer, slow)
    first = threading.Thread(target=producer.append, args=(VALUES[0],))
    first.start()
    assert slow.begun.wait(30)
    producer.close(timeout=0.2)
    slow.may.set()
    first.join(30)
    with pytest.raises(LocalError) as told:
        producer.wait(0)
    assert isinstance(told.value, Closed)


def test_batches_that_are_sent_again_are_appended_once(mortal_quorum: LocalQuorum) -> None:
    with mortal_quorum.producer(compression="zstd", batch_bytes=2000) as producer:
        offset = producer.append_wait(b"before")
        tickets = []
        for number, value in enumerate(VALUES):
            tickets.append(producer.append(value))
            if number == 1000:
                mortal_quorum.kill(mortal_quorum.wait_leader(30))
        for ticket in tickets:
            producer.wait(ticket, timeout=60)
    found = [record.value for record in read_from(mortal_quorum, offset)]
    assert found[1:] == VALUES
