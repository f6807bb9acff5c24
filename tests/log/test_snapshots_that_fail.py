"""A snapshot that could not be written whole gets no name, whatever its writer does then."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import Closed, DiskFull, FlushFailed, InvalidOption, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_reader import PIECE_BYTES, open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.types import OffsetAndEpoch

ID = OffsetAndEpoch(113, 4)


def writer_at(path: Path) -> SnapshotWriter:
    return SnapshotWriter(Disk(), str(path), ID, last_contained_log_timestamp=0)


@pytest.mark.parametrize("size", [300_000, 9_000])
def test_a_snapshot_that_lacks_a_piece_gets_no_name(tmp_path: Path, size: int) -> None:
    """D9: who goes on after a full disk has no damaged snapshot, behind which the log is cut."""
    with writer_at(tmp_path) as writer:
        write = writer._file.write

        def fills(data: Any) -> None:
            writer._file.write = write
            write(bytes(data)[: len(data) // 2])
            raise DiskFull("no space left")

        writer._file.write = fills
        with pytest.raises(DiskFull):
            writer.extend([bytes(size)] * 60)
        for goes_on in (lambda: writer.append(b"more"), writer.freeze):
            with pytest.raises(DiskFull):
                goes_on()
    assert not list(tmp_path.iterdir())


def test_a_flush_that_failed_is_not_tried_again(tmp_path: Path) -> None:
    """D9: the kernel may have given up the pages that it could not write."""
    with writer_at(tmp_path) as writer:
        sync = writer._file.sync

        def fails() -> None:
            writer._file.sync = sync
            raise FlushFailed("fsync failed")

        writer._file.sync = fails
        for _ in "ab":
            with pytest.raises(FlushFailed):
                writer.freeze()
    assert not list(tmp_path.iterdir())


def test_a_failed_flush_is_not_hidden_by_a_failed_removal(tmp_path: Path) -> None:
    """D9: a file system that turned read-only said "no space", and the replica went on."""

    class ReadOnly(Disk):
        def unlink(self, path: str) -> None:
            raise StorageError(f"cannot remove {path}: read-only file system")

    def fails() -> None:
        raise FlushFailed("fsync failed")

    with pytest.raises(FlushFailed):
        with SnapshotWriter(ReadOnly(), str(tmp_path), ID, last_contained_log_timestamp=0) as it:
            it._file.sync = fails
            it.freeze()
    with pytest.raises(FlushFailed):  # as NFS does
        with SnapshotWriter(Disk(), str(tmp_path), ID, last_contained_log_timestamp=0) as it:
            it._file.sync = fails
            it._file.close = lambda: os.close(1 << 30)
            it.freeze()
    with pytest.raises(StorageError, match="cannot remove"):
        with SnapshotWriter(ReadOnly(), str(tmp_path), ID, last_contained_log_timestamp=0):
            pass


def test_a_failure_that_is_caught_again_and_again_keeps_nothing(tmp_path: Path) -> None:
    """I25: each time its traceback grew, by the frames and values that it went through."""
    with writer_at(tmp_path) as writer:

        def fills(_data: Any) -> None:
            raise DiskFull("no space left")

        writer._file.write = fills
        for _ in range(100):
            with pytest.raises(DiskFull) as caught:
                writer.append(bytes(300_000))
    assert len(caught.traceback) < 10


def test_a_state_machine_only_appends(tmp_path: Path) -> None:
    """I24: what it froze would lack the producers that the footer holds."""
    with writer_at(tmp_path) as writer:
        with writer.lent():
            writer.append(b"state")
            for ends in (writer.freeze, writer.abort, lambda: writer.__exit__()):
                with pytest.raises(InvalidOption, match="StateMachine.snapshot"):
                    ends()
        for appends in (lambda: writer.append(b"late"), lambda: writer.extend([b"late"])):
            with pytest.raises(Closed, match="has returned"):
                appends()
        with pytest.raises(InvalidOption, match="lent once"), writer.lent():
            pass
        writer.freeze()
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        assert reader.check() == 1


def test_a_state_machine_does_not_lift_the_refusal(tmp_path: Path) -> None:
    with writer_at(tmp_path) as writer, writer.lent():
        with pytest.raises(InvalidOption, match="lent once"), writer.lent():
            pass
        with pytest.raises(InvalidOption, match="StateMachine.snapshot"):
            writer.freeze()


@pytest.mark.parametrize("size", [1, PIECE_BYTES])
def test_a_reader_that_was_closed_says_so(tmp_path: Path, size: int) -> None:
    with writer_at(tmp_path) as writer:
        writer.extend([bytes(size), bytes(size)])
        writer.freeze()
    reader = open_snapshot(Disk(), str(tmp_path), ID)
    reader.close()
    with pytest.raises(Closed):
        list(reader.records())
    assert not issubclass(Closed, StorageError)
