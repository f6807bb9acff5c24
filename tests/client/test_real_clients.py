"""Kafka's real clients, against real workers: they produce and consume what ours do."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from kraftfast.quorum import LocalQuorum
from kraftfast.record.headers import decode_headers
from kraftfast.record.shapes import CODEC_MASK, Codec
from kraftfast.types import METADATA_TOPIC

pytestmark = pytest.mark.processes


def bootstrap(quorum: LocalQuorum) -> str:
    return ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())


def ours(quorum: LocalQuorum, offset: int) -> list[tuple[Any, ...]]:
    with quorum.consumer(offset) as consumer:
        return [(r.offset, r.key, r.value, tuple(r.headers), r.timestamp) for r in consumer]


def test_confluent_kafka_produces_and_consumes(socket_quorum: LocalQuorum) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    delivered: dict[bytes, int] = {}

    def report(error: Any, message: Any) -> None:
        assert error is None
        delivered[message.value()] = message.offset()

    with socket_quorum.producer() as producer:
        start = producer.append_wait(
            b"ours", key=b"k", headers=[("h", b"1")], timestamp=1_700_000_000_000
        )
    theirs = kafka.Producer(
        {"bootstrap.servers": bootstrap(socket_quorum), "acks": "all", "linger.ms": 1}
    )
    for i in range(500):
        theirs.produce(
            METADATA_TOPIC, b"theirs %d" % i, key=b"%d" % i, headers={"n": b"x"}, on_delivery=report
        )
    assert theirs.flush(60) == 0
    found = ours(socket_quorum, start)
    assert {value: offset for offset, _, value, _, _ in found[1:]} == delivered
    assert [(key, value, headers) for _, key, value, headers, _ in found[1:]] == [
        (b"%d" % i, b"theirs %d" % i, (("n", b"x"),)) for i in range(500)
    ]
    no_group = {
        "group.id": "none",
        "session.timeout.ms": 500,
        "heartbeat.interval.ms": 100,
    }  # its close waits for one
    consumer = kafka.Consumer({"bootstrap.servers": bootstrap(socket_quorum)} | no_group)
    try:
        assert consumer.get_watermark_offsets(
            kafka.TopicPartition(METADATA_TOPIC, 0), timeout=30
        ) == (0, start + 501)
        consumer.assign([kafka.TopicPartition(METADATA_TOPIC, 0, start)])
        seen = []
        while len(seen) < 501 and (message := consumer.poll(30)) is not None:
            assert message.error() is None
            seen.append(
                (message.offset(), message.key(), message.value(), tuple(message.headers() or ()))
            )
    finally:
        consumer.close()
    assert seen == [each[:4] for each in found]


def test_kafka_python_produces_and_consumes(socket_quorum: LocalQuorum) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    settings = {"bootstrap_servers": bootstrap(socket_quorum).split(",")}
    theirs = kafka.KafkaProducer(**settings, acks="all", enable_idempotence=False)
    futures = [
        theirs.send(METADATA_TOPIC, b"theirs %d" % i, key=b"%d" % i, partition=0)
        for i in range(200)
    ]
    offsets = [future.get(60).offset for future in futures]
    theirs.close()
    found = ours(socket_quorum, offsets[0])
    assert [(offset, key, value) for offset, key, value, _, _ in found] == [
        (offset, b"%d" % i, b"theirs %d" % i) for i, offset in enumerate(offsets)
    ]
    with socket_quorum.producer() as producer:
        many = producer.append_many([b"ours %d" % i for i in range(1000)])
    consumer = kafka.KafkaConsumer(**settings, group_id=None, consumer_timeout_ms=30_000)
    try:
        partition = kafka.TopicPartition(METADATA_TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, offsets[0])
        seen = []
        for record in consumer:
            seen.append((record.offset, record.value))
            if len(seen) == 1200:
                break
    finally:
        consumer.close()
    assert seen == [(o, b"theirs %d" % i) for i, o in enumerate(offsets)] + [
        (o, b"ours %d" % i) for i, o in enumerate(many)
    ]


def test_confluent_kafka_lists_topics_and_compresses_with_every_codec(
    socket_quorum: LocalQuorum,
) -> None:
    """Its list of topics ends in bytes that belong to no field; without FindCoordinator it sends
    uncompressed what should be lz4."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    admin = pytest.importorskip("confluent_kafka.admin")
    servers = {"bootstrap.servers": bootstrap(socket_quorum)}
    assert list(admin.AdminClient(servers).list_topics(timeout=30).topics) == [METADATA_TOPIC]
    with socket_quorum.producer() as producer:
        begin = producer.append_wait(b"begin") + 1
    for name in ("gzip", "snappy", "lz4", "zstd"):
        producer = kafka.Producer(servers | {"compression.type": name, "linger.ms": 50})
        for _ in range(50):
            producer.produce(METADATA_TOPIC, b"the same words again " * 20, partition=0)
        assert producer.flush(60) == 0
    leader = socket_quorum.wait_leader(30)
    found = []
    with socket_quorum.consumer(begin) as consumer:
        assert [record.value for record in consumer] == [b"the same words again " * 20] * 200
    for path in sorted(Path(socket_quorum.directories[leader]).rglob("*.log")):
        rows = decode_headers(path.read_bytes()).rows
        found += [row["attributes"] & CODEC_MASK for row in rows if row["base_offset"] >= begin]
    assert sorted(set(found)) == [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]


def test_nobody_waits_for_a_group(socket_quorum: LocalQuorum) -> None:
    """Who subscribes as a group is told at once that there are none; who assigns is not."""
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    theirs = pytest.importorskip("kafka", reason="kafka-python is not installed")
    group = {"bootstrap.servers": bootstrap(socket_quorum), "group.id": "g"}
    consumer = kafka.Consumer(group)
    consumer.subscribe([METADATA_TOPIC])
    message = consumer.poll(30)
    assert message is not None and "JoinGroup failed" in message.error().str()
    consumer.close()
    consumer = kafka.Consumer(group)  # that would commit its offsets when it is closed
    with socket_quorum.producer() as producer:
        offset = producer.append_wait(b"assigned")
    consumer.assign([kafka.TopicPartition(METADATA_TOPIC, 0, offset)])
    message = consumer.poll(30)
    assert message is not None and message.error() is None and message.value() == b"assigned"
    consumer.close()
    servers = bootstrap(socket_quorum).split(",")
    grouped = theirs.KafkaConsumer(METADATA_TOPIC, bootstrap_servers=servers, group_id="g")
    with pytest.raises(theirs.errors.UnsupportedVersionError):
        grouped.poll(timeout_ms=30_000)
    grouped.close()


ASSIGNED = """
import sys
from confluent_kafka import Consumer, TopicPartition
consumer = Consumer(
    {"bootstrap.servers": sys.argv[1], "group.id": "g", "auto.offset.reset": "earliest"})
consumer.assign([TopicPartition(sys.argv[2], 0)])
while (message := consumer.poll(30)).error() is None and message.value() != b"assigned":
    pass
print(message.error() or message.value().decode())
consumer.close()
"""


def test_who_assigns_without_an_offset_reads_from_where_it_says(socket_quorum: LocalQuorum) -> None:
    """librdkafka asks its coordinator for the committed offset, and dies if that is not served."""
    pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    with socket_quorum.producer() as producer:
        producer.append_wait(b"assigned")
    program = [sys.executable, "-c", ASSIGNED, bootstrap(socket_quorum), METADATA_TOPIC]
    done = subprocess.run(program, capture_output=True, text=True, timeout=120)
    assert (done.returncode, done.stdout) == (0, "assigned\n"), done.stderr


# --- enable.idempotence -----------------------------------------------------------------------


def exactly(quorum: LocalQuorum, values: list[bytes]) -> None:
    """Those of ``values`` that the log has, in its order, are all of them, once."""
    known = set(values)
    with quorum.consumer(0) as consumer:
        assert [record.value for record in consumer if record.value in known] == values


def test_confluent_kafka_is_idempotent_across_leaders(mortal_quorum: LocalQuorum) -> None:
    kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    if not mortal_quorum.addresses:
        pytest.skip("no listener")
    failed: list[Any] = []
    theirs = kafka.Producer(
        {
            "bootstrap.servers": bootstrap(mortal_quorum),
            "enable.idempotence": True,
            "linger.ms": 1,
            "batch.num.messages": 20,
            "retry.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.fast.interval.ms": 50,
        }
    )
    values = [b"idempotent librdkafka %d" % i for i in range(3000)]
    for number, value in enumerate(values):
        theirs.produce(
            METADATA_TOPIC,
            value,
            partition=0,
            on_delivery=lambda error, _: failed.append(error) if error else None,
        )
        theirs.poll(0)
        if number == len(values) // 2:
            mortal_quorum.kill(mortal_quorum.wait_leader(30))
    assert theirs.flush(60) == 0 and failed == []
    exactly(mortal_quorum, values)


def test_kafka_python_is_idempotent_across_leaders(mortal_quorum: LocalQuorum) -> None:
    kafka = pytest.importorskip("kafka", reason="kafka-python is not installed")
    if not mortal_quorum.addresses:
        pytest.skip("no listener")
    theirs = kafka.KafkaProducer(
        bootstrap_servers=bootstrap(mortal_quorum).split(","),
        enable_idempotence=True,
        batch_size=400,
        retry_backoff_ms=20,
    )
    values = [b"idempotent kafka-python %d" % i for i in range(1000)]
    futures = []
    for number, value in enumerate(values):
        futures.append(theirs.send(METADATA_TOPIC, value, partition=0))
        if number == len(values) // 2:
            mortal_quorum.kill(mortal_quorum.wait_leader(30))
    for future in futures:
        future.get(60)
    theirs.close()
    exactly(mortal_quorum, values)
