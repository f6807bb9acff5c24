"""Logs that were left in order: closed, handed over to Kafka and back, trimmed."""

from __future__ import annotations

import fcntl
import os
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.errors import CorruptLog, InvalidOption
from kraftfast.log.disk import Disk
from kraftfast.log.reading.at_rest import trim_log
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.recovery import LogSettings
from kraftfast.log.small_files import epoch_checkpoint, marks
from kraftfast.types import OffsetAndEpoch
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import KIB, Home, batch_of_size, content, fill
from tests.log.test_recovery import edit, killed, lose_unflushed


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "replica")


# --- orderly ends, and starts after them ---


def test_a_clean_close_leaves_what_kafka_leaves(home: Home) -> None:
    log = home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
    stored = fill(log, 40)
    bases = [segment.base_offset for segment in log.segments]
    home.close()
    names = sorted(os.listdir(home.log_path))
    expected = [f"{base:020d}{end}" for base in bases for end in (".index", ".log", ".timeindex")]
    rest = ["durable-end", "leader-epoch-checkpoint", "partition.metadata", "quorum-state"]
    assert names == sorted(expected + rest)
    assert b"".join(Path(path).read_bytes() for path in home.segment_paths()) == b"".join(stored)
    assert os.listdir(os.path.join(home.path, "nursery")) == []
    assert marks.read(Disk(), home.log_path, marks.DURABLE_END) == OffsetAndEpoch(40, 1)


@pytest.mark.parametrize("leave", ["close", "kill"])
def test_every_segment_of_a_new_start_is_prepared_as_far_as_it_is_filled(
    home: Home, leave: str
) -> None:
    fill(home.open(), 150)
    held = HeldSegment(home.log_path, 0)  # it cannot be trimmed
    getattr(home, leave)()
    log = home.open()
    assert len(log.segments) >= 3
    for segment in log.segments:
        assert segment.flushed_position == segment.position <= segment.prepared <= segment.capacity
    del held
    home.close()


def test_a_start_after_a_clean_close_at_every_step() -> None:
    home = Home("/replica", CrashDisk())
    stored = fill(home.open(), 10)
    home.close()
    for kept in range(400):
        (disk, *_) = cuts(home.disk, 1)
        disk.cut_at = kept
        again = Home("/replica", disk)
        try:
            again.open()
            assert kept >= 10
            break
        except PowerCut:
            pass
        for after in cuts(disk, kept):
            last = Home("/replica", after)
            assert content(last.open()) == b"".join(stored)
            fill(last.log, 1, epoch=2)
            last.close()


def test_segments_of_another_size(home: Home) -> None:
    stored: list[bytes] = []
    for orderly, size in ((True, 64), (False, 16), (True, 256), (False, 8), (True, 64), (True, 4)):
        log = home.open(segment_bytes=size * KIB, stride_bytes=4 * KIB)
        assert content(log) == b"".join(stored)
        stored += fill(log, 30)
        log.flush()
        if orderly:
            home.close()
        else:
            home.kill()
    assert content(home.open()) == b"".join(stored)
    home.close()
    with pytest.raises(InvalidOption):
        LogSettings(segment_bytes=4095)
    with pytest.raises(InvalidOption, match=f"4096 to {limits.SEGMENT_BYTES_MAX} bytes"):
        LogSettings(segment_bytes=2**31 - 1)
    with pytest.raises(InvalidOption):
        LogSettings(segment_bytes=2**31)
    with pytest.raises(InvalidOption):
        LogSettings(how="hastily")


# --- Kafka after us ---


def handed_over(home: Home) -> tuple[Path, list[bytes]]:
    """Our log after a clean close: the last segment's file, and its batches."""
    stored = fill(home.open(), 10)
    home.close()
    return Path(home.segment_paths()[-1]), stored


def kafka_appends(path: Path, offset: int, count: int, epoch: int) -> list[bytes]:
    made = [batch_of_size(300, base_offset=offset + i, epoch=epoch) for i in range(count)]
    with open(path, "ab") as file:
        file.write(b"".join(made))
    return made


def checkpoint(home: Home, *entries: tuple[int, int]) -> None:
    Path(home.log_path, epoch_checkpoint.NAME).write_bytes(epoch_checkpoint.encode(entries))


@pytest.mark.parametrize("knows", [True, False])
def test_kafka_went_on_with_our_log(home: Home, knows: bool) -> None:
    path, stored = handed_over(home)
    stored += kafka_appends(path, 10, 3, 2)
    second = path.with_name(f"{13:020d}.log")
    stored += kafka_appends(second, 13, 4, 2)
    path.with_suffix(".index").write_bytes(bytes(10 << 20))  # as Kafka leaves it when it is killed
    if knows:
        checkpoint(home, (1, 0), (2, 10))
    log = home.open()
    assert content(log) == b"".join(stored) and log.epochs == [(1, 0), (2, 10)]
    assert home.recovered.cut_bytes == 0
    stored += fill(log, 1, epoch=3)
    log.flush()
    home.kill()
    assert content(home.open()) == b"".join(stored)
    home.close()
    assert path.with_suffix(".index").stat().st_size < 1000


def test_kafka_left_a_torn_tail_behind_our_end(home: Home) -> None:
    path, stored = handed_over(home)
    stored += kafka_appends(path, 10, 3, 2)
    with open(path, "ab") as file:
        file.write(batch_of_size(300, base_offset=13, epoch=2)[:200])
    log = home.open()
    assert content(log) == b"".join(stored) and home.recovered.cut_bytes == 200
    home.close()
    kafka_appends(path, 13, 2, 2)
    edit(str(path), os.path.getsize(path) - 500, b"\xff")
    assert content(home.open()) == b"".join(stored)


def test_kafka_cut_below_our_end_for_a_later_leader(home: Home) -> None:
    path, stored = handed_over(home)
    keep = sum(map(len, stored[:6]))
    os.truncate(path, keep)
    with pytest.raises(CorruptLog, match="ends at offset 6, but everything below offset 10"):
        home.open()  # nobody says why: it may as well have been lost
    new = kafka_appends(path, 6, 2, 3)
    checkpoint(home, (1, 0), (3, 6))
    log = home.open()
    assert content(log) == b"".join(stored[:6] + new) and home.recovered.phantom_tail is None
    home.close()


def test_damage_below_our_end_is_damage_whoever_wrote_last(home: Home) -> None:
    path, stored = handed_over(home)
    kafka_appends(path, 10, 3, 2)
    checkpoint(home, (1, 0), (2, 10))
    for at in (14, 80):
        edit(str(path), 3000 + at, b"\x7f")
        with pytest.raises(CorruptLog) as damage:
            home.open()
        assert (damage.value.position, damage.value.offset) == (3000, 3)
        edit(str(path), 3000 + at, stored[3][at : at + 1])
    home.open().close()


# --- trimming what nobody runs ---


def trim(home: Home) -> list[str]:
    from kraftfast.log.small_files.directory import ReplicaDirectory

    directory = ReplicaDirectory(home.disk, home.path)
    try:
        return trim_log(home.disk, directory)
    finally:
        directory.close()


def test_trimming_makes_a_killed_replica_kafkas(home: Home) -> None:
    stored = killed(home)
    before = set(os.listdir(home.log_path))
    trimmed = trim(home)
    assert trimmed and trim(home) == []
    assert b"".join(Path(path).read_bytes() for path in home.segment_paths()) == b"".join(stored)
    assert {Path(path).suffix for path in set(os.listdir(home.log_path)) - before} <= {
        ".index", ".timeindex", "",
    }  # fmt: skip
    assert not os.listdir(os.path.join(home.path, "nursery"))
    log = home.open()
    assert (content(log), home.recovered.cut_bytes) == (b"".join(stored), 0)
    home.close()
    edit(home.segment_paths()[0], 5000, b"\xff\xfe")
    with pytest.raises(CorruptLog):
        trim(home)


def test_trimming_cuts_a_torn_tail_and_remembers_a_phantom_one() -> None:
    home = Home("/replica", CrashDisk())
    home.open()
    lose_unflushed(home, 3, 5)
    trim(home)
    assert marks.read(home.disk, "/replica", marks.PHANTOM_TAIL) == OffsetAndEpoch(8, 1)
    assert marks.read(home.disk, home.log_path, marks.DURABLE_END) == OffsetAndEpoch(3, 1)
    assert len(home.disk.read_file(home.segment_paths()[0])) == 300


def test_trimming_is_safe_at_every_step() -> None:
    whole = Home("/replica", CrashDisk())
    stored = killed(whole)
    for cut_at in range(200):
        (disk, *_) = cuts(whole.disk, 1)
        disk.cut_at = cut_at
        home = Home("/replica", disk)
        try:
            trim(home)
            return
        except PowerCut:
            pass
        for after in cuts(disk, cut_at):
            assert content(Home("/replica", after).open()) == b"".join(stored)


def test_a_torn_tail_that_a_reader_holds_is_blanked(home: Home) -> None:
    """D10: it was left in the midst of the log, and the next start called it damage."""
    fill(home.open(segment_bytes=256 * KIB, stride_bytes=64 * KIB), 100)
    home.close()
    (path,) = home.segment_paths()
    with open(path, "r+b") as kafka:  # which went on there, and was killed
        kafka.seek(0, os.SEEK_END)
        kafka.write(batch_of_size(1000, base_offset=100, epoch=1))
        kafka.write(batch_of_size(1000, base_offset=101, epoch=1)[:500])
        kafka.flush()
        fcntl.flock(kafka, fcntl.LOCK_SH)
        log = home.open()
        assert log.end_offset == 101 and len(log.segments) == 2
        fill(log, 5)
    home.close()
    assert home.open().end_offset == 106
    home.close()


def test_a_trimmed_segment_that_a_process_maps_is_not_appended_to(home: Home) -> None:
    """D20: it has no generation that the process could compare. It copied half a batch of one
    history and half of another as one, if it was stopped meanwhile."""
    settings = {"segment_bytes": 64 * KIB, "stride_bytes": 32 * KIB}
    stored = fill(home.open(**settings), 20)
    home.close()
    (path,) = home.segment_paths()
    reader = Disk().open_segment(path, False)
    assert reader.share()
    for size in (500, 700):  # at the second start no process maps the last segment
        log = home.open(**settings)
        log.truncate(10)
        stored = stored[:10]
        while log.end_offset < 20:
            stored.append(batch_of_size(size, base_offset=log.end_offset, epoch=2))
            assert log.append(stored[-1], 2)
        assert content(log) == b"".join(stored)
        home.close()
    kept = b"".join(stored[:10])
    assert bytes(reader.view(0, reader.size)) == kept.ljust(reader.size, b"\0"), "what was cut"
    reader.close()


def test_a_trimmed_segment_is_gone_on_in_once_nobody_maps_it(home: Home) -> None:
    fill(home.open(), 20)
    home.close()
    for _ in range(3):
        fill(home.open(), 1)
        home.close()
    assert len(home.segment_paths()) == 1


def test_an_empty_segment_that_a_process_maps_is_not_cut_under_it(home: Home) -> None:
    """What a crash left of its first page went while another process had it mapped."""
    stored = fill(home.open(), 20)
    home.close()
    left = Path(home.log_path, f"{20:020}.log")
    left.write_bytes(bytes(8 * KIB))
    reader = Disk().open_segment(str(left), False)
    assert reader.share()
    for _ in range(2):
        log = home.open()
        stored += fill(log, 1)
        assert content(log) == b"".join(stored)
        home.close()
    assert bytes(reader.view(0, 8 * KIB)) == bytes(8 * KIB)
    reader.close()
