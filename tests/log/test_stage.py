"""Batches are put together in a stage and written; stored in place where a memory log has pages."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from kraftfast.errors import StorageError
from kraftfast.log.disk import Disk
from kraftfast.record import shapes
from kraftfast.record.builder import compress_batch
from kraftfast.sim.machines.paged_file import append_batch
from tests.log.crash_disk import CrashDisk
from tests.log.kit import KIB, PAGE, Home, append, batch, batch_of_size, content, fill


@pytest.mark.parametrize("size", [500, 20_000])
@pytest.mark.parametrize("who", ["leader", "follower"])
def test_what_is_refused_never_stood_in_the_log(who: str, size: int) -> None:
    home = Home("/replica", CrashDisk())
    log = home.open()
    fill(log, 5)
    log.flush()
    bad = bytearray(batch_of_size(size, base_offset=5, epoch=1))
    bad[-5] ^= 1
    home.disk.fail_syncs_from = home.disk.syncs  # nothing has to be scrubbed
    assert not (log.copy(bad, 1) if who == "follower" else append_batch(log, bad, 1))
    assert log.damaged() and log.active.dirty_end == log.active.position == 5_000
    assert not bytes(log.active.file.view(5_000, log.active.prepared)).strip(b"\0")


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_each_batch_is_one_write_or_none(tmp_path: Path, how: str) -> None:
    def system_calls() -> int:
        text = Path("/proc/self/io").read_text()
        return int(text.split("syscw: ")[1].split()[0])

    home = Home(str(tmp_path), Disk())
    log = home.open(how=how, segment_bytes=256 * KIB, prepare_bytes=256 * KIB)
    expected, calls = b"", []
    for size in (100, 4_096, 100, 3_996, 4_097, 70_000, 69, 4_000, 30_000):
        before = system_calls()
        append(log, batch_of_size(size), 1)
        calls.append(system_calls() - before)
        expected += batch_of_size(size, base_offset=len(calls) - 1, epoch=1)
        assert bytes(log.active.file.view(0, len(expected))) == expected
    assert calls[1:] == [how == "written"] * 8, "the file of the epoch is written with the first"
    assert Path(log.active.file.path).read_bytes()[: len(expected)] == expected
    assert not any(log.active.file.view(len(expected), log.active.capacity))
    log.active.zeroed = 0  # as where the log outgrew its pages
    before = system_calls()
    append(log, batch_of_size(100), 1)
    assert system_calls() == before + 1
    log.close()


def test_the_largest_batches_and_what_their_pages_held(tmp_path: Path) -> None:
    home = Home(str(tmp_path), Disk())
    log = home.open(segment_bytes=32 << 20, prepare_bytes=16 << 20)
    expected = b""
    for number, size in enumerate(((8 << 20) - 100, 100, 3 << 20, 5000, 4096, 2 << 20)):
        made = batch_of_size(size, base_offset=number, epoch=1)
        append(log, made, 1)
        expected += made
    assert content(log) == expected
    log.flush()
    home.kill()
    assert content(home.open(segment_bytes=32 << 20)) == expected
    home.close()


def test_a_page_is_taken_from_the_file_again_after_a_cut(tmp_path: Path) -> None:
    home = Home(str(tmp_path), Disk())
    log = home.open()
    stored = fill(log, 9, 700)
    for keep in (8, 3, 2, 1, 0):
        log.truncate(keep)
        assert not any(log.active.file.view(log.active.position, log.active.prepared))
        made = batch_of_size(300 + keep, base_offset=keep, epoch=2 + 9 - keep, fill=b"n")
        append(log, made, 2 + 9 - keep)
        assert content(log) == b"".join([*stored[:keep], made])
        log.truncate(keep)
    home.close()


def test_a_page_is_taken_from_the_file_again_after_a_cut_and_a_store(tmp_path: Path) -> None:
    """The log ends where it ended when the stage was filled, and yet other bytes stand there."""
    home = Home(str(tmp_path), Disk())
    log = home.open(how="mapped", segment_bytes=256 * KIB, prepare_bytes=256 * KIB)
    pages, log.active.zeroed = log.active.zeroed, 0
    append(log, batch_of_size(5_000), 1)
    append(log, batch_of_size(5_000), 1)  # written: its last page stays in the stage
    log.truncate(1)
    log.active.zeroed = pages
    made = [
        batch_of_size(5_000, base_offset=0, epoch=1),
        batch_of_size(2_500, base_offset=1, epoch=2, fill=b"n"),  # stored
        batch_of_size(2_500, base_offset=2, epoch=2, fill=b"m"),
        batch_of_size(5_000, base_offset=3, epoch=2, fill=b"o"),
    ]
    for each in made[1:]:
        log.active.zeroed = 0 if each is made[-1] else pages
        append(log, each, 2)
    assert content(log) == b"".join(made)
    home.close()


def test_zeros_end_a_batch_but_not_beyond_what_is_prepared(tmp_path: Path) -> None:
    """A reader of the file finds an end there, whatever stood in it."""
    home = Home(str(tmp_path), Disk())
    log = home.open(stride_bytes=64 * KIB, prepare_bytes=64 * KIB)
    segment = log.active
    for size in (PAGE - 60, 60 + PAGE - 61, 61 + 1000):
        append(log, batch_of_size(size), 1)
    end = segment.position
    assert end == 2 * PAGE + 1000 and not any(segment.file.view(end, 3 * PAGE))
    while segment.position + 3000 <= segment.prepared:
        append(log, batch_of_size(3000), 1)
    left = segment.prepared - segment.position
    assert log.append(batch_of_size(left), 1) and segment.position == segment.prepared
    home.close()


def test_what_a_failed_write_left_is_no_record(tmp_path: Path) -> None:
    """A batch that is stored over it in place would end where a batch in its value begins (D20)."""
    home = Home(str(tmp_path), Disk())
    log = home.open(how="mapped", segment_bytes=256 * KIB, prepare_bytes=256 * KIB)
    stored = fill(log, 3, 1000)
    inner = batch_of_size(100, base_offset=4, epoch=1, fill=b"!")
    failing = batch([inner * 400], base_offset=3, epoch=1)
    log.active.zeroed = 0  # the log outgrew its pages: this one is written
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * PAGE, hard))
    try:
        with pytest.raises(StorageError, match="cannot write"):
            log.append(failing, 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    log.active.zeroed = log.active.reserved  # pages were made meanwhile: the next one is stored
    size = failing.index(inner, 1000)
    with pytest.raises(StorageError, match="cannot write"):
        log.append(batch_of_size(size, base_offset=3, epoch=1), 1)
    home.kill()
    assert content(home.open(how="mapped", segment_bytes=256 * KIB)) == b"".join(stored)
    home.close()


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_compressed_records_are_judged_before_anything_is_stored(how: str) -> None:
    """In place they would be written over with zeros, and synced, one by one."""
    home = Home("/replica", CrashDisk())
    log = home.open(how=how)
    fill(log, 5)
    compressed = compress_batch(batch([b"v" * 1000]))
    syncs = log.syncs
    assert not append_batch(log, compressed, 1, True)
    assert log.fault_text() == shapes.FAULT_TEXTS[shapes.Fault.RECORDS] and log.syncs == syncs
    assert log.append(compressed, 1) and log.end_offset == 6


def test_a_write_that_fails_is_the_last_word(tmp_path: Path) -> None:
    home = Home(str(tmp_path), Disk())
    log = home.open(segment_bytes=64 * KIB, prepare_bytes=64 * KIB)
    stored = fill(log, 3, 1000)
    log.flush()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4 * PAGE, hard))
    try:
        with pytest.raises(StorageError, match="cannot write"):
            log.append(batch_of_size(30_000, base_offset=3, epoch=1), 1)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert log.end_offset == 3 and log.failed is not None
    for attempt in (
        log.flush,
        lambda: log.append(batch_of_size(100, base_offset=3, epoch=1), 1),
        lambda: log.copy(batch_of_size(100, base_offset=3, epoch=1), 1),
    ):
        with pytest.raises(StorageError, match="cannot write"):
            attempt()
    home.kill()
    assert content(home.open()) == b"".join(stored)
    home.close()
