"""Snapshots of each ``kraft.version``, and which of several stay."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftfast.errors import Closed
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.log_start import install_snapshot
from kraftfast.log.snapshots.snapshot_files import delete_snapshots, snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.record.control import ControlRecord
from kraftfast.types import KRaftVersion, OffsetAndEpoch
from tests.log.kit import Home, fill, snapshot

ID = OffsetAndEpoch(113, 4)


# covers: testBuilderKRaftVersion0, testBuilderKRaftVersion1WithoutVoterSet
@pytest.mark.parametrize("controls", [(), (KRaftVersion(1),)])
def test_a_snapshot_has_the_control_records_that_there_are(
    tmp_path: Path, controls: tuple[ControlRecord, ...]
) -> None:
    """None under ``kraft.version`` 0; the voters of a static quorum are in no file."""
    with SnapshotWriter(
        Disk(), str(tmp_path), ID, last_contained_log_timestamp=7, controls=controls
    ) as writer:
        writer.append(b"value")
        writer.freeze()
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        assert tuple(reader.controls) == controls
        assert reader.header is not None and reader.check() == 1


# covers: testAppendToFrozenSnapshot
def test_nothing_is_added_to_a_frozen_snapshot(tmp_path: Path) -> None:
    writer = SnapshotWriter(Disk(), str(tmp_path), ID, last_contained_log_timestamp=7)
    writer.append(b"value")
    writer.freeze()
    with pytest.raises(Closed):
        writer.append(b"more")
    with pytest.raises(Closed):
        writer.freeze()
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        assert [record.value for record in reader.records()] == [b"value"]


# covers: testTruncateWillRemoveOlderSnapshot
def test_a_log_that_begins_anew_keeps_no_older_snapshot(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = home.open()
    fill(log, 20)
    log.flush()
    snapshot(home, 8)
    later = snapshot(home, 40)
    install_snapshot(log, later)
    home.close()
    log = home.open()
    assert (log.log_start_offset, log.end_offset) == (40, 40)
    assert snapshot_ids(home.disk, home.log_path) == [later]
    home.close()


# covers: testReadMissingSnapshot, testDeleteNonExistentSnapshot
def test_a_snapshot_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        open_snapshot(Disk(), str(tmp_path), ID)
    kept = SnapshotWriter(
        Disk(), str(tmp_path), OffsetAndEpoch(7, 1), last_contained_log_timestamp=7
    )
    kept.freeze()
    delete_snapshots(Disk(), str(tmp_path), [ID])
    assert snapshot_ids(Disk(), str(tmp_path)) == [OffsetAndEpoch(7, 1)]


# covers: testCleanupPartialSnapshots
def test_what_is_left_of_unfinished_snapshots_goes(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    fill(home.open(), 20)
    home.log.flush()
    kept = snapshot(home, 8)
    unfinished = SnapshotWriter(home.disk, home.log_path, ID, last_contained_log_timestamp=7)
    unfinished.append(b"value")
    assert any(name.endswith(".part") for name in os.listdir(home.log_path))
    home.kill()
    home.open()
    assert not any(name.endswith(".part") for name in os.listdir(home.log_path))
    assert snapshot_ids(home.disk, home.log_path) == [kept]
    home.close()
