"""A log that lost a file, or holds a recycled one, is judged by what is known elsewhere."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.log.floor import write_floor
from kraftfast.log.log_start import delete_before
from kraftfast.log.verify import verify
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import KIB, Home, SteadyPreparer, batch, content, fill, snapshot


@pytest.mark.parametrize("segments", [1, 3])
def test_a_deleted_newest_segment_is_missed(tmp_path: Path, segments: int) -> None:
    """The words of its page went with it; the floor of what was committed did not (D10, D23)."""
    home = Home(tmp_path / "replica")
    log = home.open()
    while len(log.segments) < segments:
        fill(log, 1, 4000)
    fill(log, 2, 4000)
    log.flush()
    write_floor(home.disk, home.path, OffsetAndEpoch(log.end_offset - 1, 1))
    home.kill()
    before = verify(home.path).end_offset
    os.unlink(home.segment_paths()[-1])
    names = sorted(os.listdir(home.log_path))
    for look in (lambda: verify(home.path), home.open):
        with pytest.raises(CorruptLog, match=f"below offset {before - 1} had been flushed"):
            look()
    assert sorted(os.listdir(home.log_path)) == names, "nothing is changed"


def recycled_head(home: Home) -> tuple[Any, bytes]:
    """A log that rolled by age out of a recycled file, at the very end of what was prepared."""
    preparer, now_ms = SteadyPreparer(), 0
    options = {"segment_bytes": 1024 * KIB, "stride_bytes": 64 * KIB, "segment_ms": 1000}
    log = home.open(preparer, **options)

    def put(size: int, timestamp: int) -> None:
        nonlocal now_ms
        for overhead in range(68, 80):
            value = b"v" * (size - overhead)
            made = batch([value], base_offset=log.end_offset, epoch=1, timestamp=timestamp)
            if len(made) == size:
                break
        for _ in range(100):
            if log.append(made, 1):
                return
            now_ms += 1000
            log.tend(now_ms)
        raise AssertionError("the nursery does not get there")

    def tend() -> None:
        nonlocal now_ms
        for _ in range(8):
            now_ms += 1000
            log.tend(now_ms)

    while len(log.segments) < 3:
        put(4096, 1000)
    log.flush()
    log.retire()
    delete_before(log, snapshot(home, log.segments[1].base_offset).offset)
    assert log.nursery.recycled
    recycled = log.active
    while log.active is recycled:
        put(4096, 1000)
    recycled = log.active
    tend()
    while recycled.position < 700 * KIB:
        put(4096, 1000)
    tend()
    preparer.refuse = errno.ENOSPC
    while recycled.position < recycled.prepared:
        put(min(4096, recycled.prepared - recycled.position), 1000)
    assert recycled.position < recycled.capacity
    assert any(recycled.file.view(recycled.position, recycled.capacity)), "what it held before"
    put(100, 6000)
    assert log.active is not recycled
    log.flush()
    return log, content(log)


def test_old_batches_behind_what_is_prepared_are_no_damage(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log, stored = recycled_head(home)
    end_offset = log.end_offset
    home.kill()
    assert verify(home.path).end_offset == end_offset
    assert content(home.open(segment_bytes=1024 * KIB)) == stored


def test_index_files_of_an_unfinished_trim_are_no_damage(tmp_path: Path) -> None:
    """A cut came between a trim's index files and the trim: the segment is prepared still."""
    home = Home(tmp_path / "replica")
    log = home.open()
    while len(log.segments) < 2:
        fill(log, 1, 4000)
    log.flush()
    now_ms, index = 10**6, os.path.join(home.log_path, "0" * 20 + ".timeindex")
    while not os.path.exists(index):
        now_ms += 1000
        log.tend(now_ms)
    assert log.segments[0].has_page
    log.truncate(8)
    fill(log, 1, 4000, epoch=2)
    log.flush()
    home.kill()
    assert verify(home.path).end_offset == 9
    assert home.open().end_offset == 9
    home.close()
    assert verify(home.path).segments[0].time_index_entries


def test_an_empty_log_is_sound(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    home.open()
    home.close()
    assert (verify(home.path).end_offset, verify(home.path).tail.kind) == (0, "none")


def test_an_index_of_the_right_size_and_other_content_is_mended(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = home.open()
    while len(log.segments) < 2:
        fill(log, 1, 4000)
    home.close()
    for suffix in (".index", ".timeindex"):
        path = Path(home.log_path, "0" * 20 + suffix)
        data = path.read_bytes()
        path.write_bytes(bytes([data[0] ^ 1]) + data[1:])
        home.open()
        home.kill()
        assert path.read_bytes() == data
