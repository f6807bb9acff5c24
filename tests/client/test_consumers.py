"""Both consumers against real workers, and the one over TCP against servers that misbehave."""

from __future__ import annotations

import contextlib
import signal
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

import kraftfast
from kraftfast.client.cluster import Cluster
from kraftfast.client.consumer import remote_consumer
from kraftfast.client.consumer.consumer import RecordStream
from kraftfast.client.consumer.remote_consumer import RemoteConsumer
from kraftfast.client.quorum_base import Quorum
from kraftfast.errors import (
    Closed,
    CorruptBatch,
    ErrorCode,
    KraftfastError,
    NoQuorum,
    OffsetOutOfRange,
    RequestRefused,
    TimedOut,
)
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire.fetch import PartitionFetched
from tests.client.kit import ScriptedServer, encode, wait_until

# --- against real workers ---------------------------------------------------------------------


@pytest.fixture(params=["of this host", "over TCP"])
def readable(
    request: pytest.FixtureRequest, socket_quorum: LocalQuorum
) -> Iterator[tuple[LocalQuorum, Any]]:
    """A quorum, and what makes consumers of it."""
    if request.param == "of this host":
        yield socket_quorum, socket_quorum.consumer
    else:
        with kraftfast.connect(socket_quorum.addresses.values()) as quorum:
            yield socket_quorum, quorum.consumer


@pytest.mark.processes
def test_everything_that_was_committed_comes_once_and_in_order(
    readable: tuple[LocalQuorum, Any],
) -> None:
    quorum, consume = readable
    with quorum.producer() as producer:
        offsets = producer.append_many([b"%d" % i + b"v" * (i % 300) for i in range(20_000)])
        large = producer.append_wait(b"L" * (3 << 20))
        with consume(offsets[100]) as consumer:
            first = [(record.offset, record.value) for record in consumer]
            assert first[:-1] == [
                (offsets[i], b"%d" % i + b"v" * (i % 300)) for i in range(100, 20_000)
            ]
            assert first[-1] == (large, b"L" * (3 << 20))
            assert consumer.position == large + 1 == consumer.high_watermark
            assert list(consumer) == []
            more = producer.append_wait(b"more")
            assert [(record.offset, record.value) for record in consumer] == [(more, b"more")]
            consumer.position = offsets[5]
            assert [record.offset for record in consumer.read(3)] == [
                offsets[5],
                offsets[6],
                offsets[7],
            ]
            assert [record.offset for record in consumer.read(1)] == [offsets[8]], (
                "in the middle of a batch"
            )


@pytest.mark.processes
def test_control_records_are_passed_over(readable: tuple[LocalQuorum, Any]) -> None:
    _, consume = readable
    with consume(0) as consumer:
        batches = list(consumer.batches())
        assert batches[0].is_control and batches[0].base_offset == 0
        assert [b.base_offset for b in batches[1:]] == [b.end_offset for b in batches[:-1]]
        assert consumer.position == batches[-1].end_offset
        consumer.position = 0
        assert next(iter(consumer)).offset > 0


@pytest.mark.processes
def test_reading_waits_for_what_is_not_there_yet(readable: tuple[LocalQuorum, Any]) -> None:
    quorum, consume = readable
    with quorum.producer() as producer:
        end = producer.append_wait(b"end") + 1
        with consume(end) as consumer:
            began = time.monotonic()
            assert not consumer.wait(0.2) and 0.1 < time.monotonic() - began < 5.0
            timer = threading.Timer(0.3, lambda: producer.append_many([b"a", b"b", b"c"]))
            timer.start()
            assert consumer.wait(20.0)
            assert [record.value for record in consumer.read(2)] == [b"a", b"b"]
            with pytest.raises(TimedOut, match="1 of 2 "):
                consumer.read(2, timeout=0.2)
            assert consumer.position == end + 2, "nothing was lost by it"
            assert [record.value for record in consumer.read(1)] == [b"c"]
            assert consumer.read(0) == []


@pytest.mark.processes
def test_an_offset_beyond_all_that_is_committed_is_refused(
    readable: tuple[LocalQuorum, Any],
) -> None:
    """Not read as an empty log; read() and follow wait for it, and so does who has waited."""
    quorum, consume = readable
    with quorum.producer() as producer:
        end = producer.append_wait(b"the last") + 1
        with consume(end) as consumer:
            assert list(consumer) == []
        with consume(end + 2) as consumer:
            with pytest.raises(OffsetOutOfRange, match=f"{end + 2} is beyond .* {end}$") as caught:
                list(consumer)
            assert caught.value.log_start_offset == -1
            assert list(consumer.batches()) == []
            with pytest.raises(TimedOut):
                consumer.read(1, timeout=0.01)
            producer.append_many([b"1", b"2", b"3"])
            assert [record.value for record in consumer] == [b"3"]
        beyond = end + 4
        with consume(beyond, follow=True) as consumer:
            timer = threading.Timer(0.3, producer.append_many, [[b"4", b"5"]])
            timer.start()
            assert next(iter(consumer)).value == b"5"
            timer.join()


@pytest.mark.processes
def test_following_goes_on_for_ever(readable: tuple[LocalQuorum, Any]) -> None:
    quorum, consume = readable
    with quorum.producer() as producer:
        end = producer.append_wait(b"end") + 1
        found: list[bytes] = []

        def follow() -> None:
            with consume(end, follow=True) as consumer:
                for record in consumer:
                    found.append(record.value)
                    if record.value == b"stop":
                        return

        thread = threading.Thread(target=follow)
        thread.start()
        for i in range(30):
            producer.append_wait(b"%d" % i)
        producer.append_wait(b"stop")
        thread.join(30)
        assert found == [b"%d" % i for i in range(30)] + [b"stop"]


@pytest.mark.processes
def test_a_closed_consumer_says_so(readable: tuple[LocalQuorum, Any]) -> None:
    _, consume = readable
    consumer = consume(0)
    assert isinstance(consumer, RecordStream)
    consumer.close()
    for call in (
        lambda: list(consumer),
        lambda: consumer.wait(1),
        lambda: consumer.read(1),
        lambda: consumer.high_watermark,
    ):
        with pytest.raises(Closed):
            call()


@pytest.mark.processes
def test_a_quorum_by_its_addresses(socket_quorum: LocalQuorum) -> None:
    host, port = socket_quorum.addresses[2]
    with kraftfast.connect(f"{host}:{port}") as quorum:
        assert isinstance(quorum, Quorum) and quorum.topic == METADATA_TOPIC
        with quorum.producer() as producer:
            offset = producer.append_wait(b"by address")
        with quorum.consumer(offset) as consumer:
            assert consumer.read(1)[0].value == b"by address"
        found = quorum.describe()
    assert found.leader_id == socket_quorum.leader() and found.epoch >= 1
    assert found.high_watermark >= offset + 1
    assert [voter.id for voter in found.voters] == [1, 2, 3] and found.observers == ()
    for voter in found.voters:
        assert [(e.host, e.port) for e in voter.endpoints] == [socket_quorum.addresses[voter.id]]
        assert 0 < voter.log_end_offset <= offset + 10
    with pytest.raises(RequestRefused):
        kraftfast.connect(f"{host}:{port}", topic="another")


@pytest.mark.processes
def test_what_was_acknowledged_is_read_though_the_replica_that_is_read_from_lags(
    ring_quorum: LocalQuorum,
) -> None:
    leader = ring_quorum.leader()
    follower = next(id for id in ring_quorum.directories if id != leader)
    with ring_quorum.producer() as producer, ring_quorum.consumer(replica=follower) as consumer:
        end = producer.append_wait(b"known to all") + 1
        assert consumer.wait(10) and consumer.position == 0
        consumer.directories, consumer.position = ring_quorum.directories, end
        ring_quorum.kill(follower, signal.SIGSTOP)
        try:
            for value in (b"known to the leader", b"and this"):
                producer.append_wait(value)
                assert [record.value for record in consumer] == [value]
        finally:
            ring_quorum.kill(follower, signal.SIGCONT)


@pytest.mark.processes
def test_reading_goes_on_with_another_leader(mortal_quorum: LocalQuorum) -> None:
    addresses = mortal_quorum.addresses.values()
    consumer = kraftfast.connect(addresses).consumer() if addresses else mortal_quorum.consumer()
    with mortal_quorum.producer() as producer, consumer:
        consumer.position = producer.append_many([b"%d" % i for i in range(1000)])[0]
        assert [record.value for record in consumer.read(500)] == [b"%d" % i for i in range(500)]
        leader = mortal_quorum.leader()
        assert leader is not None
        mortal_quorum.kill(leader)
        with contextlib.suppress(kraftfast.errors.UnknownOutcome):  # a socket took it, perhaps
            producer.append_wait(b"lost", timeout=20)
        after = producer.append_wait(b"after", timeout=20)
        found = [(record.offset, record.value) for record in consumer.read(501, timeout=20)]
        if found[-1][1] == b"lost":
            found += [(record.offset, record.value) for record in consumer.read(1, timeout=20)]
        assert [value for _, value in found[:500]] == [b"%d" % i for i in range(500, 1000)]
        assert found[-1] == (after, b"after")


# --- against servers that misbehave -----------------------------------------------------------


class Log:
    """What a scripted server answers Fetches from: batches by their base offset."""

    def __init__(self, server: ScriptedServer, *batches: bytes, high_watermark: int = 100) -> None:
        self.records, self.high_watermark, self.asked = b"".join(batches), high_watermark, 0
        self.faults: list[Any] = []
        server.on_fetch = self.answer

    def answer(self, request: Any) -> Any:
        self.asked += 1
        fetched = PartitionFetched(
            topic=request.topic, topic_id=request.topic_id, high_watermark=self.high_watermark
        )
        if self.faults and (fault := self.faults.pop(0)) is not None:
            return fault(fetched) if callable(fault) else fault
        fetched.records = self.records if request.fetch_offset < 3 else b""
        return fetched


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    server = ScriptedServer()
    yield server
    server.close()


def consumer_of(server: ScriptedServer, offset: int = 0, **settings: Any) -> RemoteConsumer:
    return RemoteConsumer(Cluster([server.address], METADATA_TOPIC), offset, **settings)


def with_code(code: int, **fields: Any) -> Any:
    def change(fetched: PartitionFetched) -> PartitionFetched:
        fetched.partition_error_code = code
        for name, value in fields.items():
            setattr(fetched, name, value)
        return fetched

    return change


def test_a_batch_that_is_cut_off_is_fetched_again_later(server: ScriptedServer) -> None:
    whole = encode([b"a", b"b"])
    Log(server, whole, encode([b"c"], base_offset=2)[:-1])
    assert [record.value for record in consumer_of(server).read(2)] == [b"a", b"b"]


def test_nothing_beyond_the_high_watermark_is_handed_out(server: ScriptedServer) -> None:
    Log(server, encode([b"a", b"b"]), encode([b"c"], base_offset=2), high_watermark=2)
    assert [record.value for record in consumer_of(server)] == [b"a", b"b"]


def test_each_answer_is_bounded_by_its_own_high_watermark(server: ScriptedServer) -> None:
    log = Log(server, encode([b"a", b"b"]))
    consumer = consumer_of(server)
    assert [record.value for record in consumer.read(2)] == [b"a", b"b"]
    assert consumer.high_watermark == 100
    # A controller of Kafka's that was deposed and does not know it: I20.
    log.records, log.high_watermark = encode([b"cut"], base_offset=2), 2
    for connection in server.connections:
        connection.close()
    assert [record.value for record in consumer] == [] and consumer.position == 2


def test_what_does_not_check_is_never_handed_out(server: ScriptedServer) -> None:
    good = encode([b"a", b"b"])
    for bad in (good[:-2] + b"X\0", encode([b"c"], base_offset=1), b"\xff" * 200):
        Log(server, good if bad[-2:] != b"X\0" else b"", bad)
        with pytest.raises(CorruptBatch):
            list(consumer_of(server))


@pytest.mark.parametrize(
    "code",
    [ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_TOPIC_ID],
)
def test_another_leader_is_looked_for(server: ScriptedServer, code: int) -> None:
    log = Log(server, encode([b"a", b"b", b"c"]))
    log.faults = [with_code(code), with_code(code)]
    assert [record.value for record in consumer_of(server)] == [b"a", b"b", b"c"] and log.asked >= 3


def test_a_damaged_log_is_no_end(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another replica is to lead soon; where none has the records, that is said."""
    damaged = with_code(ErrorCode.CORRUPT_MESSAGE)
    log = Log(server, encode([b"a", b"b"]), encode([b"c"], base_offset=2))
    log.faults = [damaged] * 3
    assert [record.value for record in consumer_of(server)] == [b"a", b"b", b"c"]
    monkeypatch.setattr(remote_consumer, "SEARCH_S", 0.5)
    log.faults = [damaged] * 1000
    for call in (list, lambda consumer: consumer.wait(None)):
        with pytest.raises((CorruptBatch, NoQuorum), match="damaged at offset 0"):
            call(consumer_of(server, timeout=0.3))


def test_a_hang_up_and_silence_are_gone_around(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_consumer, "GRACE_S", 0.3)
    log = Log(server, encode([b"a", b"b", b"c"]))
    consumer = consumer_of(server)
    for connection in server.connections:
        connection.close()
    log.faults = [lambda fetched: None]  # no answer: it counts as gone after a while
    assert [record.value for record in consumer.read(3, timeout=20)] == [b"a", b"b", b"c"]


def test_a_silent_leader_is_left(server: ScriptedServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote_consumer, "GRACE_S", 0.3)
    log = Log(server, encode([b"a", b"b", b"c"]))
    log.faults = [lambda fetched: None]
    assert [record.value for record in consumer_of(server).read(3)] == [b"a", b"b", b"c"]


def test_a_log_that_starts_later_or_ends_earlier(server: ScriptedServer) -> None:
    log = Log(server, encode([b"a", b"b", b"c"]))
    out_of_range = ErrorCode.OFFSET_OUT_OF_RANGE
    log.faults = [with_code(out_of_range, log_start_offset=50)]
    with pytest.raises(OffsetOutOfRange) as caught:
        list(consumer_of(server))
    assert caught.value.log_start_offset == 50
    log.faults = [with_code(out_of_range, log_start_offset=0)] * 3
    consumer = consumer_of(server, 1)  # a new leader does not know yet how much is committed
    assert not consumer.wait(0.01)
    assert [record.value for record in consumer.read(2)] == [b"b", b"c"]


def test_a_refusal_is_passed_on_and_no_leader_is_said_in_time(server: ScriptedServer) -> None:
    log = Log(server)
    log.faults = [with_code(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)]
    with pytest.raises(RequestRefused) as caught:
        list(consumer_of(server))
    assert caught.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    consumer = consumer_of(server, timeout=0.3)
    server.leader = (-1, ("", 0))
    log.faults = [with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    began = time.monotonic()
    with pytest.raises(NoQuorum):
        list(consumer)
    with pytest.raises(NoQuorum):
        consumer_of(server, timeout=0.2)
    assert time.monotonic() - began < 5.0


def test_a_consumer_that_goes_back_reads_again_what_is_there(server: ScriptedServer) -> None:
    Log(server, encode([b"a", b"b"]), encode([b"c"], base_offset=2))
    consumer = consumer_of(server)
    for _ in range(2):
        assert [record.value for record in consumer.read(3)] == [b"a", b"b", b"c"]
        consumer.position = 0


def test_what_is_held_is_bounded(server: ScriptedServer) -> None:
    log = Log(server, encode([b"v" * 1000] * 3))
    consumer = consumer_of(server, fetch_bytes=5000)
    requests: list[Any] = []
    answer, server.on_fetch = (
        server.on_fetch,
        lambda request: (requests.append(request), answer(request))[1],
    )
    stream = iter(consumer)
    next(stream)
    time.sleep(0.2)
    assert len(requests) <= 2, "one answer is read, one is fetched ahead"
    assert all(request.max_bytes == request.partition_max_bytes == 5000 for request in requests)
    assert {request.replica_id for request in requests} == {-1} and log.asked == len(requests)


def test_a_wait_without_time_asks_all_the_same(server: ScriptedServer) -> None:
    """It said that nothing was there, and had not asked."""
    log = Log(server, encode([b"a", b"b"]), high_watermark=2)
    consumer = consumer_of(server)
    assert consumer.wait(0)
    assert [record.value for record in consumer.read(2)] == [b"a", b"b"]
    assert not consumer.wait(0)
    log.records += encode([b"c"], base_offset=2)
    log.high_watermark = 3
    assert consumer.wait(timeout=-1)
    assert [record.value for record in consumer] == [b"c"]


def test_a_wait_without_time_ends_where_no_server_answers(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(remote_consumer, "GRACE_S", 0.3)
    Log(server, encode([b"a"]))
    consumer = consumer_of(server)
    server.mute = True
    began = time.monotonic()
    assert not consumer.wait(0)
    server.close()
    with pytest.raises(NoQuorum):
        consumer.wait(0)
    assert time.monotonic() - began < 5.0


class Following:
    """A thread that waits for a record without an end, and what that raised or returned."""

    def __init__(self, consumer: RemoteConsumer) -> None:
        self.consumer, self.found = consumer, list[Any]()
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self.found.append(self.consumer.wait(None))
        except KraftfastError as error:
            self.found.append(error)

    def result(self) -> Any:
        self.thread.join(10)
        assert self.found, "it waits for ever"
        return self.found[0]


def test_a_wait_without_end_ends_where_no_server_answers(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As that of a consumer of this host. ``consume --follow`` was silent for ever."""
    monkeypatch.setattr(remote_consumer, "SEARCH_S", 0.3)
    log = Log(server)
    log.faults = [lambda fetched: None]
    consumer = consumer_of(server, timeout=0.2)
    following = Following(consumer)
    wait_until(lambda: log.asked)
    began = time.monotonic()
    server.close()
    assert isinstance(following.result(), NoQuorum) and time.monotonic() - began >= 0.3


def test_a_wait_without_end_goes_on_while_servers_answer(
    server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """None leads for a while: as with replicas of this host, it waits."""
    monkeypatch.setattr(remote_consumer, "SEARCH_S", 0.3)
    log = Log(server)
    consumer = consumer_of(server, timeout=0.2)
    leads, server.leader = server.leader, (-1, ("", 0))
    log.faults = [with_code(ErrorCode.NOT_LEADER_OR_FOLLOWER)]
    following = Following(consumer)
    following.thread.join(1.0)
    assert not following.found
    log.records, server.leader = encode([b"a"]), leads
    assert following.result() is True
    assert [record.value for record in consumer] == [b"a"]
