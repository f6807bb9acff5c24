"""Snapshot files: written as Kafka writes them, read whatever a disk has made of them."""

from __future__ import annotations

import errno
import gc
import os
import random
import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.records.readers import read_batch

from kraftfast.errors import (
    Closed,
    CorruptLog,
    DiskFull,
    FlushFailed,
    InvalidOption,
    RecordsRefused,
    RecordTooLarge,
)
from kraftfast.log.disk import Disk
from kraftfast.log.reading.verify import verify_file
from kraftfast.log.snapshots import snapshot_reader
from kraftfast.log.snapshots.snapshot_files import (
    BOOTSTRAP,
    delete_snapshots,
    id_of,
    snapshot_ids,
    snapshot_name,
    snapshot_path,
)
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader, open_snapshot
from kraftfast.log.snapshots.snapshot_writer import BATCH_BYTES, SnapshotWriter, write_bootstrap
from kraftfast.record.batch import batch_at
from kraftfast.record.control import OtherControl, SnapshotFooter, SnapshotHeader, control_batch
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.types import Endpoint, KRaftVersion, KRaftVoters, OffsetAndEpoch, Voter, VoterSet
from tests import kafka_tools
from tests.log.crash_disk import CrashDisk, PowerCut, cuts

ID = OffsetAndEpoch(113, 4)
STAMP = 1_700_000_000_000
VOTERS = KRaftVoters(
    VoterSet([Voter(1, bytes(range(16)), (Endpoint("CONTROLLER", "localhost", 9093),), 0, 1)])
)
CONTROLS = (KRaftVersion(1), VOTERS)
FOOTER_TAGS = ((10010, b"ours"),)
COMMITTED = Path(__file__).parent / "data"


def written(path: Path, values: list[bytes], records: str = "any") -> str:
    with SnapshotWriter(
        Disk(), str(path), ID, last_contained_log_timestamp=STAMP, controls=CONTROLS,
        records=records, timestamp=STAMP + 1,
    ) as writer:  # fmt: skip
        writer.extend(values)
        writer.freeze(FOOTER_TAGS)
    return snapshot_path(str(path), ID)


# --- what is written ------------------------------------------------------------------------------


# covers: testSnapshotDelimiters, testWriteReadSnapshot, testKBuilderRaftVersion1WithVoterSet
def test_what_was_written_is_read(tmp_path: Path) -> None:
    values = [b"value %d" % i * 40 for i in range(5000)] + [b"x" * (BATCH_BYTES + 5), b"last"]
    path = written(tmp_path, values)
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        assert reader.header == SnapshotHeader(STAMP) and reader.footer is None
        assert reader.controls == CONTROLS
        assert [record.value for record in reader.records()] == values
        assert reader.footer == SnapshotFooter(FOOTER_TAGS)
        assert reader.end_offset == len(values) + 4 and reader.position == reader.size
    assert os.listdir(tmp_path) == [snapshot_name(ID)]
    assert os.stat(path).st_mode & 0o777 == 0o400
    assert verify_file(path, records=True).end_offset == len(values) + 4


def test_other_readers_agree(tmp_path: Path) -> None:
    """kio, batch by batch: offsets from 0, the snapshot's epoch, the header first."""
    path = written(tmp_path, [b"v%d" % i * 1000 for i in range(500)], "kafka-raft")
    data, at, offset, values, controls = Path(path).read_bytes(), 0, 0, [], 0
    while at < len(data):
        batch, size = read_batch(data[at : at + batch_at(data, at).size], 0)
        at += size
        assert batch.base_offset == offset and batch.partition_leader_epoch == ID.epoch
        offset += len(batch.records)
        values += [record.value for record in batch.records if record.key is None]
        controls += sum(record.key is not None for record in batch.records)
    assert values == [b"v%d" % i * 1000 for i in range(500)] and controls == 4


def test_kafka_reads_ours(tmp_path: Path) -> None:
    path = written(tmp_path, [b"value %d" % i for i in range(300)], "kafka-raft")
    write_bootstrap(Disk(), str(tmp_path), CONTROLS)
    paths = [Path(snapshot_path(str(tmp_path), BOOTSTRAP)), Path(path)]
    done = kafka_tools.dump_log(paths, "--print-data-log")
    assert done.returncode == 0, done.stderr
    assert "Snapshot end offset: 113, epoch: 4" in done.stdout
    assert "isvalid: false" not in done.stdout and done.stdout.count("isvalid: true") == 5
    for said in ("SnapshotHeader", "SnapshotFooter", "KRaftVersion", "KRaftVoters"):
        assert done.stdout.count(said) == 2, said
    assert done.stdout.count("payload: value ") == 300


def test_the_bootstrap_snapshot_is_kafkas(golden: Path, tmp_path: Path) -> None:
    """Ours from the records of Kafka's, byte for byte but for the time of the footer."""
    (source,) = (golden / "disk/dynamic-4.3.0/stopped/n1").rglob("0" * 20 + "-*.checkpoint")
    with SnapshotReader(Disk(), str(source)) as reader:
        assert reader.check() == 0 and reader.snapshot_id == BOOTSTRAP
        with SnapshotWriter(
            Disk(), str(tmp_path), BOOTSTRAP, controls=reader.controls,
            last_contained_log_timestamp=reader.last_contained_log_timestamp,
            timestamp=batch_at(source.read_bytes()).base_timestamp,
        ) as writer:  # fmt: skip
            writer.freeze()
    ours, theirs = ((each / source.name).read_bytes() for each in (tmp_path, source.parent))
    first = batch_at(theirs).size
    assert ours[:first] == theirs[:first] and len(ours) == len(theirs)
    footers = [list(batch_at(each, first).records()) for each in (ours, theirs)]
    assert footers[0][0]._replace(timestamp=0) == footers[1][0]._replace(timestamp=0)


def test_kafkas_snapshots_load(recorded: list[Path]) -> None:
    found = [path for each in recorded for path in each.glob("*.checkpoint")]
    assert found
    for path in found:
        with SnapshotReader(Disk(), str(path)) as reader:
            assert reader.snapshot_id == id_of(path.name)
            assert reader.check() > 0 or reader.snapshot_id == BOOTSTRAP
            assert reader.footer == SnapshotFooter() and reader.last_contained_log_timestamp > 0


# covers: testPartialWriteReadSnapshot
def test_a_small_piece_at_a_time_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = [bytes(i) for i in range(200)]  # many zeros: cut anywhere among them
    written(tmp_path, values)
    for piece in (1, 7, 61, 1000):
        monkeypatch.setattr(snapshot_reader, "PIECE_BYTES", piece)
        with open_snapshot(Disk(), str(tmp_path), ID) as reader:
            assert [record.value for record in reader.records()] == values


# --- refusals -------------------------------------------------------------------------------------


# covers: testAbortedSnapshot
def test_what_cannot_be_written_is_refused(tmp_path: Path) -> None:
    for wrong in (OffsetAndEpoch(-1, 0), OffsetAndEpoch(0, 2**31), OffsetAndEpoch(2**63, 0)):
        with pytest.raises(InvalidOption):
            SnapshotWriter(Disk(), str(tmp_path), wrong, last_contained_log_timestamp=0)
    writer = SnapshotWriter(
        Disk(), str(tmp_path), ID, last_contained_log_timestamp=0, records="kafka-raft"
    )
    with pytest.raises(RecordsRefused):
        writer.append(b"value", key=b"key")
    with pytest.raises(RecordTooLarge):
        writer.append(bytes(8 * 1024 * 1024))
    writer.append(b"value")
    writer.abort()
    writer.abort()
    with pytest.raises(Closed):
        writer.append(b"value")
    with pytest.raises(Closed):
        writer.freeze()
    assert os.listdir(tmp_path) == []
    with pytest.raises(InvalidOption):
        write_bootstrap(Disk(), str(tmp_path), ())


# covers: testCreateSnapshotWithSameId
def test_two_may_be_on_their_way(tmp_path: Path) -> None:
    """One that is fetched and one that is made; whoever is first has the name."""
    one, other = (
        SnapshotWriter(Disk(), str(tmp_path), ID, last_contained_log_timestamp=0) for _ in "ab"
    )
    assert len(os.listdir(tmp_path)) == 2 and snapshot_ids(Disk(), str(tmp_path)) == []
    one.freeze()
    other.abort()
    assert snapshot_ids(Disk(), str(tmp_path)) == [ID]


# covers: testValidSnapshotFilename, testValidPartialSnapshotFilename
# covers: testValidDeletedSnapshotFilename, testInvalidSnapshotFilenames
def test_names() -> None:
    for name in ("x.checkpoint", snapshot_name(ID) + ".deleted", snapshot_name(ID) + ".part",
                 "99999999999999999999-0000000001.checkpoint", "bootstrap.checkpoint"):  # fmt: skip
        assert id_of(name) is None
    assert id_of("/some/where/" + snapshot_name(ID)) == ID


# covers: testLatestSnapshotId
def test_ids_are_listed_by_epoch_first_and_deleted(tmp_path: Path) -> None:
    ids = [OffsetAndEpoch(900, 1), OffsetAndEpoch(500, 2), OffsetAndEpoch(600, 2)]
    for each in reversed(ids):
        (tmp_path / snapshot_name(each)).touch()
    (tmp_path / (snapshot_name(ID) + ".part")).touch()
    assert snapshot_ids(Disk(), str(tmp_path)) == ids
    delete_snapshots(Disk(), str(tmp_path), ids[:2])
    assert snapshot_ids(Disk(), str(tmp_path)) == ids[2:]


@pytest.mark.parametrize(
    "made, reason",
    [
        (b"", "footer"),
        ([encode_batch([Record(0, 0, None, b"v")], leader_epoch=4)], "header"),
        ([control_batch([SnapshotFooter()], timestamp=0, leader_epoch=4)], "header"),
        ([control_batch([OtherControl(99, b"x")], timestamp=0, leader_epoch=4)], "header"),
        ([control_batch([SnapshotHeader(0)], timestamp=0, leader_epoch=3)], "epoch"),
        ([control_batch([SnapshotHeader(0)], timestamp=0, leader_epoch=5)], "epoch"),
        ([control_batch([SnapshotHeader(0)], timestamp=0, leader_epoch=4)], "footer"),
        (
            [control_batch([SnapshotHeader(0), SnapshotHeader(0)], timestamp=0, leader_epoch=4)],
            "second",
        ),
        (
            [
                control_batch(
                    [SnapshotHeader(0), SnapshotFooter(), KRaftVersion(1)],
                    timestamp=0,
                    leader_epoch=4,
                )
            ],
            "follows",
        ),
        (
            [
                control_batch([SnapshotHeader(0), SnapshotFooter()], timestamp=0, leader_epoch=4),
                encode_batch([Record(2, 0, None, b"v")], leader_epoch=4),
            ],
            "follows",
        ),
    ],
)
def test_what_is_no_snapshot_is_refused(
    made: list[bytes] | bytes, reason: str, tmp_path: Path
) -> None:
    path = tmp_path / snapshot_name(ID)
    path.write_bytes(b"".join(made) if isinstance(made, list) else made)
    with pytest.raises(CorruptLog, match=reason), SnapshotReader(Disk(), str(path)) as reader:
        reader.check()


def test_unknown_controls_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / snapshot_name(ID)
    first = control_batch([SnapshotHeader(7)], timestamp=0, leader_epoch=4)
    middle = control_batch([OtherControl(99, b"x")], timestamp=0, base_offset=1, leader_epoch=4)
    last = control_batch([SnapshotFooter()], timestamp=0, base_offset=2, leader_epoch=4)
    path.write_bytes(first + middle + last)
    with SnapshotReader(Disk(), str(path)) as reader:
        assert reader.check() == 0


@given(seed=st.integers(0, 2**32))
def test_damage_is_found(seed: int, tmp_path_factory: pytest.TempPathFactory) -> None:
    """Any bit, any cut, any tail: an error with its place, or (bytes that no CRC covers) none."""
    chance = random.Random(seed)
    home = tmp_path_factory.mktemp("damage")
    path = written(home, [b"value %d" % i for i in range(200)])
    whole = Path(path).read_bytes()
    kind = chance.randrange(3)
    if kind == 0:
        at = chance.randrange(len(whole))
        data = bytearray(whole)
        data[at] ^= 1 << chance.randrange(8)
    elif kind == 1:
        data = bytearray(whole[: chance.randrange(len(whole))])
    else:
        data = bytearray(whole + chance.choice((b"\0", bytes(100), b"x" * 70, whole[-75:])))
    os.unlink(path)
    Path(path).write_bytes(data)
    with pytest.raises(CorruptLog) as caught, SnapshotReader(Disk(), path) as reader:
        reader.check()
    assert 0 <= caught.value.position <= len(data) and caught.value.path == path
    shutil.rmtree(home)


# --- crashes --------------------------------------------------------------------------------------

HOME = "/log"


def freeze(disk: CrashDisk) -> None:
    disk.make_directory(HOME)
    with SnapshotWriter(disk, HOME, ID, last_contained_log_timestamp=0) as writer:
        writer.extend(bytes([65 + i % 26]) * 3000 for i in range(300))
        writer.freeze()


def test_a_cut_at_any_step_leaves_all_of_it_or_nothing() -> None:
    whole = CrashDisk()
    freeze(whole)
    kept = lost = 0
    for cut_at in range(len(whole.steps) + 1):
        disk = CrashDisk(cut_at)
        try:
            freeze(disk)
        except PowerCut:
            pass
        for after in cuts(disk, cut_at):
            found = snapshot_ids(after, HOME)
            if cut_at == len(whole.steps):
                assert found == [ID], "a frozen snapshot was lost"
            if found:
                kept += 1
                with open_snapshot(after, HOME, ID) as reader:
                    assert reader.check() == 300
            else:
                lost += 1
    assert kept > 5 and lost > 5


@pytest.mark.parametrize("space", [0, 100, 400_000])
def test_a_full_disk_leaves_nothing(space: int) -> None:
    disk = CrashDisk()
    disk.space = space
    with pytest.raises(DiskFull):
        freeze(disk)
    assert disk.list_directory(HOME) == []


@pytest.mark.parametrize("call", ["write", "rename"])
def test_one_that_is_tried_again_and_again_leaves_no_file_and_no_descriptor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """A full disk refuses its first bytes, or its name; a replica tries again each second."""

    def fails(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space")

    monkeypatch.setattr(os, call, fails)
    gc.collect()  # what tests before this one left open is closed now, and not while it counts
    descriptors = os.listdir("/proc/self/fd")
    for _ in range(3):
        with pytest.raises(DiskFull):
            written(tmp_path, [b"value"])
    assert os.listdir(tmp_path) == []
    assert len(os.listdir("/proc/self/fd")) == len(descriptors)


# covers: testFailingFreeze
def test_a_failed_sync_is_no_snapshot() -> None:
    disk = CrashDisk()
    disk.fail_syncs_from = 0
    with pytest.raises(FlushFailed):
        freeze(disk)
    assert snapshot_ids(disk, HOME) == []
