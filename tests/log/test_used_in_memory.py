"""Files that a memory log uses again: where it stores, and that nothing is synced."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.limits import BATCH_HEADER_BYTES
from kraftfast.log import nursery
from kraftfast.log.snapshots.log_start import delete_before
from tests.log.crash_disk import CrashDisk
from tests.log.kit import KIB, PAGE, Home, append, batch_of_size, fill, snapshot
from tests.log.test_used_again import (
    BEGIN,
    ROOM,
    SIZE,
    expected,
    planted,
    put,
    second,
    second_life,
)


@pytest.mark.parametrize("cached", [0, 2 * SIZE, 64 * KIB])
def test_a_memory_log_stores_where_a_used_file_is_in_memory(cached: int) -> None:
    """What is written comes by whole pages, with zeros up to their ends; a stored batch does not.
    A header's length of zeros ends it, whatever stood there."""
    home = Home("/replica", CrashDisk())
    log = second_life(home, "mapped", cached=cached)
    file = log.active.file
    for _ in range(3):
        put(log, 1)
        end = log.active.position
        zeros = end + BATCH_HEADER_BYTES if end <= cached else PAGE
        assert not any(file.view(end, zeros))
        assert zeros == PAGE or any(file.view(zeros, PAGE))
    home.kill()
    assert second(home.open(how="mapped")) == b"".join(expected(BEGIN + 3))


def test_a_memory_log_uses_files_again_without_a_sync() -> None:
    """A sync would write the whole file to disk, which `durability=memory` does not ask for. So
    each file has a key from its first life on, and an old key vouches for no new batch."""
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = home.open(**ROOM, how="mapped")
    used = 0
    for _ in range(8):
        while len(log.segments) < 3:
            append(log, planted(BEGIN, 1), 1)
        delete_before(log, snapshot(home, log.segments[1].base_offset).offset)
        begin = len(disk.steps)
        log.nursery.spare_wanted = True
        for _ in range(6):
            log.tend(1)
        spare = log.nursery.spare
        assert spare is not None and spare.stage == spare.READY and spare.key
        used += spare.used
        synced = [step for step in disk.steps[begin:] if step.startswith("sync")]
        assert not spare.used or not synced, synced
    assert used > 3 and log.active.used
    home.close()


@pytest.mark.parametrize("allowed", [36, 1])
def test_files_of_larger_segments_wait_by_what_they_hold(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, allowed: int
) -> None:
    """A limit that is given to a log with segments of 256 MiB makes the next ones small; retention
    then frees the large ones at once. Two wait in any case."""
    mib = KIB * KIB
    monkeypatch.setattr(nursery, "RECYCLED_BYTES", allowed * mib)
    home = Home(tmp_path / "replica")
    log = home.open(segment_bytes=12 * mib, how="mapped")
    large = batch_of_size(6 * mib - KIB)
    while len(log.segments) < 6:
        append(log, large)
    home.close()
    log = home.open(how="mapped")
    fill(log, 100)
    assert log.nursery.capacity == 8 * mib and log.active is log.segments[-1]
    delete_before(log, snapshot(home, log.active.base_offset).offset)
    kept = [file.size for file, _ in log.nursery.recycled]
    assert len(kept) >= 2 and (len(kept) == 2 or sum(kept) <= allowed * mib)
    home.close()
