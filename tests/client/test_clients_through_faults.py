"""Kafka's real clients through leaders that are killed and that stall: counted value by value.

Each writes and reads at once. What was acknowledged is in the log, once and in the order of
sending, and its own consumer reads that, once: ``auto.offset.reset=earliest`` would read the whole
log again if a leader said that an offset is out of range.
"""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC
from tests.client.conftest import SMALL
from tests.client.kit import wait_until

pytestmark = pytest.mark.processes
PATIENCE_S = 60.0
VALUES = 60
"""Sent before, during, and after each fault."""

REQUEST_MS = 1500
"""How long a client waits for an answer: a leader that stalls is given up then."""


@pytest.fixture(scope="module")
def faulty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalQuorum]:
    """Three voters over sockets, in reach of Kafka's clients."""
    path = tmp_path_factory.mktemp("faulty")
    with LocalQuorum(path, **SMALL, fetch_timeout_ms=1000, transport="socket") as quorum:
        yield quorum


class Client:
    """A producer and a consumer of one library, at work in threads of their own.

    ``acknowledged``: values in the order of their acknowledgement. ``failed``: of those that were
    not. ``read``: (offset, value), as the consumer got them.
    """

    def __init__(self, servers: list[str], from_offset: int) -> None:
        self.servers, self.from_offset = servers, from_offset
        self.acknowledged: list[bytes] = []
        self.failed: list[Any] = []
        self.read: list[tuple[int, bytes]] = []
        self.ended = threading.Event()
        self.consumer = threading.Thread(target=self._run, daemon=True)
        self.error: BaseException | None = None
        self.consumer.start()

    def _run(self) -> None:
        try:
            self.consume()
        except BaseException as error:  # noqa: BLE001 - told by close
            self.error = error

    def consume(self) -> None:
        """Read until ``ended``."""
        raise NotImplementedError

    def send(self, value: bytes) -> None:
        """Send, without waiting for the acknowledgement."""
        raise NotImplementedError

    def close(self) -> None:
        """End both. Raises what the consumer raised."""
        self.ended.set()
        self.consumer.join(PATIENCE_S)
        assert not self.consumer.is_alive(), "the consumer hangs"
        if self.error is not None:
            raise self.error


class Librdkafka(Client):
    """confluent-kafka."""

    def __init__(self, servers: list[str], from_offset: int) -> None:
        self.kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is missing")
        self.settings = {
            "bootstrap.servers": ",".join(servers),
            "socket.timeout.ms": REQUEST_MS,
            "reconnect.backoff.max.ms": 200,
            "topic.metadata.refresh.interval.ms": 500,
            "log_level": 0,
        }
        self.producer = self.kafka.Producer(
            self.settings
            | {
                "enable.idempotence": True,
                "request.timeout.ms": REQUEST_MS,
                "linger.ms": 1,
                "retry.backoff.ms": 20,
                "topic.metadata.refresh.fast.interval.ms": 50,
            }
        )
        super().__init__(servers, from_offset)

    def consume(self) -> None:
        consumer = self.kafka.Consumer(
            self.settings
            | {
                "group.id": "none",
                "session.timeout.ms": 500,
                "heartbeat.interval.ms": 100,  # its close waits for one
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                "fetch.wait.max.ms": 100,
            }
        )
        consumer.assign([self.kafka.TopicPartition(METADATA_TOPIC, 0, self.from_offset)])
        while not self.ended.is_set():
            message = consumer.poll(0.05)
            self.producer.poll(0)  # reports
            if message is not None and message.error() is None:
                self.read.append((message.offset(), message.value()))
        consumer.close()

    def send(self, value: bytes) -> None:
        def told(error: Any, message: Any) -> None:
            if error is None:
                self.acknowledged.append(message.value())
            else:
                self.failed.append(error)

        self.producer.produce(METADATA_TOPIC, value, partition=0, on_delivery=told)
        self.producer.poll(0)

    def close(self) -> None:
        assert self.producer.flush(PATIENCE_S) == 0
        super().close()


class KafkaPython(Client):
    """kafka-python."""

    def __init__(self, servers: list[str], from_offset: int) -> None:
        self.kafka = pytest.importorskip("kafka", reason="kafka-python is missing")
        self.settings: dict[str, Any] = {
            "bootstrap_servers": servers,
            "request_timeout_ms": REQUEST_MS,
            "retry_backoff_ms": 20,
            "reconnect_backoff_max_ms": 200,
            "metadata_max_age_ms": 500,
        }
        self.producer = self.kafka.KafkaProducer(**self.settings, enable_idempotence=True)
        super().__init__(servers, from_offset)

    def consume(self) -> None:
        consumer = self.kafka.KafkaConsumer(
            **self.settings,
            group_id=None,
            auto_offset_reset="earliest",
            isolation_level="read_committed",  # as librdkafka's without being told
            fetch_max_wait_ms=100,
        )
        partition = self.kafka.TopicPartition(METADATA_TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, self.from_offset)
        while not self.ended.is_set():
            for messages in consumer.poll(50).values():
                self.read += [(message.offset, message.value) for message in messages]
        consumer.close()

    def send(self, value: bytes) -> None:
        future = self.producer.send(METADATA_TOPIC, value, partition=0)
        future.add_callback(lambda _: self.acknowledged.append(value))
        future.add_errback(self.failed.append)

    def close(self) -> None:
        self.producer.close(timeout=PATIENCE_S)
        super().close()


class Aiokafka(Client):
    """aiokafka, producer and consumer in one loop."""

    def __init__(self, servers: list[str], from_offset: int) -> None:
        self.kafka = pytest.importorskip("aiokafka", reason="aiokafka is missing")
        self.loop: asyncio.AbstractEventLoop | None = None
        self.values: asyncio.Queue[bytes] = asyncio.Queue()
        super().__init__(servers, from_offset)
        wait_until(lambda: self.loop is not None or self.error is not None, PATIENCE_S)

    def consume(self) -> None:
        asyncio.run(self._both())

    async def _both(self) -> None:
        settings = {
            "bootstrap_servers": ",".join(self.servers),
            "request_timeout_ms": REQUEST_MS,
            "retry_backoff_ms": 20,
            "metadata_max_age_ms": 500,
        }
        producer = self.kafka.AIOKafkaProducer(**settings, enable_idempotence=True)
        consumer = self.kafka.AIOKafkaConsumer(
            **settings, group_id=None, auto_offset_reset="earliest", fetch_max_wait_ms=100
        )
        await producer.start()
        await consumer.start()
        partition = self.kafka.TopicPartition(METADATA_TOPIC, 0)
        consumer.assign([partition])
        consumer.seek(partition, self.from_offset)
        self.loop = asyncio.get_running_loop()
        tasks = [
            asyncio.create_task(self._write(producer)),
            asyncio.create_task(self._read(consumer)),
        ]
        await asyncio.to_thread(self.ended.wait)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await producer.stop()
        await consumer.stop()

    async def _write(self, producer: Any) -> None:
        while True:
            value = await self.values.get()
            try:
                future = await producer.send(METADATA_TOPIC, value, partition=0)
            except Exception as error:
                self.failed.append(error)
                continue
            future.add_done_callback(lambda done, value=value: self._told(done, value))

    def _told(self, done: Any, value: bytes) -> None:
        if done.exception() is None:
            self.acknowledged.append(value)
        else:
            self.failed.append(done.exception())

    async def _read(self, consumer: Any) -> None:
        while True:
            message = await consumer.getone()
            self.read.append((message.offset, bytes(message.value)))

    def send(self, value: bytes) -> None:
        assert self.loop is not None, self.error
        self.loop.call_soon_threadsafe(self.values.put_nowait, value)


def stall(quorum: LocalQuorum, leader: int) -> None:
    """Stop the leader until another leads, then let it go on: it still believes that it leads."""
    quorum.kill(leader, signal.SIGSTOP)
    try:
        wait_until(lambda: quorum.leader() not in (None, leader), PATIENCE_S)
    finally:
        quorum.kill(leader, signal.SIGCONT)


FAULTS = {"killed": lambda quorum, leader: quorum.kill(leader), "stalled": stall}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("library", [Librdkafka, KafkaPython, Aiokafka])
def test_a_leader_is_lost(faulty: LocalQuorum, library: type[Client], fault: str) -> None:
    servers = [f"{host}:{port}" for host, port in faulty.addresses.values()]
    wait_until(lambda: len(faulty.statuses()) == 3, PATIENCE_S)
    faulty.wait_leader(PATIENCE_S)
    with faulty.producer(timeout=PATIENCE_S) as producer:
        start = producer.append_wait(b"begin %s" % fault.encode(), timeout=PATIENCE_S)
    client = library(servers, start)
    name = f"{library.__name__} {fault}"
    sent: list[bytes] = []

    def send(part: str) -> None:
        for number in range(VALUES):
            sent.append(f"{name} {part} {number}".encode())
            client.send(sent[-1])
            time.sleep(0.001)

    def all_read() -> bool:
        return client.error is not None or len(client.read) >= 1 + len(sent)

    try:
        send("before")
        wait_until(all_read, PATIENCE_S)
        lost = threading.Thread(
            target=FAULTS[fault], args=(faulty, faulty.wait_leader(PATIENCE_S)), daemon=True
        )
        lost.start()
        send("meanwhile")
        lost.join(PATIENCE_S)
        send("after")
        wait_until(lambda: len(client.acknowledged) + len(client.failed) >= len(sent), PATIENCE_S)
        wait_until(all_read, PATIENCE_S)
        send("at last")
        wait_until(all_read, PATIENCE_S)
    finally:
        client.close()
    assert client.failed == []
    assert client.acknowledged == sent
    with faulty.consumer(start) as consumer:
        log = [(record.offset, record.value) for record in consumer]
    assert [value for _, value in log[1:]] == sent, "lost, doubled, or in another order"
    assert client.read == log
