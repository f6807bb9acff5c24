"""Snapshots of one replica with a state machine: made, kept, sent in slices, begun again from."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from kraftfast.client.local_socket import ask
from kraftfast.errors import ErrorCode
from kraftfast.log.disk import Disk
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_path
from kraftfast.node.state_machine import StateMachine
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC, OffsetAndEpoch
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, FetchSnapshotRequest
from kraftfast.wire.versions import SERVED
from tests.node.kit import TIMEOUT_S, Stranger

KIB, MIB = 1 << 10, 1 << 20
SEGMENT_BYTES = 4 * MIB
SMALL = {"segment_bytes": SEGMENT_BYTES, "stride_bytes": MIB, "prepare_bytes": MIB}
BETWEEN_BYTES = MIB
PER_BATCH = 7


class Total(StateMachine):
    """Counts. Its snapshots are larger than a slice."""

    def __init__(self) -> None:
        self.count = self.restored = 0

    def apply(self, batch: Any) -> None:
        self.count += len(list(batch.records()))

    def snapshot(self, writer: Any) -> None:
        writer.append(b"%d" % self.count)
        writer.extend([b"-" * KIB] * 100)

    def restore(self, reader: Any) -> None:
        self.restored += 1
        self.count = int(bytes(next(iter(reader.records())).value))

    def query(self) -> Any:
        return {"count": self.count, "restored": self.restored}


def one_replica(path: Path, **options: Any) -> AbstractContextManager[LocalQuorum]:
    return LocalQuorum(
        str(path),
        voters=1,
        state_machine=f"{__file__}:Total",
        snapshot_bytes=BETWEEN_BYTES,
        **{**SMALL, **options},
    )


def log_path(quorum: LocalQuorum) -> str:
    return str(Path(quorum.directories[1]) / f"{METADATA_TOPIC}-0")


def made(quorum: LocalQuorum) -> list[OffsetAndEpoch]:
    """Its snapshots, but the one that it was formatted with."""
    return [each for each in snapshot_ids(Disk(), log_path(quorum)) if each != BOOTSTRAP]


def fill(quorum: LocalQuorum, mib: int) -> int:
    """So many MiB, a few records a batch; the offset behind them, applied."""
    with quorum.producer(timeout=TIMEOUT_S) as producer:
        for _ in range(mib * 16):
            offset = producer.append_many([b"." * (64 * KIB // PER_BATCH)] * PER_BATCH)[-1]
            producer.flush()
    quorum.query(1, at_least=offset + 1, timeout=TIMEOUT_S)
    return int(offset) + 1


def fill_for(quorum: LocalQuorum, snapshots: int) -> int:
    """Until there are so many, one by one: a busy machine makes one of several; as ``fill``."""
    end = 0
    for number in range(snapshots):
        end = fill(quorum, 1)  # for which one is due, and none after it
        until(lambda number=number: len(made(quorum)) > number)
    return end


def append_one(quorum: LocalQuorum) -> int:
    """The offset behind it, applied."""
    with quorum.producer(timeout=TIMEOUT_S) as producer:
        offset = producer.append_wait(b"a", timeout=TIMEOUT_S)
    quorum.query(1, at_least=offset + 1, timeout=TIMEOUT_S)
    return int(offset) + 1


def until(condition: Callable[[], Any]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


# --- made and kept ----------------------------------------------------------------------------


# covers: testCreateSnapshotInMiddleOfBatch
def test_a_snapshot_ends_where_a_batch_ends(tmp_path: Path) -> None:
    with one_replica(tmp_path) as quorum:
        end = fill_for(quorum, 2)
        with LogReader(log_path(quorum)) as reader:
            found = list(reader.batches(0, end))
            ends = {batch.last_offset + 1: batch.leader_epoch for batch in found}
            assert max(batch.last_offset - batch.base_offset for batch in found) > 0
            assert all(ends[offset] == epoch for offset, epoch in made(quorum))


def test_one_is_made_by_time(tmp_path: Path) -> None:
    """Of new records only."""
    with one_replica(tmp_path, snapshot_interval_ms=300) as quorum:
        end = append_one(quorum)
        until(lambda: [offset for offset, _ in made(quorum)] == [end])
        time.sleep(1)
        assert len(made(quorum)) == 1


# covers: testDeleteSnapshots
def test_nothing_goes_below_the_limit(tmp_path: Path) -> None:
    with one_replica(tmp_path) as quorum:
        fill_for(quorum, 3)
        time.sleep(1.2)  # it has looked
        assert len(made(quorum)) >= 3
        assert quorum.status(1)["log_start_offset"] == 0


# covers: testSoftRetentionLimit, testSegmentsLessThanLatestSnapshot, testDeleteSnapshots
# covers: testAdvanceLogStartOffsetAfterCleaning
def test_the_newest_snapshot_stays_and_what_follows_it(tmp_path: Path) -> None:
    """However small the limit."""
    with one_replica(tmp_path, retention_bytes=1) as quorum:
        end = fill(quorum, 10)
        until(lambda: len(made(quorum)) == 1 and quorum.status(1)["log_start_offset"] > 0)
        time.sleep(1.2)  # it has looked once more
        (newest,) = made(quorum)
        assert quorum.status(1)["log_start_offset"] == newest.offset
        with LogReader(log_path(quorum)) as reader:
            bases = [base for base, _ in reader.segments()]
            assert all(base > newest.offset for base in bases[1:]), "no segment is wholly below"
            read = newest.offset
            for batch in reader.batches(newest.offset, end):
                assert batch.base_offset <= read
                read = batch.last_offset + 1
            assert read == end


# covers: testDeleteSnapshots
def test_the_oldest_goes_by_age(tmp_path: Path) -> None:
    with one_replica(tmp_path, retention_ms=1) as quorum:
        fill(quorum, 4)
        until(lambda: len(made(quorum)) == 1)
        until(lambda: quorum.status(1)["log_start_offset"] == made(quorum)[0].offset)


def test_what_is_told_of_the_newest(tmp_path: Path) -> None:
    with one_replica(tmp_path) as quorum:

        def told() -> dict[str, int]:
            status = ask(quorum.directories[1], {"kind": "status"})
            found: dict[str, int] = status["metrics"]["kafka.server:type=SnapshotEmitter"]
            return found

        before = time.monotonic()
        assert told()["LatestSnapshotGeneratedBytes"] == 0
        fill_for(quorum, 3)

        def newest() -> Path:
            return Path(snapshot_path(log_path(quorum), made(quorum)[-1]))

        until(lambda: told()["LatestSnapshotGeneratedBytes"] == newest().stat().st_size)
        age_ms = told()["LatestSnapshotGeneratedAgeMs"]
        assert 0 <= age_ms <= (time.monotonic() - before) * 1000
        time.sleep(0.05)
        assert told()["LatestSnapshotGeneratedAgeMs"] >= age_ms + 50


# --- begun again from -------------------------------------------------------------------------


# covers: testLeaderListenerNotified
def test_a_leader_begins_with_its_snapshot(tmp_path: Path) -> None:
    with one_replica(tmp_path, retention_bytes=1) as quorum:
        fill(quorum, 4)
        until(lambda: quorum.status(1)["log_start_offset"] > 0)
        before = quorum.query(1)
        assert before["restored"] == 0
    with one_replica(tmp_path, retention_bytes=1) as quorum:
        at_least = fill(quorum, 1)
        found = quorum.query(1, at_least=at_least)
        assert found == {"count": before["count"] + 16 * PER_BATCH, "restored": 1}


# covers: bootstrap-snapshot-is-not-handed-to-listeners
def test_what_a_replica_was_formatted_with_is_no_state(tmp_path: Path) -> None:
    for _ in range(2):
        with one_replica(tmp_path, kraft_version=1) as quorum:
            assert BOOTSTRAP in snapshot_ids(Disk(), log_path(quorum))
            append_one(quorum)
            assert quorum.query(1)["restored"] == 0


# --- sent -------------------------------------------------------------------------------------


def asked(stranger: Stranger, request: Any) -> Any:
    """The answer to a FetchSnapshot as it is on the wire."""
    version = SERVED[ApiKey.FETCH_SNAPSHOT].last
    stranger.send(frame.encode_request(ApiKey.FETCH_SNAPSHOT, version, 7, "stranger", request))
    data = stranger.receive()
    assert data is not None
    return frame.decode_response(ApiKey.FETCH_SNAPSHOT, version, data)[1]


def of_partition(answer: Any) -> Any:
    assert answer.error_code == 0
    return answer.topics[0].partitions[0]


# covers: testFetchSnapshotRequestWithInvalidPosition, testFetchSnapshotRequestWithPartialData
# covers: testFetchSnapshotRequestWithoutPartitions, testFetchSnapshotRequestWithoutTopics
# covers: testFetchSnapshotRequestUnknownPartition
def test_slices_over_a_socket(tmp_path: Path) -> None:
    """They end anywhere; put together they are the file."""
    kind = FetchSnapshotRequest
    with one_replica(tmp_path, transport="socket") as quorum, Stranger(quorum, 1) as stranger:
        fill(quorum, 2)
        until(lambda: made(quorum))
        wanted = made(quorum)[0]
        file = Path(snapshot_path(log_path(quorum), wanted)).read_bytes()
        epoch = quorum.status(1)["epoch"]
        stranger.greet()

        def request(position: int, topic: str = METADATA_TOPIC, bytes_max: int = 9973) -> Any:
            fields = kind.Partition(
                partition=0,
                current_leader_epoch=epoch,
                snapshot_id=kind.SnapshotId(wanted.offset, wanted.epoch),
                position=position,
            )
            return kind(
                cluster_id=None,
                replica_id=-1,
                max_bytes=bytes_max,
                topics=[kind.Topic(name=topic, partitions=[fields])],
            )

        got = b""
        while len(got) < len(file):
            slice_ = of_partition(asked(stranger, request(len(got))))
            assert (slice_.error_code, slice_.position) == (0, len(got))
            assert slice_.size == len(file)
            assert 0 < len(slice_.unaligned_records) <= 9973
            got += slice_.unaligned_records
        assert got == file

        for position in (-1, len(file), len(file) + 1):
            refused = of_partition(asked(stranger, request(position)))
            assert refused.error_code == ErrorCode.POSITION_OUT_OF_RANGE
            assert not refused.unaligned_records
        other = of_partition(asked(stranger, request(0, topic="other")))
        assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        nothing = kind(cluster_id=None, replica_id=-1, max_bytes=1, topics=[])
        assert asked(stranger, nothing).error_code == ErrorCode.INVALID_REQUEST
        empty = request(0)
        empty.topics[0].partitions = []
        assert asked(stranger, empty).error_code == ErrorCode.INVALID_REQUEST
