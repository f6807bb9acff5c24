"""A full disk: trims and indexes are put off, appends wait, and all goes on when there is space."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import DiskFull, FlushFailed
from kraftfast.log import segment_file
from kraftfast.log.disk import Disk
from kraftfast.log.nursery import RETRY_MS
from kraftfast.log.reading.verify import verify
from kraftfast.log.small_files import epoch_checkpoint
from kraftfast.log.snapshots.log_start import delete_before, install_snapshot
from kraftfast.log.spare import Spare
from kraftfast.node.snapshots.retention import Retention
from kraftfast.types import OffsetAndEpoch
from tests.log.crash_disk import CrashDisk
from tests.log.kit import (
    Home,
    SteadyPreparer,
    append,
    batch_of_size,
    content,
    fill,
    snapshot,
    tend_until,
)


class FullDisk(Disk):
    """A disk on which no file can be made or grow while ``full``."""

    full = False

    def _check(self) -> None:
        if self.full:
            raise DiskFull("no space left: the test has used it up")

    def replace_file(self, path: str, data: bytes) -> None:
        self._check()
        super().replace_file(path, data)

    def create_segment(self, path: str, capacity: int) -> Any:
        self._check()
        return super().create_segment(path, capacity)


def full(*_: Any) -> None:
    """Refuse whatever is asked."""
    raise DiskFull("no space left: the test has used it up")


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "replica", FullDisk())


def rolled(home: Home) -> Any:
    """A flushed log of two segments, neither of them trimmed."""
    log = home.open()
    fill(log, 20, 3000)
    tend_until(log, log.roll)
    fill(log, 1)
    log.flush()
    assert [segment.has_page for segment in log.segments] == [True, True]
    return log


def test_a_trim_is_put_off_until_there_is_space(home: Home) -> None:
    log, now_ms = rolled(home), 10**6
    home.disk.full = True  # type: ignore[attr-defined]
    for _ in range(10):
        now_ms += 1000
        log.tend(now_ms)
    assert log.retire() == 0 and log.segments[0].has_page
    fill(log, 3)
    assert log.flush() == log.end_offset
    home.disk.full = False  # type: ignore[attr-defined]
    for _ in range(10):
        now_ms += 1000
        log.tend(now_ms)
    assert not log.segments[0].has_page
    home.close()


def test_a_killed_replica_starts_on_a_full_disk(home: Home) -> None:
    """Also one whose trims and indexes wait for space; it goes on when there is some."""
    log = rolled(home)
    log.retire()
    stored = content(log)
    home.kill()
    os.unlink(os.path.join(home.log_path, "0" * 20 + ".index"))
    home.disk.full = True  # type: ignore[attr-defined]
    log = home.open(prepare_bytes=200_000)
    assert content(log) == stored and isinstance(log.error, DiskFull)
    fill(log, 2)
    log.truncate(log.end_offset - 1)
    append(log, batch_of_size(200), 2)
    log.flush()
    home.close()
    home.disk.full = False  # type: ignore[attr-defined]
    log = home.open()
    assert log.last_epoch == 2 and not log.segments[0].has_page
    home.close()
    home.persist()
    assert verify(home.path).segments[0].index_entries is not None


def test_an_epoch_waits_for_the_space_of_its_checkpoint(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    log, copied = home.open(), batch_of_size(300, base_offset=5, epoch=2)
    fill(log, 5)

    monkeypatch.setattr(home.disk, "rewrite_file", full)
    log.tend(1000)
    assert not log.append(batch_of_size(300), 2) and log.copy(copied, 2) == 0
    assert not log.damaged() and isinstance(log.error, DiskFull)
    assert (log.end_offset, log.last_epoch, log.epochs) == (5, 1, [(1, 0)])
    fill(log, 1)
    monkeypatch.undo()
    copied = batch_of_size(300, base_offset=6, epoch=2)
    assert not log.copy(copied, 2), "not asked for again at once"
    log.tend(1000 + RETRY_MS)
    assert log.copy(copied, 2) == 300 and log.error is None
    home.close()


def test_a_roll_waits_for_the_space_of_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home("/replica", CrashDisk())
    log = rolled(home)
    log.retire()
    tend_until(
        log, lambda: log.nursery.spare is not None and log.nursery.spare.stage == Spare.READY
    )
    with monkeypatch.context() as patched:
        patched.setattr(home.disk, "rename", full)
        assert not log.roll() and isinstance(log.error, DiskFull)
        assert len(log.segments) == 2
        fill(log, 1)
    log.tend(10**6)
    assert log.roll() and len(log.segments) == 3
    fill(log, 1)
    home.close()


def test_retention_gets_the_blocks_of_the_spare(home: Home) -> None:
    """It has to write a few bytes before it can give up segments."""
    log = rolled(home)
    tend_until(
        log, lambda: log.nursery.spare is not None and log.nursery.spare.stage == Spare.READY
    )
    assert home.disk.list_directory(log.nursery.path)
    retention = Retention.__new__(Retention)
    retention.node = SimpleNamespace(log=log, now_ms=lambda: 0)
    retention._trimmed(OffsetAndEpoch(20, 1), DiskFull("no space left"))
    assert retention._next_ms == 0 and not home.disk.list_directory(log.nursery.path)
    retention._next_ms = 1
    retention._trimmed(OffsetAndEpoch(20, 1), DiskFull("no space left"))
    assert retention._next_ms == 1, "nothing more to give: later"
    log.tend(10**6)
    tend_until(log, log.roll)
    home.close()


def test_a_small_file_is_written_again_without_new_space(tmp_path: Path) -> None:
    """Its blocks are held: two files change names."""
    disk, path = Disk(), str(tmp_path / "file")
    disk.rewrite_file(path, b"one")
    held = {os.stat(path).st_ino, os.stat(path + ".tmp").st_ino}
    for data in (b"second", b"3", b"fourth"):
        disk.rewrite_file(path, data)
        assert disk.read_file(path) == data
        assert {os.stat(path).st_ino, os.stat(path + ".tmp").st_ino} == held


def retained(home: Home) -> None:
    fill(home.log, 40, 3000, epoch=2)
    home.log.flush()
    snapshot(home, home.log.segments[-1].base_offset, 2)
    assert delete_before(home.log, home.log.segments[-1].base_offset) and len(home.log.epochs) == 1


def begun_anew(home: Home) -> None:
    install_snapshot(home.log, snapshot(home, 100, 5))


def refused_a_snapshot(home: Home) -> None:
    snapshot_id = snapshot(home, 100, 5)
    home.disk.space = 10_000  # type: ignore[attr-defined]
    with pytest.raises(DiskFull):
        install_snapshot(home.log, snapshot_id)


def restarted(home: Home) -> None:
    """After an epoch that has no record."""
    log = home.log
    path = os.path.join(home.log_path, epoch_checkpoint.NAME)
    log.rewrite(path, epoch_checkpoint.encode([*log.epochs, (3, log.end_offset)]))
    home.kill()
    home.open()
    assert home.recovered is not None and (3, home.log.end_offset) not in home.log.epochs


@pytest.mark.parametrize("act", [retained, begun_anew, refused_a_snapshot, restarted])
def test_epochs_and_cuts_go_on_without_space(act: Callable[[Home], None]) -> None:
    """Whatever wrote the checkpoint left the blocks with which it is written again."""
    home = Home("/replica", CrashDisk())
    fill(home.open(), 20, 3000)
    home.log.flush()
    act(home)
    log = home.log
    home.disk.space = 0  # type: ignore[attr-defined]
    for epoch in (7, 8):
        assert log.append(batch_of_size(300), epoch), log.error
    log.flush()
    log.truncate(log.end_offset - 1)
    assert log.last_epoch == 7
    home.close()


@pytest.mark.parametrize("act", [begun_anew, None])
def test_a_cut_below_the_last_clean_end_needs_no_space(act: Callable[[Home], None] | None) -> None:
    """It lowers the mark that says so. The replica ended at each such cut, after each start."""
    home = Home("/replica", CrashDisk())
    fill(home.open(), 3)
    if act is not None:
        act(home)
    begin = home.log.log_start_offset
    for _ in range(3):
        fill(home.log, 1, epoch=6)
        end_offset = home.log.end_offset
        home.close()
        fill(home.open(), 5, epoch=6)
        home.log.flush()
        home.disk.space = 0  # type: ignore[attr-defined]
        for cut in (end_offset + 2, end_offset, max(begin, end_offset - 2)):
            home.log.truncate(cut)
            assert home.log.end_offset == cut >= begin
        home.disk.space = -1  # type: ignore[attr-defined]


def test_a_file_system_that_cannot_exchange_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kraftfast.log.disk.exchange_names", lambda _one, _other: False)
    path = str(tmp_path / "file")
    for data in (b"one", b"second"):
        Disk().rewrite_file(path, data)
        assert Disk().read_file(path) == data
        assert os.stat(path + ".tmp").st_size, "blocks are held for the next one"
    assert not segment_file.exchange_names(path, path + ".none")


def test_an_io_error_of_the_nursery_is_final(home: Home) -> None:
    """D9: the log's own pages may be among those that were not written; it is no lack of space."""
    preparer = SteadyPreparer()
    log = home.open(preparer)
    preparer.refuse = errno.EIO
    with pytest.raises(FlushFailed, match="Input/output error"):
        for now_ms in range(1000):
            while log.append(batch_of_size(1000), 1):
                pass
            log.tend(now_ms)
    with pytest.raises(FlushFailed):
        log.flush()
    home.kill()


def test_a_log_begins_later_on_a_disk_without_space_for_its_epochs(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: the segments are gone then; the checkpoint goes on naming epochs from before the log."""
    log = home.open()
    fill(log, 40, 3000, epoch=1)
    fill(log, 40, 3000, epoch=2)
    log.flush()
    start = log.segments[-1].base_offset
    assert start > 40
    snapshot(home, start, 2)
    monkeypatch.setattr(home.disk, "rewrite_file", full)
    assert delete_before(log, start) > 0
    assert log.log_start_offset == start and not log.failed
    assert [each[0] for each in log.epochs] == [1, 2]
    fill(log, 1, epoch=2)
    log.flush()
    stored = content(log)
    monkeypatch.undo()
    home.kill()
    log = home.open()
    assert (log.log_start_offset, log.end_offset, content(log)) == (start, 81, stored)


@pytest.mark.parametrize("replaced", [False, True])
def test_what_is_given_up_needs_no_space_for_another_name(
    home: Home, monkeypatch: pytest.MonkeyPatch, replaced: bool
) -> None:
    """The nursery's directory may have no room for it: then the file goes, and gives its blocks."""
    log = rolled(home)
    tend_until(
        log, lambda: log.nursery.spare is not None and log.nursery.spare.stage == Spare.READY
    )
    rename = home.disk.rename

    def refuse(source: str, target: str) -> None:
        if "recycled" in target:
            full()
        rename(source, target)

    monkeypatch.setattr(home.disk, "rename", refuse)
    if replaced:
        install_snapshot(log, snapshot(home, 100, 2))
    else:
        delete_before(log, snapshot(home, 20, 1).offset)
    start = 100 if replaced else 20
    assert (log.log_start_offset, log.failed, log.nursery.recycled) == (start, None, [])
    fill(log, 3, epoch=3)
    log.flush()
    stored, end = content(log), log.end_offset
    assert end == (103 if replaced else 24)
    home.kill()
    log = home.open()
    assert (log.log_start_offset, log.end_offset, content(log)) == (start, end, stored)
    assert len(home.segment_paths()) == len(log.segments) == 1


def test_a_file_that_could_not_be_synced_does_not_become_a_segment(home: Home) -> None:
    """D9: the next sync would succeed, and what the first one lost is not on disk."""

    class FullAtSyncs(SteadyPreparer):
        def ask(self, file: Any, what: str, start: int, end: int) -> None:
            self.refuse = errno.ENOSPC if what == "sync" and not lost else 0
            if self.refuse:
                lost.append(file.path)
            super().ask(file, what, start, end)

    lost: list[str] = []
    log = home.open(FullAtSyncs())
    log.nursery.spare_wanted = True
    tend_until(log, lambda: lost)
    tend_until(log, lambda: log.nursery.spare and log.nursery.spare.stage == Spare.READY)
    assert log.nursery.spare.file.path != lost[0] and not os.path.exists(lost[0])
    home.kill()
