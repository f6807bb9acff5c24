"""The durable floor of the committed offset: written, read, held against the log (D23)."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftfast.errors import CorruptLog, DiskFull
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.committed_floor import (
    FLOOR,
    NOTHING,
    check_floor,
    read_floor,
    write_floor,
)
from kraftfast.node.storage.floor_keeper import PERIOD_MS, CommittedFloor
from kraftfast.types import OffsetAndEpoch


def log_with(end_offset: int, flushed: int, start: int = 0) -> SimpleNamespace:
    """A log of epochs 1 (from 0) and 3 (from 10)."""
    return SimpleNamespace(
        epochs=[(1, 0), (3, 10)],
        log_start_offset=start,
        end_offset=end_offset,
        flushed_end_offset=flushed,
        active=SimpleNamespace(base_offset=start),
    )


def core_with(committed: int, last_voters: int = -1, snapshot: int = 0) -> SimpleNamespace:
    return SimpleNamespace(
        uncuttable_offset=committed,
        history=SimpleNamespace(last_offset=last_voters),
        snapshots=(OffsetAndEpoch(snapshot, 1),) if snapshot else (),
    )


def at_once(job, done) -> None:
    done(job())


def test_a_floor_is_read_back(tmp_path: Path) -> None:
    assert read_floor(Disk(), str(tmp_path)) == NOTHING
    write_floor(Disk(), str(tmp_path), OffsetAndEpoch(12, 3))
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(12, 3)


def test_every_flipped_bit_is_told(tmp_path: Path) -> None:
    write_floor(Disk(), str(tmp_path), OffsetAndEpoch(12, 3))
    data = (tmp_path / FLOOR).read_bytes()
    for bit in range(8 * len(data)):
        flipped = bytearray(data)
        flipped[bit // 8] ^= 1 << bit % 8
        (tmp_path / FLOOR).write_bytes(flipped)
        try:
            assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(12, 3)  # case, white space
        except CorruptLog as error:
            assert FLOOR in str(error)


def test_a_log_that_ends_below_the_floor_is_refused(tmp_path: Path) -> None:
    write_floor(Disk(), str(tmp_path), OffsetAndEpoch(12, 3))
    CommittedFloor(Disk(), str(tmp_path), log_with(12, 12))
    for end, missing in ((10, "2 committed records are missing"), (11, "1 committed record")):
        with pytest.raises(CorruptLog, match=missing):
            CommittedFloor(Disk(), str(tmp_path), log_with(end, end))


def test_another_log_is_refused_by_the_epoch_before_the_floor(tmp_path: Path) -> None:
    check_floor("", OffsetAndEpoch(12, 3), 20, -1)  # the log begins above it
    write_floor(Disk(), str(tmp_path), OffsetAndEpoch(10, 3))
    CommittedFloor(Disk(), str(tmp_path), log_with(20, 20, start=10))
    with pytest.raises(CorruptLog, match="of epoch 1"):
        CommittedFloor(Disk(), str(tmp_path), log_with(20, 20))


def test_it_is_never_above_what_is_committed_or_flushed(tmp_path: Path) -> None:
    log = log_with(20, 9)
    floor = CommittedFloor(Disk(), str(tmp_path), log)
    floor.tend(core_with(15), 0, at_once)
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(9, 1)
    log.flushed_end_offset = 20
    floor.tend(core_with(15), PERIOD_MS - 1, at_once)
    assert floor.stored == OffsetAndEpoch(9, 1)  # now and then
    floor.tend(core_with(15), PERIOD_MS, at_once)
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(15, 3)
    floor.close(core_with(17))
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(17, 3)


def test_a_committed_voter_set_is_covered_at_once(tmp_path: Path) -> None:
    floor = CommittedFloor(Disk(), str(tmp_path), log_with(20, 20))
    floor.tend(core_with(5), 0, at_once)
    floor.tend(core_with(8, last_voters=7), 1, at_once)
    assert floor.stored == OffsetAndEpoch(8, 1)


def test_the_first_commit_of_a_segment_is_covered_at_once(tmp_path: Path) -> None:
    log = log_with(20, 20)
    floor = CommittedFloor(Disk(), str(tmp_path), log)
    floor.tend(core_with(11), 0, at_once)
    log.active.base_offset = 12
    floor.tend(core_with(12), 1, at_once)
    assert floor.stored == OffsetAndEpoch(11, 3), "nothing of the new segment is committed"
    floor.tend(core_with(14), 2, at_once)
    assert floor.stored == OffsetAndEpoch(14, 3)
    floor.tend(core_with(15), 3, at_once)
    assert floor.stored == OffsetAndEpoch(14, 3), "now and then"


def test_the_first_commit_behind_a_snapshot_is_covered_at_once(tmp_path: Path) -> None:
    """Else a snapshot would excuse that the newest segment is missing, and what was behind it."""
    floor = CommittedFloor(Disk(), str(tmp_path), log_with(20, 20))
    floor.tend(core_with(11), 0, at_once)
    floor.tend(core_with(13, snapshot=13), 1, at_once)
    assert floor.stored == OffsetAndEpoch(11, 3), "the snapshot stands for all that is committed"
    floor.tend(core_with(14, snapshot=13), 2, at_once)
    assert floor.stored == OffsetAndEpoch(14, 3)
    floor.tend(core_with(15, snapshot=13), 3, at_once)
    assert floor.stored == OffsetAndEpoch(14, 3), "now and then"


def test_a_full_disk_puts_it_off(tmp_path: Path) -> None:
    class Full(Disk):
        def replace_file(self, path: str, data: bytes) -> None:
            raise DiskFull("no space left")

    floor = CommittedFloor(Full(), str(tmp_path), log_with(20, 20))
    floor.tend(core_with(5), 0, at_once)
    floor.close(core_with(6))
    assert floor.stored == NOTHING
    floor.disk = Disk()
    floor.tend(core_with(6), PERIOD_MS, at_once)
    assert floor.stored == OffsetAndEpoch(6, 1)


def test_a_write_that_comes_late_lowers_nothing(tmp_path: Path) -> None:
    """A long job may keep the thread beside the loop until after the stop."""
    floor = CommittedFloor(Disk(), str(tmp_path), log_with(20, 20))
    jobs = []
    floor.tend(core_with(5), 0, lambda job, _done: jobs.append(job))
    floor.close(core_with(15))
    jobs[0]()
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(15, 3)


def test_a_stop_waits_for_the_write_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two writers of one temporary file would leave a floor that does not check, for good."""
    floor = CommittedFloor(Disk(), str(tmp_path), log_with(2000, 2000))
    threads: list[threading.Thread] = []
    written, go_on = threading.Event(), threading.Event()
    truncate = os.ftruncate

    def slowly(fd: int, size: int) -> None:
        if threading.current_thread() in threads:
            written.set()
            go_on.wait(0.5)
        truncate(fd, size)

    def ask(job, _done) -> None:
        threads.append(threading.Thread(target=job))
        threads[0].start()

    monkeypatch.setattr(os, "ftruncate", slowly)
    floor.tend(core_with(5), 0, ask)
    written.wait(10)
    floor.close(core_with(1500))
    go_on.set()
    threads[0].join()
    assert read_floor(Disk(), str(tmp_path)) == OffsetAndEpoch(1500, 3)
