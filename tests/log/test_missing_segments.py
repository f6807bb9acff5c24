"""A log that lost a file, or holds a recycled one, is judged by what is known elsewhere."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.log.reading.verify import verify
from kraftfast.log.small_files.committed_floor import write_floor
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import KIB, Home, batch_of_size, content, fill


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


def test_old_batches_behind_what_is_prepared_are_no_damage(tmp_path: Path) -> None:
    """As version 0.1.0 left them: a log that rolled by age at the very end of what was prepared."""
    home = Home(tmp_path / "replica")
    log = home.open(segment_bytes=1024 * KIB, stride_bytes=64 * KIB, prepare_bytes=64 * KIB)
    while log.append(batch_of_size(4096, base_offset=log.end_offset, epoch=1), 1):
        pass
    first = log.active
    assert first.position == first.prepared == 64 * KIB
    log.nursery.spare = log.nursery.spare_now()
    assert log.roll()
    fill(log, 3)
    log.flush()
    stored, end_offset, path = content(log), log.end_offset, first.file.path
    home.kill()
    with open(path, "r+b") as file:
        file.seek(64 * KIB)
        file.write(b"".join(batch_of_size(4096, base_offset=n, epoch=1) for n in range(20)))
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
