"""How far directories are read: no record that may never have been committed."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import time
import warnings
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

import kraftfast  # noqa: E402
from kraftfast import errors  # noqa: E402
from kraftfast.connected import directories_of  # noqa: E402
from kraftfast.log.disk import Disk  # noqa: E402
from kraftfast.log.reading.extents import LogExtents  # noqa: E402
from kraftfast.log.small_files import quorum_state  # noqa: E402
from kraftfast.log.small_files.committed_floor import FLOOR, write_floor  # noqa: E402
from kraftfast.log.small_files.directory import (  # noqa: E402
    LogOptions,
    MetaProperties,
    format_directory,
    random_uuid,
)
from kraftfast.spark.jobs.digests import Digest, alike, digest_of  # noqa: E402
from kraftfast.spark.jobs.shared import shared_offsets, void_tails  # noqa: E402
from kraftfast.spark.reading.locations import find_places  # noqa: E402
from kraftfast.spark.reading.sources import LogSource  # noqa: E402
from kraftfast.spark.reading.splits import header_pieces  # noqa: E402
from kraftfast.spark.reading.voter_sets import stored_epoch  # noqa: E402
from kraftfast.types import ElectionState, OffsetAndEpoch, uuid_text  # noqa: E402
from tests.spark.kit import LogFiles, read_all, rows_of, struct  # noqa: E402

SMALL: dict[str, Any] = {
    "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20, "segment_bytes": 8 << 20,
}  # fmt: skip


class Quorum:
    """The directory of a quorum that nobody runs, its logs written batch by batch."""

    def __init__(self, path: Path, voters: int = 3) -> None:
        self.path, self.cluster_id = path, uuid_text(random_uuid())
        path.mkdir()
        ids = ",".join(str(id) for id in range(1, voters + 1))
        text = f'{{"cluster_id":"{self.cluster_id}","voters":[{ids}]}}'
        (path / "quorum.json").write_text(text)

    def replica(self, id: int, *runs: tuple[int, int], word: str = "", floor: Any = None) -> Path:
        """One with so many records of each epoch: ``(epoch, records)``; a segment each."""
        path = self.path / str(id)
        meta = MetaProperties(self.cluster_id, id, random_uuid())
        format_directory(Disk(), str(path), meta, LogOptions())
        files = LogFiles(path)
        for epoch, count in runs:
            values = [b"%d of epoch %d" % (files.end_offset + n, epoch) for n in range(count)]
            files.append(files.roll(), list(values), epoch=epoch)
        if floor is not None:
            write_floor(Disk(), str(path), OffsetAndEpoch(*floor))
        return path


def values(path: Any, **options: Any) -> list[bytes]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [row["value"] for row in rows_of(LogSource({"path": str(path), **options}))]


def epochs(found: list[bytes]) -> list[int]:
    return [int(value.split()[-1]) for value in found]


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path / "quorum")


def test_a_dead_leaders_tail_is_not_read(quorum: Quorum) -> None:
    quorum.replica(1, (1, 100), (1, 80))
    quorum.replica(2, (1, 100), (2, 30))
    quorum.replica(3, (1, 100), (2, 30))
    assert epochs(values(quorum.path)) == [1] * 100 + [2] * 30


def test_what_only_one_replica_holds_is_not_read(quorum: Quorum) -> None:
    quorum.replica(1, (1, 100), (1, 80))
    quorum.replica(2, (1, 100))
    quorum.replica(3, (1, 100))
    assert len(values(quorum.path)) == 100
    alone = LogSource({"path": str(quorum.path / "1")})
    with pytest.warns(RuntimeWarning, match="180 records from offset 0 on are left out"):
        assert rows_of(alone) == [], "by itself it knows nothing"
    found = values(quorum.path, includeUncommitted="true")
    assert len(found) == 180, "by an option that says so"


def test_observers_are_no_majority(quorum: Quorum) -> None:
    """A dead leader and two observers hold a tail that the two other voters may overwrite."""
    quorum.replica(1, (1, 100))
    quorum.replica(2, (1, 100), floor=(90, 1))
    for id in (3, 4, 5):
        quorum.replica(id, (1, 100), (1, 80))
    file = quorum.path / "quorum.json"
    file.write_text(file.read_text().replace("}", ',"added":[4,5]}'))
    assert len(values(quorum.path)) == 90


def test_a_replica_that_was_set_aside_is_none(quorum: Quorum) -> None:
    """Two old directories would else agree on where the log once ended."""
    for id in (2, 3):
        quorum.replica(id, (1, 100)).rename(quorum.path / f"{id}.set-aside{'+' * (id - 2)}")
    quorum.replica(1, (1, 100), (2, 50), floor=(150, 2))
    file = quorum.path / "quorum.json"
    file.write_text(file.read_text().replace("[1,2,3]", "[1]"))
    assert len(values(quorum.path)) == 150
    assert list(directories_of(str(quorum.path))) == [1]


def test_a_majority_that_a_later_epoch_may_overwrite_is_not_enough(quorum: Quorum) -> None:
    """Figure 8 of the Raft paper: two hold a record of epoch 2, and the third may still win."""
    quorum.replica(1, (1, 10), (2, 5))
    quorum.replica(2, (1, 10), (2, 5))
    quorum.replica(3, (1, 10), (3, 1))
    assert epochs(values(quorum.path)) == [1] * 10


class Synced:
    """What is put on disk; ``refused``: directories below which that fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *refused: Path) -> None:
        self.paths: list[str] = []
        self.refused = tuple(f"{each}/" for each in refused)
        for name in ("fsync", "fdatasync"):
            monkeypatch.setattr(os, name, self.sync)

    def sync(self, fd: int) -> None:
        path = os.readlink(f"/proc/self/fd/{fd}")
        if path.startswith(self.refused):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.paths.append(path)


def test_what_no_process_may_have_flushed_is_on_disk_before_it_is_read(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Replicas that are killed leave records in the page cache that a power cut may take. A leader
    that lacks them could be elected then, and others stand there."""
    holders = [quorum.replica(id, (1, 60), (1, 40), floor=(20, 1)) for id in (1, 2)]
    quorum.replica(3, (1, 30))
    synced = Synced(monkeypatch)
    assert len(values(quorum.path)) == 100
    for holder in holders:
        (log_path,) = holder.glob("*-0")
        files = [str(each) for each in log_path.glob("*.log")]
        assert {*files, str(log_path)} <= {*synced.paths}, "the names of segments, too (D18)"


def test_what_cannot_be_put_on_disk_does_not_count(
    quorum: Quorum, monkeypatch: pytest.MonkeyPatch
) -> None:
    quorum.replica(1, (1, 60), (1, 40), floor=(20, 1))
    broken = quorum.replica(2, (1, 60), (1, 40))
    quorum.replica(3, (1, 30))
    Synced(monkeypatch, broken)
    assert len(values(quorum.path)) == 20, "as if its directory were not here"


def test_an_only_voter_has_on_disk_what_is_read(
    quorum: Quorum, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone = Quorum(tmp_path / "alone", 1)
    path = alone.replica(1, (1, 60), (1, 40), floor=(20, 1))
    synced = Synced(monkeypatch)
    assert len(values(path)) == len(values(alone.path)) == 100
    assert any(each.endswith(".log") for each in synced.paths)
    Synced(monkeypatch, path)
    assert len(values(path)) == len(values(alone.path)) == 20


def test_a_fetched_snapshot_has_an_epoch(quorum: Quorum) -> None:
    """The third led, and what it committed stands in its snapshot; its floor is unreadable."""
    for id in (1, 2):
        quorum.replica(id, (1, 10), (1, 5))
    path = quorum.replica(3)
    LogFiles(path).snapshot(12, [(b"key", b"value")], epoch=2)
    (path / FLOOR).write_text("damaged")
    assert values(quorum.path) == [], "a leader of a later epoch may cut what the others hold"
    log_path = str(path / "__cluster_metadata-0")
    state = quorum_state.seal(quorum_state.encode(ElectionState(1), 3, ()))
    Path(log_path, quorum_state.NAME).write_bytes(state)  # of a backup, say
    assert stored_epoch(log_path, LogExtents(log_path).look()) == 2


def test_what_a_replica_knows_is_read_though_no_majority_is_there(quorum: Quorum) -> None:
    path = quorum.replica(2, (1, 10), (2, 5), floor=(12, 2))
    assert len(values(quorum.path)) == 12
    assert len(values(path)) == 12
    assert len(values(path / "__cluster_metadata-0" / f"{0:020d}.log")) == 10
    assert len(values(path / "__cluster_metadata-0" / f"{10:020d}.log")) == 2, "a segment of it"
    assert len(values(path, includeUncommitted="true")) == 15


def test_a_damaged_replica_does_not_hide_what_the_others_hold(quorum: Quorum) -> None:
    path = quorum.replica(1, (1, 10), (2, 5), floor=(15, 2))
    quorum.replica(2, (1, 10), (2, 5))
    quorum.replica(3, (1, 10), (2, 5))
    (path / "__cluster_metadata-0" / f"{10:020d}.log").write_bytes(b"\1" * 500)
    assert len(values(quorum.path)) == 15


def test_a_dead_leaders_tail_is_not_read_where_the_others_begin_behind_it(quorum: Quorum) -> None:
    """Two have a snapshot that ends where their logs do; the first was stopped before."""
    quorum.replica(1, (1, 80), (1, 100))
    for id in (2, 3):
        begin_at(quorum.replica(id, floor=(100, 2)), 100, 2)
    assert values(quorum.path) == [], "all is in the snapshot"


def test_a_dead_leaders_tail_is_not_read_for_a_log_that_is_lost(quorum: Quorum) -> None:
    """The second is elsewhere. What the third committed is damaged; it knows how far that was."""
    quorum.replica(1, (1, 80), (1, 100), floor=(70, 1))
    path = quorum.replica(3, (1, 80), (2, 30), floor=(100, 2))
    last = path / "__cluster_metadata-0" / f"{80:020d}.log"
    for damage in (lambda: last.write_bytes(b"\1" * 500), last.unlink):
        damage()
        with pytest.raises(errors.CorruptLog):
            values(quorum.path)


def test_the_only_voter_knows_all_that_it_holds(tmp_path: Path) -> None:
    made = Quorum(tmp_path / "one", 1)
    path = made.replica(1, (1, 10), (2, 5))
    assert len(values(made.path)) == len(values(path)) == 15


def test_a_partition_of_a_kafka_broker_is_read_to_its_high_watermark(tmp_path: Path) -> None:
    log = LogFiles(tmp_path)
    log.fill(segments=2, batches=5, records=4)
    place = tmp_path / "orders-7"
    log.log_path.rename(place)
    assert len(values(place)) == 40
    text = "0\n2\norders 6 4\norders 7 32\n"
    (tmp_path / "replication-offset-checkpoint").write_text(text)
    assert len(values(place)) == 32
    assert len(values(place, includeUncommitted="true")) == 40


def test_a_stream_of_a_directory_never_reads_a_tail(quorum: Quorum) -> None:
    quorum.replica(1, (1, 100), (1, 80))
    quorum.replica(2, (1, 100))
    third = quorum.replica(3, (1, 100))
    reader = LogSource({"path": str(quorum.path)}).streamReader(struct(["offset", "value"]))
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadAllAvailable())
    rows = read_all(reader, reader.partitions(start, end))
    for id in (2, 3):
        files = LogFiles(quorum.path / str(id))
        files.end_offset = 100
        files.append(files.roll(), [b"%d of epoch 2" % n for n in range(100, 150)], epoch=2)
    later = reader.latestOffset(end, ReadAllAvailable())
    rows += read_all(reader, reader.partitions(end, later))
    assert [row["value"] for row in rows] == values(quorum.path)
    assert epochs([row["value"] for row in rows]) == [1] * 100 + [2] * 50
    assert third.is_dir()


def begin_at(path: Path, offset: int, epoch: int) -> LogFiles:
    """All of a log is in its snapshot."""
    files = LogFiles(path)
    for each in files.log_path.glob("*.log"):
        each.unlink()
    files.snapshot(offset, [(b"key", b"value")], epoch=epoch)
    files.end_offset = offset
    files.roll()
    return files


def test_a_stream_goes_on_with_a_snapshot_and_not_with_a_dead_leaders_tail(quorum: Quorum) -> None:
    paths = [quorum.replica(id, (1, 80)) for id in (1, 2, 3)]
    options = {"path": str(quorum.path), "failOnDataLoss": "false", "timeout": "0.1"}
    reader = LogSource(options).streamReader(struct(["offset", "value"]))
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    files = LogFiles(paths[0])
    files.end_offset = 80
    files.append(files.roll(), [b"%d of epoch 1" % n for n in range(80, 180)])
    for path in paths[1:]:
        begin_at(path, 100, 2)
    later = reader.latestOffset(end, ReadAllAvailable())
    rows = read_all(reader, reader.partitions(end, later))
    assert [(row["offset"], row["value"]) for row in rows] == [(99, b"value")]


def test_a_stream_outlives_a_micro_batch_that_is_gone_everywhere(quorum: Quorum) -> None:
    """It was planned, and the query stood still until retention took it."""
    paths = [quorum.replica(id, (1, 100)) for id in (1, 2, 3)]

    def reader(loss: str) -> Any:
        options = {"path": str(quorum.path), "failOnDataLoss": loss, "timeout": "0.1"}
        return LogSource(options).streamReader(struct(["offset", "value"]))

    start = reader("true").initialOffset()
    end = reader("true").latestOffset(start, ReadAllAvailable())
    for path in paths:
        files = begin_at(path, 200, 1)
        files.append(files.roll(), [b"%d of epoch 1" % n for n in range(200, 210)])
    with pytest.raises(errors.OffsetOutOfRange, match="starts at offset 200 by now"):
        reader("true").partitions(start, end)
    on = reader("false")
    assert read_all(on, on.partitions(start, end)) == []
    later = on.latestOffset(end, ReadAllAvailable())
    rows = read_all(on, on.partitions(end, later))
    assert [row["offset"] for row in rows] == [199, *range(200, 210)]


@pytest.mark.processes
def test_a_leader_killed_with_a_tail_that_was_never_committed(tmp_path: Path) -> None:
    """By the directory of a quorum that runs, as by its servers: batch, and stream.

    Then it is removed, and the two that are left are killed: they vote, and it does not.
    """
    with kraftfast.LocalQuorum(
        tmp_path / "q", 3, transport="socket", restart=False, **SMALL
    ) as quorum:
        with quorum.producer() as producer:
            producer.append_many([b"committed %d" % n for n in range(100)])
        leader = quorum.leader()
        assert leader is not None
        pids = {id: status["pid"] for id, status in quorum.statuses().items()}
        followers = [id for id in pids if id != leader]
        for id in followers:
            os.kill(pids[id], signal.SIGSTOP)
        producer = quorum.producer()
        with contextlib.suppress(errors.KraftfastError):
            for k in range(40):
                lost = [b"tail %d-%d" % (k, n) for n in range(5)]
                producer.append_many_nowait(lost, timeout=0.2)
                with contextlib.suppress(errors.KraftfastError):
                    producer.flush(timeout=0.01)
        held = quorum.status(leader)["end_offset"]
        os.kill(pids[leader], signal.SIGKILL)
        with contextlib.suppress(errors.KraftfastError):
            producer.close(timeout=0.1)
        for id in followers:
            os.kill(pids[id], signal.SIGCONT)
        quorum.wait_leader(20)
        servers = ",".join(f"{host}:{port}" for host, port in quorum.addresses.values())
        reader = LogSource({"path": quorum.path}).streamReader(struct(["offset", "value"]))
        start = {"quorum": 0}
        end = reader.latestOffset(start, ReadAllAvailable())
        rows = read_all(reader, reader.partitions(start, end))
        with quorum.producer() as producer:
            producer.append_many([b"real %d" % n for n in range(250)])
        deadline = time.monotonic() + 10
        truth = [row["value"] for row in rows_of(LogSource({"bootstrap.servers": servers}))]
        while len(rows) < len(truth) and time.monotonic() < deadline:
            later = reader.latestOffset(end, ReadAllAvailable())
            rows += read_all(reader, reader.partitions(end, later))
            end = later
        assert held > 150, "there was a tail"
        assert truth[-1] == b"real 249"
        assert [row["value"] for row in rows] == truth == values(quorum.path)
        quorum.remove_voter(leader)
        with quorum.producer() as producer:
            producer.append_many([b"by two %d" % n for n in range(50)])
        pids = {id: status["pid"] for id, status in quorum.statuses().items() if id != leader}
        for pid in pids.values():
            os.kill(pid, signal.SIGKILL)
        places = [os.path.join(quorum.path, str(id), ".lock") for id in pids]
        while any(map(Disk().is_locked, places)) and time.monotonic() < deadline + 10:
            time.sleep(0.02)
        assert values(quorum.path) == truth + [b"by two %d" % n for n in range(50)]


def test_an_audit_knows_a_tail_that_never_was_committed(quorum: Quorum) -> None:
    """Of an earlier epoch than what stands there elsewhere; not what this replica had committed."""
    path = quorum.replica(1, (1, 100), (1, 80))
    for id in (2, 3):
        quorum.replica(id, (1, 100), (2, 130))
    places = find_places(str(quorum.path))
    tails = void_tails(places)
    (tail,) = tails.values()
    assert (tail.kind, tail.replica, tail.note) == ("tail", str(path), True)
    assert (tail.first_offset, tail.end_offset) == (100, 180)
    bounds = {place.name: 100 if place.name in tails else None for place in places}
    assert shared_offsets(places, bounds) == range(0, 100)
    write_floor(Disk(), str(path), OffsetAndEpoch(140, 1))
    assert void_tails(places) == {}, "a replica that says these are committed is a divergence"


def test_replicas_are_alike_wherever_their_segments_begin(tmp_path: Path) -> None:
    """And however far each of them is: what all have is compared."""
    made = []
    for number, (segments, batches) in enumerate([(1, 40), (4, 10), (8, 4)]):
        files = LogFiles(tmp_path / f"replica{number}")
        for _ in range(segments):
            file = files.roll()
            for _ in range(batches):
                files.append(file, list(files.values(4)), epoch=1)
        made.append(files)
    places = find_places(str(tmp_path / "replica*"))

    def found() -> list[Digest]:
        shared = shared_offsets(places, {place.name: None for place in places})
        assert shared == range(0, 128)
        parts = [part for place in places for part in header_pieces(place, 4096, None)]
        return [digest_of(part, shared) for part in parts]

    names = [place.name for place in places]
    assert alike(found(), names)
    made[1].flip(3, 15)  # an epoch, which no CRC covers
    assert not alike(found(), names)
