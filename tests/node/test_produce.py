"""What a leader answers to Produce over TCP, byte for byte: codes, limits, and who is waited for.

A sole voter with all its doors in this process.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast import limits
from kraftfast.errors import ErrorCode
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.log.small_files import id_ranges
from kraftfast.node.tcp import session, socket_producers, sockets
from kraftfast.node.tcp.sockets import HELD_BYTES_MAX
from kraftfast.record.batch import batch_at, check_batch
from kraftfast.record.pure import crc32c, encode_batch
from kraftfast.record.shapes import (
    DELETE_HORIZON,
    LOG_APPEND_TIME,
    TRANSACTIONAL,
    Codec,
    Record,
)
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire.fetch import PartitionFetch
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest, MetadataRequest
from tests.node.inside import Inside, attached

pytestmark = pytest.mark.processes
VERSION = 9
BATCH = 16  # the kind of a ring's message
NONE = ErrorCode.NONE


class Producing:
    """The leader, and a connection that begins with a Produce."""

    def __init__(self, path: Path) -> None:
        self.it = Inside(path, segment_bytes=32 << 20, stride_bytes=8 << 20)
        self.sock = self.it.connect()

    @property
    def session(self) -> Any:
        """That of the connection, the only one."""
        self.it.until(lambda: self.it.loop.sockets.sessions)
        return next(iter(self.it.loop.sockets.sessions))

    def produce(self, batch: bytes, version: int = VERSION, acks: int = -1) -> Any:
        found = self.it.answers(self.sock, a_produce(batch, version, acks), 1)
        assert found, self.it.raised
        return produce.decode_response(version, found[-1])[1]

    def stored(self, offset: int) -> bytes:
        """The batch at an offset, as the log has it."""
        segment, position, length = self.it.node.log.locate(offset, 1)
        return bytes(segment.file.view(position, position + length))


def a_produce(batch: bytes, version: int = VERSION, acks: int = -1) -> bytes:
    message = produce.PartitionProduce(
        acks=acks, timeout_ms=60_000, topic=METADATA_TOPIC, partition=0, records=batch
    )
    return b"".join(produce.encode_request(version, 1, "producer", message))


def sealed(batch: bytes, at: int, field: str, value: int) -> bytes:
    """A batch with another field in its header, and the CRC that goes with it."""
    data = bytearray(batch)
    struct.pack_into(field, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


def a_batch(*values: bytes, codec: Codec = Codec.NONE, **fields: int) -> bytes:
    records = [Record(i, 1000 + i, None, value) for i, value in enumerate(values or (b"v",))]
    return bytes(encode_batch(records, codec=codec, **fields))


@pytest.fixture
def producing(tmp_path: Path) -> Iterator[Producing]:
    made = Producing(tmp_path)
    try:
        yield made
    finally:
        made.sock.close()
        made.it.close()


# --- codes --------------------------------------------------------------------------------------


def with_block(block: bytes, codec: Codec = Codec.NONE) -> bytes:
    """A batch of one record, or of what should be one."""
    batch = bytearray(a_batch()[:61] + block)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    return sealed(bytes(batch), 21, ">h", codec)


def zstd_batch(data: bytes, window_log: int) -> bytes:
    """A batch whose records are compressed as a stream: the size is not known to the reader."""
    zstandard = pytest.importorskip("zstandard")
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=window_log)
    stream = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    return with_block(stream.compress(data) + stream.flush(), Codec.ZSTD)


def test_what_cannot_pass_is_refused_for_good(producing: Producing) -> None:
    """CORRUPT_MESSAGE makes clients send again until their time is out, so it is for damage."""
    batch = a_batch(b"sound")
    damaged = batch[:-1] + b"?"
    assert producing.produce(damaged).error_code == ErrorCode.CORRUPT_MESSAGE
    counted = sealed(batch, 57, ">i", 7)
    found = producing.produce(counted)
    assert found.error_code == ErrorCode.INVALID_RECORD and found.error_message
    assert found.log_start_offset == 0
    found = producing.produce(zstd_batch(bytes(30 << 20), 20))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert "expands to more than" in found.error_message
    found = producing.produce(zstd_batch(a_batch(bytes(1000))[61:], 28))
    assert found.error_code == ErrorCode.INVALID_RECORD
    assert producing.produce(counted, version=7).error_message is None
    found = producing.produce(batch + batch)
    assert found.error_code == ErrorCode.INVALID_RECORD and "one batch" in found.error_message
    leader_change = Record(0, 1000, struct.pack(">hh", 0, 2), b"v")
    found = producing.produce(bytes(encode_batch([leader_change], control=True)))
    assert found.error_code == ErrorCode.INVALID_RECORD and "control" in found.error_message
    large = with_block(bytes(limits.BATCH_BYTES_MAX))
    assert producing.produce(large).error_code == ErrorCode.MESSAGE_TOO_LARGE
    assert producing.produce(batch).error_code == NONE


@pytest.mark.parametrize(
    "at, field, value, error, text",
    [
        (21, ">h", LOG_APPEND_TIME, ErrorCode.INVALID_TIMESTAMP, "LogAppendTime"),
        (21, ">h", TRANSACTIONAL, ErrorCode.INVALID_RECORD, "transactions"),
        (21, ">h", DELETE_HORIZON, ErrorCode.INVALID_RECORD, "delete horizon"),
        (43, ">q", 5, ErrorCode.INVALID_RECORD, "producer id"),
        (43, ">q", -2, ErrorCode.INVALID_RECORD, "producer id"),
    ],
)
def test_what_is_refused_says_what_is_wrong(
    producing: Producing, at: int, field: str, value: int, error: ErrorCode, text: str
) -> None:
    found = producing.produce(sealed(a_batch(), at, field, value))
    assert found.error_code == error and text in (found.error_message or "")


def test_the_largest_windows_of_zstd_are_taken(producing: Producing) -> None:
    batch = zstd_batch(a_batch(bytes(range(256)) * 100)[61:], 27)
    assert producing.produce(batch).error_code == NONE


@pytest.mark.parametrize("acks", [2, -2, 100])
def test_acks_that_do_not_exist(producing: Producing, acks: int) -> None:
    assert producing.produce(a_batch(), acks=acks).error_code == ErrorCode.INVALID_REQUIRED_ACKS


@pytest.mark.parametrize(
    "epoch, sequence, error",
    [
        (0, 5, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (-1, 0, ErrorCode.INVALID_RECORD),
        (0, 1, ErrorCode.UNKNOWN_PRODUCER_ID),
    ],
)
def test_the_log_start_is_told(
    producing: Producing, epoch: int, sequence: int, error: ErrorCode
) -> None:
    """Kafka's Java producer sends again, unchanged, as long as it is not."""
    known = error is not ErrorCode.UNKNOWN_PRODUCER_ID
    if known:
        first = a_batch(producer_id=7, producer_epoch=0, base_sequence=0)
        assert producing.produce(first).error_code == NONE
    batch = a_batch(producer_id=7, producer_epoch=epoch, base_sequence=sequence)
    found = producing.produce(batch)
    assert (found.error_code, found.log_start_offset) == (error, 0)


@pytest.mark.parametrize("id", [id_ranges.CLOCK_ID + 5, id_ranges.leader_id(1 << 20, 1)])
@pytest.mark.parametrize("software", ["librdkafka", "apache-kafka-java"])
def test_ids_that_were_never_given_are_refused_in_every_epoch(
    producing: Producing, software: str, id: int
) -> None:
    """Made by a clock in an earlier version, or by another quorum. Clients raise their own epoch.

    librdkafka is ended by the second UNKNOWN_PRODUCER_ID; Java's would send until its time is out.
    """
    body = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    hello = frame.encode_request(ApiKey.API_VERSIONS, 3, 2, "producer", body)
    assert len(producing.it.answers(producing.sock, hello, 2)) == 1
    ends = software.startswith("apache") and ErrorCode.PRODUCER_FENCED
    for epoch, error in ((0, None), (1, ends), (7, ends)):
        batch = a_batch(producer_id=id, producer_epoch=epoch, base_sequence=0)
        found = producing.produce(batch)
        assert found.error_code == (error or ErrorCode.UNKNOWN_PRODUCER_ID)
        assert found.error_message == f"this quorum gave no producer the id {id}: begin again"
        assert producing.produce(batch, version=7).error_message is None
    given = a_batch(producer_id=7, producer_epoch=3, base_sequence=0)
    assert producing.produce(given).error_code == NONE


# --- MaxTimestamp -------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_largest_timestamp_is_that_of_the_records(producing: Producing, codec: Codec) -> None:
    """A producer that tells another one would lead every search by time astray."""
    batch = a_batch(*[bytes(500)] * 3, codec=codec)
    for told in (0, 1001, 2**62, -1):
        offset = producing.produce(sealed(batch, 35, ">q", told)).base_offset
        stored = producing.stored(offset)
        assert check_batch(stored).max_timestamp == 1002
        assert stored[61:] == batch[61:]
    offset = producing.produce(batch).base_offset
    assert producing.stored(offset)[16:] == batch[16:]


# --- limits -------------------------------------------------------------------------------------


def test_a_connection_may_begin_with_a_large_request(producing: Producing) -> None:
    """Not every client asks for ApiVersions first."""
    assert producing.produce(a_batch(bytes(1 << 20))).error_code == NONE


def test_what_is_no_request_of_ours_stays_small(producing: Producing) -> None:
    for header in (
        struct.pack(">hhi", 999, 0, 1),
        struct.pack(">hhi", ApiKey.PRODUCE, 99, 1),
        struct.pack(">hhi", ApiKey.API_VERSIONS, 3, 1),
    ):
        sock = producing.it.connect()
        for piece in (struct.pack(">i", 8193), header):
            assert producing.it.loop.sockets.held_bytes == 0
            found = producing.it.answers(sock, piece, 1) if piece is header else sock.send(piece)
        assert found == [], "hung up"
        assert "4 to 8192 are taken" in str(producing.it.raised[-1]), "at once"


def test_who_asks_nothing_is_hung_up_on(producing: Producing) -> None:
    accepted_ms = producing.session.accepted_ms
    late_ms = accepted_ms + session.FIRST_REQUEST_MS_MAX
    assert not producing.session.is_overdue(late_ms - 1) and producing.session.is_overdue(late_ms)
    producing.produce(a_batch())
    assert not producing.session.is_overdue(late_ms)


def test_producers_that_are_too_fast_are_not_read(
    producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an answer, a refusal is records that are lost."""
    monkeypatch.setattr(socket_producers, "QUEUED_BYTES_MAX", 1000)
    node = producing.it.node
    values = [b"%d" % i + bytes(600) for i in range(100)]
    begin = node.log.end_offset
    data = b"".join(a_produce(a_batch(value), acks=0) for value in values)
    most = 0

    def all_there() -> bool:
        nonlocal most
        most = max(most, producing.it.loop.sockets.producers.queued_bytes)
        return bool(node.log.end_offset == begin + len(values))

    producing.sock.setblocking(True)
    producing.sock.sendall(data)
    producing.sock.setblocking(False)
    producing.it.until(all_there)
    found = [next(batch_at(producing.stored(begin + i)).records()) for i in range(len(values))]
    assert [record.value for record in found] == values
    assert most < 2000 and producing.it.lines == []
    hello = frame.encode_request(ApiKey.METADATA, 1, 2, "producer", MetadataRequest(topics=[]))
    assert len(producing.it.answers(producing.sock, hello, 2)) == 1, "it goes on"


def test_rings_and_sockets_are_served_in_turns(
    producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ring that is never empty kept producers over sockets out until their time was out."""
    monkeypatch.setattr(limits, "TURN_BYTES_MAX", 1000)
    doorbell = OwnDoorbell()
    ring = attached(producing.it, doorbell, "producer")
    log, data = producing.it.node.log, producing.it.loop.sockets.producers
    batch = a_batch(bytes(600))
    for _ in range(80):
        ring.out.send(BATCH, bytes(16) + batch)
    producing.sock.setblocking(True)
    producing.sock.sendall(b"".join(a_produce(a_batch(b"s" * 601)) for _ in range(5)))
    ring.out.publish()
    begin = log.end_offset
    producing.it.until(lambda: log.end_offset >= begin + 60)
    assert not data.queued, "they were all taken meanwhile"
    producing.it.until(lambda: log.end_offset == begin + 85)
    ring.close()
    doorbell.close()


def test_requests_that_came_together_are_not_left_where_there_is_room_again(
    producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel has no more news of them, and the client waits for their answers."""
    hello = [
        frame.encode_request(ApiKey.METADATA, 1, i, "client", MetadataRequest(topics=[]))
        for i in (1, 2, 3)
    ]
    assert len(producing.it.answers(producing.sock, hello[0], 1)) == 1
    ours, door = producing.session, producing.it.loop.sockets
    monkeypatch.setattr(sockets, "HELD_BYTES_MAX", 1000)
    monkeypatch.setattr(sockets, "LITTLE_BYTES", -1)
    door.count(2000)
    ours.counted_bytes += 2000  # an answer that the kernel took since it was last counted
    assert len(producing.it.answers(producing.sock, hello[1] + hello[2], 3)) == 2


# --- slow ones ----------------------------------------------------------------------------------


def test_a_slow_frame_that_comes_on_is_waited_for(producing: Producing) -> None:
    data = a_produce(a_batch(bytes(1 << 20)))
    ours, sent = producing.session, 0

    def send(count: int) -> None:
        nonlocal sent
        sent += producing.sock.send(data[sent : sent + count])
        producing.it.until(lambda: ours.framed.splitter.arrived_bytes >= sent - 4)

    def is_late() -> bool:
        return bool(ours.is_overdue(producing.it.node.now_ms()))

    send(100_000)
    ours.accepted_ms -= 2 * session.FIRST_REQUEST_MS_MAX
    assert not is_late(), "what it sends is a request of ours"
    ours.frame_ms -= session.FRAME_MS_MAX
    assert is_late()
    send(10)
    assert is_late(), "a byte now and then is no progress"
    send(session.PROGRESS_BYTES)
    assert not is_late()
    ours.began_ms -= session.IDLE_MS_MAX
    assert is_late(), "but there is an end"


def test_an_answer_that_is_not_taken_waits_while_there_is_room(producing: Producing) -> None:
    """A consumer that does not poll for a minute is no stranger."""
    for _ in range(4):
        assert producing.produce(a_batch(bytes(2 << 20))).error_code == NONE
    producing.sock.close()
    producing.it.until(lambda: not producing.it.loop.sockets.sessions)
    sock = producing.sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
    sock.connect(("127.0.0.1", producing.it.loop.sockets.ports()["CONTROLLER"]))
    wanted = PartitionFetch(
        topic=METADATA_TOPIC, partition=0, max_bytes=8 << 20, partition_max_bytes=8 << 20
    )
    sock.send(fetch.encode_request(12, 1, "consumer", wanted))
    ours = producing.session
    producing.it.until(lambda: ours.framed.queued)
    now_ms = ours.sent_ms + session.PRESSED_ANSWER_MS_MAX
    assert not ours.is_overdue(now_ms)
    door = producing.it.loop.sockets
    held, door.held_bytes = door.held_bytes, HELD_BYTES_MAX
    assert ours.is_overdue(now_ms), "others need the room"
    door.held_bytes = held
    assert ours.is_overdue(ours.sent_ms + session.ANSWER_MS_MAX)


def test_who_holds_little_is_read_whatever_the_others_hold(
    producing: Producing, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas fetch by such connections: without them nothing of a producer's is committed."""
    monkeypatch.setattr(sockets, "HELD_BYTES_MAX", 1 << 20)
    data = a_produce(a_batch(bytes(4 << 20)))
    producing.sock.send(data[:300_000])
    door = producing.it.loop.sockets
    producing.it.until(lambda: door.held_bytes >= sockets.HELD_BYTES_MAX)
    hello = frame.encode_request(ApiKey.METADATA, 1, 2, "replica", MetadataRequest(topics=[]))
    other = producing.it.connect()
    for _ in range(3):
        assert len(producing.it.answers(other, hello, 2)) == 1
    other.send(data[:300_000])
    producing.it.until(lambda: len(door.sessions) == 2 and list(door.sessions)[1].paused)
    other.close()
