"""The nursery: what is prepared when, what a full disk does, and the thread itself."""

from __future__ import annotations

import errno
import os
import resource
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import DiskFull, OutOfResources, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.nursery import (
    AHEAD_PACE_MAX,
    PACE_MS,
    RETRY_MS,
    Nursery,
)
from kraftfast.log.recovery import LogSettings
from kraftfast.log.segment import Segment, is_prepared
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.log.spare import Spare, do_now
from tests.log.crash_disk import CrashDisk
from tests.log.kit import (
    KIB,
    PAGE,
    Home,
    SteadyPreparer,
    append,
    batch_of_size,
    content,
    fill,
    preparer_thread,
    tend_until,
)

ROOM = {"segment_bytes": 256 * KIB, "stride_bytes": 64 * KIB}


def test_a_spare_is_a_segments_file_only_when_it_is_on_disk(tmp_path: Path) -> None:
    disk = CrashDisk()
    disk.make_directory("/n")
    file = disk.create_segment("/n/spare", 64 * KIB + PAGE)
    spare = Spare(file, 64 * KIB, 16 * KIB, 7, "written")
    work = []
    while spare.stage != Spare.READY:
        work.append(spare.next_work())
        assert not is_prepared(file) or spare.stage == Spare.SEALED
        do_now(file, *work[-1])
        if is_prepared(file):  # the words were on disk before the magic was stored
            page = file.node.stable[64 * KIB // PAGE]
            assert page[512:] != bytes(PAGE - 512)
        spare.advance()
    expected = [("reserve", 0, 16 * KIB), ("zero", 64 * KIB, 64 * KIB + PAGE)]
    assert work == [*expected, ("sync", 0, 0), ("sync", 0, 0)]
    assert file.node.stable == file.node.pages(), "and the magic before the file is handed out"
    assert (spare.reserved, Segment(file, 5, 64 * KIB).generation()) == (16 * KIB, 7)


def test_the_head_is_kept_ahead_and_the_next_segment_made_in_time(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(**ROOM)
    rolls = 0
    for _ in range(2000):
        log.tend(0)
        before = log.active
        assert log.append(batch_of_size(1000), 1), "a nursery that is tended is never behind"
        rolls += log.active is not before
        ahead = min(20 * KIB, 256 * KIB - log.active.position)
        assert log.active.reserved - log.active.position >= ahead
    assert rolls == 7
    home.close()


GROWING = {"segment_bytes": 2048 * KIB, "stride_bytes": 512 * KIB, "prepare_bytes": 64 * KIB}


def test_what_is_reserved_grows_with_what_is_appended(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(**GROWING)
    for _ in range(8):
        log.tend(0)
    assert log.active.reserved == 64 * KIB, "who appends nothing has no more"
    grown = []
    while log.active.position < 512 * KIB:
        assert log.append(batch_of_size(1000), 1), "and who appends is never held back"
        log.tend(0)  # asks
        log.tend(0)  # takes note
        appended, ahead = log.active.position, log.active.reserved - log.active.position
        wanted = min(512 * KIB, max(64 * KIB, 8 * appended))
        assert wanted // 2 <= ahead <= wanted + 64 * KIB
        grown.append(ahead)
    assert max(grown) > 500 * KIB
    home.close()


def test_a_log_that_is_opened_again_begins_with_little(tmp_path: Path) -> None:
    home = Home(tmp_path)
    fill(home.open(**GROWING), 1500)  # far behind the middle of the segment
    home.close()
    log = home.open(**GROWING)
    for _ in range(8):
        log.tend(0)
    assert 64 * KIB <= log.active.reserved - log.active.position < 128 * KIB
    assert os.listdir(tmp_path / "nursery") == [], "and makes no next segment before it is due"
    for _ in range(1000):
        assert log.append(batch_of_size(1000), 1), "in time for the roll too"
        log.tend(0)
    assert len(log.segments) == 2
    home.close()


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_a_log_that_was_killed_begins_with_little(tmp_path: Path, how: str) -> None:
    """A memory log gives each file a key at once, and not all of its blocks."""
    home = Home(tmp_path)
    fill(home.open(**GROWING, how=how), 300)
    home.kill()
    log = home.open(**GROWING, how=how)
    assert 64 * KIB <= log.active.reserved - log.active.position < 128 * KIB
    home.close()


@pytest.mark.parametrize("pace, ahead", [(AHEAD_PACE_MAX // 2, True), (2 * AHEAD_PACE_MAX, False)])
@pytest.mark.parametrize("how, work", [("written", "zero"), ("mapped", "populate")])
def test_zeros_or_pages_are_made_ahead_of_a_slow_log_only(
    tmp_path: Path, how: str, work: str, pace: int, ahead: bool
) -> None:
    """A fast one would have everything written twice."""
    home = Home(tmp_path)
    preparer = SteadyPreparer()
    room = {"segment_bytes": 8 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 64 * KIB}
    log = home.open(preparer, how=how, **room)
    now_ms, unpaced = 1000, 0
    for interval in range(40):
        log.tend(now_ms)
        log.tend(now_ms)
        if interval == 3:  # by now the pace is known
            unpaced = len(preparer.asked)
        now_ms += PACE_MS
        for _ in range(pace * PACE_MS // 1000 // (64 * KIB)):
            while not log.append(batch_of_size(64 * KIB), 1):
                log.tend(now_ms)
    capacity = log.active.capacity
    paced = [each for each in preparer.asked[unpaced:] if each[0] == work and each[1] < capacity]
    assert bool(paced) is ahead and {what for what, *_ in preparer.asked} >= {"reserve", "zero"}
    assert log.active.zeroed <= log.active.reserved
    home.close()


class LatePreparer(SteadyPreparer):
    """A range is done when ``finish`` is called; zeros that were halted are not written."""

    work: tuple[Any, str, int, int] | None = None
    halted = False

    def ask(self, file: Any, what: str, start: int, end: int) -> None:
        assert self.work is None, "one range at a time"
        self.work, self.halted, self._done, self._error = (
            (file, what, start, end),
            False,
            start,
            None,
        )

    def finish(self, part: int = 1) -> None:
        assert self.work is not None
        file, what, start, end = self.work
        if not self.halted:
            stop = start + (end - start) // part
            do_now(file, what, self._done, stop)
            self._done = stop
        if part == 1:
            self.work, self._error = None, errno.ECANCELED if self.halted else 0

    def halt(self) -> None:
        self.halted = True

    def cancel(self) -> None:
        self.work = self._error = None


def test_appends_do_not_wait_for_zeros(tmp_path: Path) -> None:
    """And zeros are never written where something was appended."""
    home = Home(tmp_path)
    preparer = LatePreparer()
    log = home.open(preparer, segment_bytes=4 << 20, stride_bytes=1 << 20, prepare_bytes=64 * KIB)
    stored: list[bytes] = []

    def put(size: int = 8 * KIB) -> bool:
        made = batch_of_size(size, base_offset=log.end_offset, epoch=1)
        if log.append(made, 1):
            stored.append(made)
            return True
        return False

    while put():
        pass
    log.tend(0)
    assert preparer.work is not None and preparer.work[1] == "reserve"
    assert not put(), "there are no blocks yet"
    preparer.finish()
    log.tend(0)
    assert preparer.work is not None and preparer.work[1] == "zero"
    _, _, start, end = preparer.work
    assert log.active.prepared == start < log.active.reserved
    preparer.finish(part=2)
    log.tend(0)
    middle = log.active.prepared
    assert middle == log.active.zeroed == start + (end - start) // 2
    while log.active.position + 8 * KIB <= middle:
        assert put() and not preparer.halted
    assert put() and preparer.halted, "the next one takes what the zeros were meant for"
    assert log.active.prepared == log.active.reserved
    while log.active.position + 8 * KIB <= log.active.reserved:
        assert put()
    preparer.finish()
    log.tend(0)
    assert content(log) == b"".join(stored) and log.flush() == len(stored)
    home.kill()
    assert content(home.open()) == b"".join(stored)
    home.close()


def test_a_cut_waits_for_zeros_that_are_being_written(tmp_path: Path) -> None:
    home = Home(tmp_path)
    preparer = LatePreparer()
    log = home.open(preparer, segment_bytes=4 << 20, stride_bytes=1 << 20, prepare_bytes=64 * KIB)
    stored = fill(log, 40)
    for _ in range(3):
        log.tend(0)
        if preparer.work is not None and preparer.work[1] == "zero":
            break
        preparer.finish()
    assert preparer.work is not None and preparer.work[1] == "zero"
    log.truncate(10)
    assert preparer.work is None and log.active.prepared == log.active.reserved
    assert content(log) == b"".join(stored[:10])
    home.close()


def test_a_batch_larger_than_stride_and_segment_gets_room(tmp_path: Path) -> None:
    home = Home(tmp_path)
    log = home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
    sizes = [500, 40 * KIB, 700, 2 << 20, 600]
    for size in sizes:
        append(log, batch_of_size(size))
    assert [segment.position for segment in log.segments] == [500, 40 * KIB, 700, 2 << 20, 600]
    home.close()
    log = home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
    assert log.end_offset == len(sizes)
    home.close()


def test_files_that_retention_frees_are_used_again_as_they_are(tmp_path: Path) -> None:
    home = Home(tmp_path)
    preparer = SteadyPreparer()
    log = home.open(preparer, segment_bytes=32 * KIB, stride_bytes=32 * KIB)
    inodes: dict[int, int] = {}
    generations, keys = set(), []
    for _ in range(40):
        fill(log, 12)
        log.flush()
        number = log.active.file.inode()
        if log.active.base_offset not in inodes:
            if number in inodes.values():
                keys.append(log.active.key)
                assert log.active.zeroed == log.active.capacity, "no block has to be written before"
            inodes[log.active.base_offset] = number
            generations.add((number, log.active.generation()))
        delete_before(log, log.end_offset)
        log.tend(0)
    assert len(keys) > 3 and all(keys) and len(set(keys)) == len(keys)
    assert len(generations) == len(inodes), "a file never has a generation twice"
    zeros = [end - start for what, start, end in preparer.asked if what == "zero"]
    assert set(zeros) <= {PAGE, 32 * KIB}, "a page for each file, and what the first ones needed"
    assert len(os.listdir(tmp_path / "nursery")) <= 3
    home.close()
    assert os.listdir(tmp_path / "nursery") == []


# --- a full disk ---


def test_no_space_is_told_and_forgotten_when_there_is_some(tmp_path: Path) -> None:
    home = Home(tmp_path)
    preparer = SteadyPreparer()
    log = home.open(preparer, **ROOM)
    stored = fill(log, 5)
    for code, kind in (
        (errno.ENOSPC, DiskFull),
        (errno.EDQUOT, DiskFull),
        (errno.EMFILE, OutOfResources),
    ):
        preparer.refuse = code
        now_ms = 0
        while log.append(batch_of_size(1000, fill=b"x"), 1):
            stored.append(b"")
            log.tend(now_ms)
        log.tend(now_ms)
        assert type(log.nursery.error) is kind and os.strerror(code) in str(log.nursery.error)
        preparer.refuse = 0
        log.tend(now_ms + RETRY_MS - 1)
        assert log.nursery.error and not log.append(batch_of_size(1000), 1), "not all the time"
        for _ in range(3):
            log.tend(now_ms + RETRY_MS)
        assert log.nursery.error is None and log.append(batch_of_size(1000), 1)
        stored.append(b"")
        log.nursery.retry_at_ms = 0
    assert log.end_offset == len(stored) and log.flush() == len(stored)
    home.close()


def test_files_that_cannot_be_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path)
    log = home.open(segment_bytes=32 * KIB, stride_bytes=32 * KIB)

    def refuse(*_: object) -> None:
        raise StorageError("cannot create: Too many open files")

    monkeypatch.setattr(home.disk, "create_segment", refuse)
    while log.append(batch_of_size(1000), 1):
        log.tend(0)
    assert "Too many" in str(log.nursery.error)
    monkeypatch.undo()
    tend_until(log, lambda: log.append(batch_of_size(1000), 1))
    assert len(log.segments) == 2
    home.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 24 MiB."""
    if os.geteuid():
        pytest.skip("mounting needs root")
    target = tmp_path / "mounted"
    target.mkdir()
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=24m", "none", target], capture_output=True
    )
    if done.returncode:
        pytest.skip(f"cannot mount a tmpfs here: {done.stderr.decode().strip()}")
    yield target
    subprocess.run(["umount", "-l", target], check=True)


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_a_disk_that_is_full_while_appending_and_has_space_again(
    small_disk: Path, how: str
) -> None:
    home = Home(small_disk / "replica")
    with preparer_thread() as preparer:
        log = home.open(preparer, segment_bytes=8 << 20, stride_bytes=4 << 20, how=how)
        count = 0

        def append_until_refused() -> None:
            nonlocal count
            while not log.nursery.error:
                if log.append(batch_of_size(64 * KIB), 1):
                    count += 1
                log.tend(int(1000 * count))
            while log.append(batch_of_size(64 * KIB), 1):
                count += 1

        append_until_refused()
        assert isinstance(log.nursery.error, DiskFull), "and no SIGBUS"
        assert log.flush() == count > 100, "what was appended is flushed all the same"
        delete_before(log, log.end_offset)
        log.nursery.retry_at_ms = 0
        tend_until(log, lambda: log.append(batch_of_size(64 * KIB), 1))
        tend_until(log, lambda: log.nursery.error is None)  # it may go on with half a range first
        log.flush()
        home.kill()


def test_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    home = Home(small_disk / "replica")
    before = len(os.listdir("/proc/self/fd"))
    preparer = SteadyPreparer()
    with pytest.raises(DiskFull, match="no space left"):
        home.open(preparer, segment_bytes=32 << 20, prepare_bytes=32 << 20, stride_bytes=32 << 20)
    assert preparer.closed and len(os.listdir("/proc/self/fd")) == before
    log = home.open(segment_bytes=8 << 20, stride_bytes=1 << 20)
    fill(log, 3)
    home.close()


def test_blocks_that_a_power_cut_took_are_not_there_on_a_full_disk(small_disk: Path) -> None:
    """What the last page calls prepared has to be reserved again, or appends wait."""
    home = Home(small_disk / "replica")
    room = {"segment_bytes": 2 << 20, "stride_bytes": 1 << 20, "prepare_bytes": 1 << 20}
    log = home.open(**room)
    fill(log, 3)
    log.flush()
    path, prepared = log.active.file.path, log.active.prepared
    home.kill()
    holes = [f"--offset={PAGE * 2}", f"--length={prepared - PAGE * 2}"]
    subprocess.run(["fallocate", "--punch-hole", *holes, path], check=True)
    with open(small_disk / "full", "wb", buffering=0) as file, pytest.raises(OSError):
        while True:
            file.write(bytes(PAGE))
    log = home.open(**room)
    assert isinstance(log.error, DiskFull) and log.end_offset == 3
    while log.append(batch_of_size(PAGE), 1):
        pass
    assert log.failed is None
    os.unlink(small_disk / "full")
    fill(log, 500)
    log.flush()
    home.close()


def test_a_disk_that_is_full_at_a_cut_cuts_nothing(tmp_path: Path) -> None:
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = home.open()
    stored = fill(log, 100, 1500)
    log.flush()
    log.retire()
    log.nursery.spare = None
    disk.space = 0
    before = content(log)
    for _ in range(2):
        with pytest.raises(DiskFull):
            log.truncate(20)
    assert (log.end_offset, log.truncations, content(log)) == (100, 0, before)
    disk.space = -1
    log.truncate(20)
    assert content(log) == b"".join(stored[:20])
    home.close()


def test_a_limit_on_the_size_of_files_is_a_full_disk(tmp_path: Path) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    home = Home(tmp_path)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, hard))
    try:
        with pytest.raises(DiskFull):
            home.open(segment_bytes=8 << 20)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    home.open().close()


# --- the thread ---


def test_the_thread_prepares_what_the_log_needs(tmp_path: Path) -> None:
    home = Home(tmp_path)
    with preparer_thread() as preparer:
        log = home.open(preparer, segment_bytes=1 << 20, stride_bytes=256 * KIB)
        stored = fill(log, 300, 10_000)
        assert len(log.segments) == 3
        log.flush()
        assert b"".join(stored) == content(log)
        home.kill()
    assert content(home.open()) == b"".join(stored)
    home.close()


def test_a_range_is_given_up_when_its_file_goes(tmp_path: Path) -> None:
    with preparer_thread() as preparer:
        disk = Disk()
        settings = LogSettings(segment_bytes=256 << 20, prepare_bytes=256 << 20)
        nursery = Nursery(disk, str(tmp_path), preparer, settings)
        file = disk.create_segment(str(tmp_path / "file"), (256 << 20) + PAGE)
        segment = Segment(file, 0, 256 << 20)
        deadline = time.monotonic() + 10
        while not segment.reserved:
            assert nursery.tend(segment, 0, 0) and time.monotonic() < deadline
        assert preparer.busy()  # writes zeros, with a pause after each piece: seconds of them
        nursery.release(segment)
        assert not preparer.busy() and preparer.take() is None
        file.close()
        nursery.close()
        nursery.close()
