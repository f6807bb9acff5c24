"""What a leader tells consumers, above all while it has committed nothing in its epoch yet.

A replica with all its doors in this process, asked by frames over TCP; the test plays the others.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import read_meta
from kraftfast.node.translation import translate
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Codec, Record
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import fetch, frame, produce
from kraftfast.wire.fetch import PartitionFetch
from kraftfast.wire.messages import (
    ApiKey,
    FetchRequest,
    ListOffsetsRequest,
    MetadataRequest,
    OffsetForLeaderEpochRequest,
    ProduceRequest,
)
from tests.core.replicas import correlation_of
from tests.node.inside import Inside

pytestmark = pytest.mark.processes
PARTITION = translate.Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
START_MS = 4_000_000_000_000
"""Later than all records of the quorum's own."""

LONG_AGO = 1_700_000_000_000
BASE = 3
"""Where data begins, behind the control records of a new quorum."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, TIERED, PENDING = -1, -2, -3, -4, -5, -6
SOONER_OR_LATER = 30_000
"""For a wait that something else than time must end."""


def batch_of(values: list[bytes], *times: int, codec: Codec = Codec.NONE) -> bytes:
    """A batch with a record for each value, at those times after ``START_MS``."""
    stamps = times or (0,) * len(values)
    records = [
        Record(i, START_MS + at, None, value)
        for i, (value, at) in enumerate(zip(values, stamps, strict=True))
    ]
    return bytes(encode_batch(records, codec=codec))


class Silent:
    """The way to a voter that takes requests and does not answer."""

    def send_request(self, _correlation: int, _request: Any) -> bool:
        return True

    def __getattr__(self, _name: str) -> Any:
        return lambda *_args: None


class Asked:
    """A replica of three voters, and what it answers; the other two are the test."""

    def __init__(self, path: Path) -> None:
        self.it = Inside(path, 3, election_timeout_ms=20, fetch_timeout_ms=60_000)
        self.it.node.links.update({2: Silent(), 3: Silent()})
        self.sock = self.it.connect()
        self.other = read_meta(Disk(), str(path / "2")).directory_id
        self.number = 0
        self.first = 1
        """The epoch of the first records."""

    @property
    def core(self) -> Any:
        return self.it.node.core

    def elect(self) -> None:
        """Let the others grant whatever they are asked for, until the replica leads."""

        def leads() -> bool:
            node = self.it.node
            for id in (2, 3):
                vote = core.VoteResponse(leader_epoch=self.core.epoch, vote_granted=True)
                if self.core.role in ("prospective", "candidate") and correlation_of(self.core, id):
                    node.step(ev.ResponseReceived(id, correlation_of(self.core, id), vote))
            return bool(self.core.role == "leader")

        self.it.until(leads)
        start_offset = self.core.epoch_start_offset
        self.it.until(lambda: self.core.end_offset > start_offset)

    def resign(self) -> None:
        self.it.node.step(ev.ResignRequested(self.core.epoch))
        assert self.core.role == "resigned"

    def send(self, data: bytes, number: int) -> bytes:
        found = self.it.answers(self.sock, data, number)
        assert found, "hung up"
        return found[-1]

    def ask(self, api_key: int, version: int, body: Any) -> Any:
        self.number += 1
        data = frame.encode_request(api_key, version, self.number, "consumer", body)
        return frame.decode_response(api_key, version, self.send(data, self.number))[1]

    def append(self, batch: bytes) -> int:
        """Append without waiting for the commit; the offset behind it."""
        before = self.it.node.log.end_offset
        sock = self.it.connect()
        message = produce.PartitionProduce(
            acks=-1, timeout_ms=60_000, topic=METADATA_TOPIC, partition=0, records=batch
        )
        sock.send(b"".join(produce.encode_request(9, 1, "producer", message)))
        self.it.until(lambda: self.it.node.log.end_offset > before)
        sock.close()
        return int(self.it.node.log.end_offset)

    def commit(self) -> None:
        """Voter 2 has everything on disk, and says so."""
        node = self.it.node
        self.follow(node.log.end_offset, node.log.last_epoch)
        self.it.until(lambda: self.core.high_watermark == node.log.end_offset)

    def follow(self, offset: int, last_epoch: int) -> Any:
        version = 17
        request = core.FetchRequest(
            self.core.epoch,
            core.ReplicaKey(2, self.other),
            offset,
            last_epoch,
            max_wait_ms=0,
            cluster_id=self.it.cluster_id,
        )
        fields = translate.fetch_to_wire(request, PARTITION)
        sock = self.it.connect()
        answer = self.it.answers(sock, fetch.encode_request(version, 9, "raft", fields), 9)
        sock.close()
        return fetch.decode_response(version, answer[0])[1]

    def fetch_data(self, offset: int, **fields: Any) -> tuple[int, bytes]:
        self.number += 1
        fields = {"max_bytes": 1 << 20, "partition_max_bytes": 1 << 20, "min_bytes": 1, **fields}
        message = PartitionFetch(topic=METADATA_TOPIC, partition=0, fetch_offset=offset, **fields)
        return self.number, fetch.encode_request(12, self.number, "consumer", message)

    def fetch(self, offset: int, **fields: Any) -> Any:
        number, data = self.fetch_data(offset, **fields)
        return fetch.decode_response(12, self.send(data, number))[1]

    def list(self, timestamp: int, version: int = 7, **fields: int) -> tuple[int, int, int, int]:
        """(error, offset, timestamp, epoch)."""
        kind = ListOffsetsRequest
        part = kind.Partition(0, timestamp=timestamp, **fields)
        body = kind(replica_id=-1, topics=[kind.Topic(METADATA_TOPIC, [part])])
        found = self.ask(ApiKey.LIST_OFFSETS, version, body).topics[0].partitions[0]
        return found.error_code, found.offset, found.timestamp, found.leader_epoch

    def end_of(self, epoch: int, current: int = -1, version: int = 4) -> tuple[int, int, int]:
        """(error, epoch, end offset)."""
        kind = OffsetForLeaderEpochRequest
        body = kind(-1, [kind.Topic(METADATA_TOPIC, [kind.Partition(0, current, epoch)])])
        answer = self.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, body)
        found = answer.topics[0].partitions[0]
        return found.error_code, found.leader_epoch, found.end_offset


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    made = Asked(tmp_path)
    try:
        yield made
    finally:
        made.sock.close()
        made.it.close()


def fresh(asked: Asked) -> int:
    """A leader that has committed nothing, behind records that may be: the offset behind those."""
    asked.elect()
    end_offset = asked.append(batch_of([b"0", b"1", b"2"], 0, 10, 20))
    asked.first = asked.core.epoch
    asked.resign()
    asked.elect()
    assert asked.core.high_watermark == -1
    return end_offset


def test_a_leader_that_has_committed_nothing_yet(asked: Asked) -> None:
    """The records of its predecessors are there, and may be committed: no offset is out of range.

    Kafka's clients would read the whole log again, or skip what comes (auto.offset.reset).
    """
    end_offset = fresh(asked)
    for offset in (0, 1, end_offset, end_offset + 1):
        answer = asked.fetch(offset)
        assert answer.partition_error_code == ErrorCode.NONE, offset
        assert not answer.records and answer.high_watermark == 0
    assert asked.fetch(end_offset + 2).partition_error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    assert asked.list(EARLIEST) == (0, 0, -1, asked.first)
    for timestamp in (LATEST, MAX_TIMESTAMP, START_MS, START_MS + 10**9):
        assert asked.list(timestamp)[:2] == (ErrorCode.OFFSET_NOT_AVAILABLE, -1)
    assert asked.list(LATEST, 5)[0] == ErrorCode.OFFSET_NOT_AVAILABLE
    assert asked.list(LATEST, 4)[0] == ErrorCode.LEADER_NOT_AVAILABLE
    asked.commit()
    assert asked.list(LATEST) == (0, end_offset + 1, -1, asked.core.epoch)
    assert asked.list(START_MS + 10) == (0, BASE + 1, START_MS + 10, asked.first)
    assert b"0" in bytes(asked.fetch(BASE).records)


def test_what_was_known_to_be_committed_is_served_at_once(asked: Asked) -> None:
    asked.elect()
    asked.append(batch_of([b"0", b"1", b"2"], 0, 10, 20))
    asked.commit()
    epoch = asked.core.epoch
    committed = asked.core.high_watermark
    asked.resign()
    asked.elect()
    assert asked.core.high_watermark == -1
    answer = asked.fetch(BASE)
    assert b"0" in bytes(answer.records) and answer.high_watermark == committed
    assert asked.list(LATEST)[:2] == (0, committed), "no record behind it can be committed"
    assert asked.list(START_MS + 20) == (0, BASE + 2, START_MS + 20, epoch)


def parked(asked: Asked, offset: int, **fields: int) -> int:
    """Let a Fetch wait at ``offset``; its number."""
    number, data = asked.fetch_data(offset, max_wait_ms=SOONER_OR_LATER, **fields)
    asked.sock.send(data)
    asked.it.until(lambda: asked.it.loop.sockets.consumers.parked)
    return number


def answer_of(asked: Asked, number: int) -> Any:
    return fetch.decode_response(12, asked.it.answers(asked.sock, b"", number)[-1])[1]


def test_a_fetch_that_waits_ends_with_the_leadership(asked: Asked) -> None:
    """And not when it has waited long enough."""
    number = parked(asked, fresh(asked))
    asked.resign()
    assert not asked.it.loop.sockets.consumers.parked
    assert answer_of(asked, number).partition_error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fetch_waits_for_its_least_bytes(asked: Asked) -> None:
    asked.elect()
    asked.commit()
    one = batch_of([bytes(100)], LONG_AGO - START_MS)  # a later one would roll the segment

    def grow(least: int) -> None:
        for _ in range(least):
            assert asked.it.loop.sockets.consumers.parked
            asked.append(one)
            asked.commit()

    number = parked(asked, BASE, min_bytes=3 * len(one))
    grow(3)
    assert len(answer_of(asked, number).records) == 3 * len(one)
    assert len(asked.fetch(BASE, min_bytes=1 << 20).records) == 3 * len(one), "it does not wait"
    number = parked(asked, BASE, min_bytes=1 << 30, partition_max_bytes=5 * len(one))
    grow(2)
    assert len(answer_of(asked, number).records) == 5 * len(one), "as much as it may hold"
    number, data = asked.fetch_data(BASE, min_bytes=1 << 20, max_wait_ms=50)
    found = fetch.decode_response(12, asked.send(data, number))[1]
    assert len(found.records) == 5 * len(one), "what there is when it has waited long enough"
    number = parked(asked, BASE, min_bytes=1 << 20)
    asked.it.until(asked.it.node.log.roll)
    asked.append(one)
    asked.commit()
    assert len(answer_of(asked, number).records) == 5 * len(one), "all that this segment will hold"


def test_epochs_of_consumers_are_compared(asked: Asked) -> None:
    """KIP-320: a client that is behind looks for the leader, one that is ahead asks again."""
    end_offset = fresh(asked)
    asked.commit()
    epoch = asked.core.epoch
    for named, error in (
        (epoch - 1, ErrorCode.FENCED_LEADER_EPOCH),
        (epoch, ErrorCode.NONE),
        (epoch + 1, ErrorCode.UNKNOWN_LEADER_EPOCH),
        (-1, ErrorCode.NONE),
    ):
        assert asked.fetch(1, current_leader_epoch=named).partition_error_code == error
        assert asked.list(LATEST, current_leader_epoch=named)[0] == error
        assert asked.end_of(epoch, named)[0] == error
    asked.resign()
    assert asked.fetch(1, current_leader_epoch=epoch).partition_error_code == (
        ErrorCode.NOT_LEADER_OR_FOLLOWER
    )
    assert asked.end_of(epoch)[0] == asked.list(LATEST)[0] == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert end_offset > 0


@pytest.mark.parametrize("version", [2, 3, 4])
def test_where_epochs_end(asked: Asked, version: int) -> None:
    end_offset = fresh(asked)
    first, epoch = asked.first, asked.core.epoch
    assert asked.end_of(first, version=version) == (0, first, end_offset)
    assert asked.end_of(epoch, version=version) == (0, epoch, end_offset + 1)
    assert asked.end_of(0, version=version) == (0, 0, 0), "the first known begins there"
    for unknown in (-1, epoch + 1):
        assert asked.end_of(unknown, version=version) == (0, -1, -1)


def test_a_consumer_whose_records_were_cut_is_told(asked: Asked) -> None:
    """The epoch of the record before its position ends earlier in this log (KIP-320)."""
    end_offset = fresh(asked)
    asked.commit()
    epoch = asked.core.epoch
    answer = asked.fetch(end_offset + 1, last_fetched_epoch=asked.first, current_leader_epoch=epoch)
    assert answer.partition_error_code == ErrorCode.NONE and not answer.records
    assert (answer.diverging_epoch, answer.diverging_end_offset) == (asked.first, end_offset)
    answer = asked.fetch(end_offset, last_fetched_epoch=asked.first, current_leader_epoch=epoch)
    assert answer.diverging_epoch == -1 and len(answer.records)
    answer = asked.fetch(end_offset, last_fetched_epoch=epoch + 1, current_leader_epoch=epoch)
    assert answer.partition_error_code == ErrorCode.OFFSET_OUT_OF_RANGE, "an epoch to come"


def test_list_offsets_finds_records_and_not_batches(asked: Asked) -> None:
    asked.elect()
    asked.append(batch_of([b"a", b"b", b"c", b"d"], 0, 20, 40, 30))
    asked.append(batch_of([b"e", b"f"], 35, 5, codec=Codec.ZSTD))
    asked.commit()
    at = START_MS
    for wanted, offset, found in ((0, 0, 0), (1, 1, 20), (21, 2, 40), (40, 2, 40)):
        assert asked.list(at + wanted) == (0, BASE + offset, at + found, asked.core.epoch)
    assert asked.list(at + 41) == (0, -1, -1, -1)
    assert asked.list(MAX_TIMESTAMP) == (0, BASE + 2, at + 40, asked.core.epoch)
    assert asked.list(EARLIEST_LOCAL, 8) == asked.list(EARLIEST)
    assert asked.list(TIERED, 9) == asked.list(PENDING, 11) == (0, -1, -1, -1)
    for timestamp, version in ((MAX_TIMESTAMP, 6), (EARLIEST_LOCAL, 7), (TIERED, 8), (-7, 11)):
        assert asked.list(timestamp, version)[0] == ErrorCode.UNSUPPORTED_VERSION
    assert asked.list(PENDING, 10)[0] == ErrorCode.UNSUPPORTED_VERSION


def test_who_does_not_lead_tells_no_offsets(asked: Asked) -> None:
    """librdkafka takes an answer at its own position for the end, error or not (PARTITION_EOF)."""
    asked.elect()
    asked.append(batch_of([b"0", b"1", b"2"]))
    asked.commit()
    end_offset, epoch = asked.core.high_watermark, asked.core.epoch

    def told(**fields: Any) -> tuple[int, int, int, int]:
        found = asked.fetch(end_offset, **fields)
        return (
            found.partition_error_code,
            found.high_watermark,
            found.last_stable_offset,
            found.log_start_offset,
        )

    assert told() == (ErrorCode.NONE, end_offset, end_offset, 0)
    assert told(current_leader_epoch=epoch - 1) == (ErrorCode.FENCED_LEADER_EPOCH, -1, -1, -1)
    assert told(current_leader_epoch=epoch + 1) == (ErrorCode.UNKNOWN_LEADER_EPOCH, -1, -1, -1)
    asked.resign()
    assert told() == (ErrorCode.NOT_LEADER_OR_FOLLOWER, -1, -1, -1)
    kind = FetchRequest
    parts = [kind.Partition(number, fetch_offset=end_offset) for number in (0, 1)]
    body = kind(max_wait_ms=0, topics=[kind.Topic(METADATA_TOPIC, partitions=parts)])
    for found in asked.ask(ApiKey.FETCH, 12, body).responses[0].partitions:
        assert found.error_code != ErrorCode.NONE
        assert found.high_watermark == found.last_stable_offset == found.log_start_offset == -1


def test_a_session_of_another_server_is_not_known(asked: Asked) -> None:
    asked.elect()
    body = FetchRequest(max_wait_ms=0, session_id=7, session_epoch=1, topics=[])
    answer = asked.ask(ApiKey.FETCH, 12, body)
    assert answer.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND and not answer.responses


def test_a_fetch_of_several_partitions_waits_as_one_of_ours_does(asked: Asked) -> None:
    """It was answered at once, and asked again at once."""
    asked.elect()
    asked.commit()
    offset, kind = asked.core.high_watermark, FetchRequest
    ours = kind.Partition(partition=0, fetch_offset=offset, partition_max_bytes=1 << 20)
    other = kind.Partition(partition=1, fetch_offset=0, partition_max_bytes=1 << 20)
    body = FetchRequest(
        max_wait_ms=SOONER_OR_LATER,
        min_bytes=1,
        max_bytes=1 << 20,
        topics=[kind.Topic(topic=METADATA_TOPIC, partitions=[ours, other])],
    )
    asked.sock.send(frame.encode_request(ApiKey.FETCH, 12, 77, "consumer", body))
    consumers = asked.it.loop.sockets.consumers
    asked.it.until(lambda: consumers.parked)
    asked.append(batch_of([b"news"]))
    asked.commit()
    answer = frame.decode_response(ApiKey.FETCH, 12, asked.send(b"", 77))[1]
    found = answer.responses[0].partitions
    assert found[0].records and found[1].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    other.fetch_offset, body.topics[0].partitions = 5, [other]
    answer = asked.ask(ApiKey.FETCH, 12, body)
    assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# --- who leads, who is in sync ------------------------------------------------------------------


def test_metadata_names_who_leads_and_who_keeps_up(asked: Asked) -> None:
    def told() -> Any:
        """(the leader, who is in sync): one without a port is named as controller alone."""
        answer = asked.ask(ApiKey.METADATA, 9, MetadataRequest(topics=None))
        found = answer.topics[0].partitions[0]
        assert found.replica_nodes == [1, 2, 3]
        return answer.controller_id, found.isr_nodes

    asked.elect()
    assert told() == (1, [1])
    asked.commit()
    assert told() == (1, [1, 2])
    asked.resign()
    assert told()[0] == -1


# --- acks=0 -----------------------------------------------------------------------------------


def produce_unanswered(asked: Asked, sock: Any, **fields: Any) -> None:
    message = produce.PartitionProduce(
        **{
            "acks": 0,
            "timeout_ms": 60_000,
            "topic": METADATA_TOPIC,
            "partition": 0,
            "records": batch_of([b"not answered"]),
            **fields,
        }
    )
    sock.send(b"".join(produce.encode_request(9, 1, "producer", message)))


def test_acks_0_is_hung_up_on_for_any_error(asked: Asked) -> None:
    """Its producer learns by nothing else that it must look for the leader."""
    produce_unanswered(asked, asked.sock)
    assert asked.it.answers(asked.sock, b"", 1) == [], "no leader"
    asked.elect()
    sock = asked.it.connect()
    end_offset = asked.it.node.log.end_offset
    produce_unanswered(asked, sock)
    asked.it.until(lambda: asked.it.node.log.end_offset == end_offset + 1)
    greeting = frame.encode_request(ApiKey.METADATA, 1, 2, "producer", MetadataRequest(topics=[]))
    assert len(asked.it.answers(sock, greeting, 2)) == 1, "it goes on, and there was no answer"
    for wrong in (
        {"topic": "another"},
        {"partition": 1},
        {"records": bytes(100)},
        {"transactional_id": "none"},
    ):
        produce_unanswered(asked, sock, **wrong)
        assert asked.it.answers(sock, b"", 1) == [], wrong
        sock = asked.it.connect()
    kind = ProduceRequest.TopicData
    several = ProduceRequest(
        acks=0,
        timeout_ms=1000,
        topic_data=[kind(METADATA_TOPIC, partition_data=[]), kind("another", partition_data=[])],
    )
    data = frame.encode_request(ApiKey.PRODUCE, 9, 1, "producer", several)
    assert asked.it.answers(sock, data, 1) == [], "several topics"
    assert asked.it.node.log.end_offset == end_offset + 1
    assert any("acks=0" in line and "UNKNOWN_TOPIC" in line for line in asked.it.lines)


def test_acks_0_that_is_queued_when_the_leader_resigns(asked: Asked) -> None:
    """What came before the loop could append it is not in the log, and no error says so."""
    asked.elect()
    asked.it.node.hold_appends()
    end_offset = asked.it.node.log.end_offset
    produce_unanswered(asked, asked.sock)
    asked.it.until(lambda: asked.it.loop.sockets.sessions)
    asked.it.turn()
    asked.resign()
    found = asked.it.answers(asked.sock, b"", 1)
    assert asked.it.node.log.end_offset > end_offset or found == []
