"""Reading a log from outside: what it gives, and what its owner may do meanwhile."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.errors import CorruptLog, OffsetOutOfRange, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.reading import held_segment
from kraftfast.log.reading.copied_file import CopiedFile
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.log_start import delete_before
from tests.log.kit import KIB, Home, batch, content, fill


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "replica")


def read(reader: LogReader, start: int, end: int | None = None) -> bytes:
    return b"".join(bytes(found.data) for found in reader.batches(start, end))


def test_an_empty_log(home: Home) -> None:
    home.open()
    with LogReader(home.log_path) as reader:
        assert reader.log_start_offset == reader.end_offset() == 0
        assert list(reader.batches(0)) == []
    with pytest.raises(StorageError):
        LogReader(home.log_path + "-not")
    home.close()
    with LogReader(home.log_path) as reader:
        assert list(reader.batches(0)) == []


# covers: RecordsBatchReaderTest.*
def test_reads_what_was_appended_over_rolls_while_it_grows(home: Home) -> None:
    log = home.open()
    with LogReader(home.log_path) as reader:
        stored: list[bytes] = []
        for _ in range(30):
            stored += fill(log, 7, 1500)
            assert read(reader, 0, log.end_offset) == b"".join(stored)
            assert read(reader, log.end_offset - 3, log.end_offset) == b"".join(stored[-3:])
        assert len(log.segments) > 3
        assert reader.end_offset() == log.end_offset
        assert [offset for offset, _ in reader.segments()] == [s.base_offset for s in log.segments]
    home.close()
    with LogReader(home.log_path) as reader:
        assert read(reader, 0) == b"".join(stored)


def test_every_offset_of_batches_with_many_records(home: Home) -> None:
    log = home.open()
    for i in range(40):
        log.append(batch([b"%d-%d" % (i, j) for j in range(1 + i % 5)]), 1)
    home.close()
    with LogReader(home.log_path) as reader:
        records = list(reader.records(0))
        assert [record.offset for record in records] == list(range(reader.end_offset()))
        for start in range(reader.end_offset()):
            assert list(reader.records(start)) == records[start:]
            first = next(iter(reader.batches(start)))
            assert first.base_offset <= start < first.end_offset
        for end in range(reader.end_offset()):
            found = list(reader.batches(0, end))
            assert not found or found[-1].end_offset <= end, "never past the bound"
            columns = [
                value for part in reader.columns(0, end) for value in part.values.to_pylist()
            ]
            assert columns == [
                record.value for record in records[: found[-1].end_offset if found else 0]
            ]


def test_goes_by_the_index_where_it_can_be_trusted(home: Home) -> None:
    log = home.open(segment_bytes=512 * KIB, stride_bytes=512 * KIB)
    stored = fill(log, 400)
    home.close()
    index = Path(home.log_path, f"{0:020d}.index")
    assert len(index.read_bytes()) // 8 > 50
    with LogReader(home.log_path) as reader:
        assert read(reader, 390) == b"".join(stored[390:])
        held = held_segment.HeldSegment(home.log_path, 0)
        for offset in (57, 200, 390):
            base, position = held.place(offset)
            assert offset - 10 < base <= offset and position == sum(map(len, stored[:base]))
    good = index.read_bytes()
    for bad in (good[::-1], bytes(len(good)), b"\xff" * 80, good[:800] + good[8:], good[:801], b""):
        index.write_bytes(bad)
        with LogReader(home.log_path) as reader:
            for start in (0, 1, 57, 399):
                assert read(reader, start) == b"".join(stored[start:])


@pytest.mark.parametrize("leave", ["live", "closed"])
def test_a_read_far_from_the_last_one_copies_little(
    home: Home, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    log = home.open(segment_bytes=8192 * KIB, stride_bytes=1024 * KIB)
    fill(log, 5000)
    log.flush()
    if leave == "closed":
        home.close()
    copied = []
    copy = CopiedFile.read
    monkeypatch.setattr(
        CopiedFile, "read", lambda self, at, size: (copied.append(size), copy(self, at, size))[1]
    )
    with LogReader(home.log_path) as reader:
        assert [found.base_offset for found in reader.batches(4990, 5000)] == [*range(4990, 5000)]
        for offset in (100, 4000, 2000, 3999, 1, 4998):
            copied.clear()
            assert next(reader.records(offset, 5000)).offset == offset
            assert sum(copied) < 256 * KIB, "and not a mebibyte for one record"
    if leave == "live":
        home.close()


def test_out_of_range_and_bounds_that_do_not_hold(home: Home) -> None:
    log = home.open()
    fill(log, 200, 1500)
    log.flush()
    delete_before(log, 100)
    with LogReader(home.log_path) as reader:
        start = reader.log_start_offset
        assert 0 < start == log.segments[0].base_offset <= log.log_start_offset == 100
        with pytest.raises(OffsetOutOfRange) as out:
            list(reader.batches(start - 1))
        assert out.value.log_start_offset == start
        assert list(reader.batches(log.end_offset)) == []
        with pytest.raises(CorruptLog, match="ends here, and not at offset 204"):
            list(reader.batches(start, 204))
    home.close()


def test_retention_takes_nothing_away_from_a_reader(home: Home) -> None:
    log = home.open()
    stored = fill(log, 200, 1500)
    log.flush()
    reader = LogReader(home.log_path)
    found = reader.batches(0, log.end_offset)
    kept = [next(found)]
    delete_before(log, 150)
    for _ in range(10):  # what was freed is zeroed and used again, but not what is held
        fill(log, 20, 1500)
        log.flush()
        delete_before(log, log.end_offset - 50)
    kept += [next(found) for _ in range(20)]
    assert b"".join(bytes(one.data) for one in kept) == b"".join(stored[:21])
    with pytest.raises(OffsetOutOfRange):
        list(found)
    reader.close()
    assert bytes(kept[0].data) == stored[0], "batches outlive the reader"
    home.close()


def test_retention_takes_nothing_away_while_it_is_copied(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home.open()
    stored = fill(log, 200, 1500)
    log.flush()
    walk = held_segment.HeldSegment.walk

    def late(self: held_segment.HeldSegment, *place: int, **bounds: int) -> object:
        monkeypatch.undo()
        delete_before(log, 150)
        for _ in range(10):  # what was freed is zeroed and used again, but not what is held
            fill(log, 20, 1500)
            log.flush()
            delete_before(log, log.end_offset - 50)
        return walk(self, *place, **bounds)

    with LogReader(home.log_path) as reader:
        monkeypatch.setattr(held_segment.HeldSegment, "walk", late)
        assert bytes(next(reader.batches(0, 200)).data) == stored[0]
    home.close()


def test_a_held_segment_is_not_trimmed_until_it_is_let_go(home: Home) -> None:
    log = home.open()
    stored = fill(log, 100, 1500)
    log.flush()
    reader = LogReader(home.log_path)
    found = next(iter(reader.batches(0, 1)))
    log.retire()
    assert log.segments[0].has_page and not log.segments[1].has_page
    reader.close()
    log.retire()
    assert not log.segments[0].has_page
    assert bytes(found.data) == stored[0], "a batch is a copy, and holds no file"
    home.close()


def in_a_process(code: str, *arguments: str) -> list[str]:
    """What a program of its own prints: a SIGBUS would end it."""
    done = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, (done.returncode, done.stdout, done.stderr)
    return done.stdout.split("\n")


CUT_SHORT = """
import os, sys
from kraftfast.errors import CorruptLog
from kraftfast.log.reading.reader import LogReader

log_path, file, how = sys.argv[1:]
reader = LogReader(log_path)
found = reader.batches(0, 100)
first = next(found)
os.truncate(file, 4096 if how == "cut" else 0)
sound = [record.offset for batch in (first, *found) for record in batch.records()]
assert sound == list(range(100)), "what was copied stays"
for again in (reader.batches(50, 100), reader.columns(50, 100)):
    try:
        reached = [each for each in again]
    except CorruptLog as error:
        print(error)
print(reader.end_offset())
"""


@pytest.mark.parametrize("how", ["cut", "emptied"])
def test_a_file_that_is_cut_short_under_a_reader_is_damage(home: Home, how: str) -> None:
    """A page of a map that lies beyond the end of its file is a SIGBUS: read through none."""
    log = home.open(segment_bytes=512 * KIB, stride_bytes=512 * KIB)
    fill(log, 100, 600)
    log.flush()
    path = home.segment_paths()[0]
    lines = in_a_process(CUT_SHORT, home.log_path, path, how)
    home.log.abandon()
    assert len(lines) == 4
    for line in lines[:2]:
        assert line.startswith(f"{path} is damaged at byte ")
    assert lines[2] == ("6" if how == "cut" else "0")


def test_a_cut_beyond_the_bound_is_noticed(home: Home) -> None:
    log = home.open()
    stored = fill(log, 100, 1500)
    log.flush()
    with LogReader(home.log_path) as reader:
        assert read(reader, 0, 20) == b"".join(stored[:20])
        assert reader.end_offset() == 100
        log.truncate(30)
        assert reader.end_offset() == 30
        again = fill(log, 50, 1400, epoch=2)
        assert reader.end_offset() == 80
        assert read(reader, 20, 80) == b"".join(stored[20:30] + again)
        assert read(reader, 0) == content(log)
    home.close()


def test_segments_that_are_replaced_under_their_name(home: Home) -> None:
    log = home.open()
    fill(log, 60, 1500)
    log.flush()
    base = log.active.base_offset
    with LogReader(home.log_path) as reader:
        read(reader, base)
        log.truncate(base)
        again = fill(log, 10, 1400, epoch=2)
        assert log.active.base_offset <= base
        assert read(reader, base, log.end_offset) == b"".join(again)
    home.close()


def test_damage_is_reported_with_its_place(home: Home) -> None:
    log = home.open()
    fill(log, 100, 1500)
    home.close()
    path = home.segment_paths()[1]
    base = int(Path(path).name[:20])
    with open(path, "r+b") as file:
        file.seek(2 * 1500 + 200)
        file.write(b"\0\1\2")
    with LogReader(home.log_path) as reader:
        for read_all in (lambda: list(reader.batches(0)), lambda: list(reader.columns(0))):
            with pytest.raises(CorruptLog) as damage:
                read_all()
            assert (damage.value.path, damage.value.position) == (path, 3000)
        assert damage.value.offset in (base + 2, base)
    with LogReader(home.log_path, verify_crc=False) as reader:
        assert len(list(reader.batches(0))) == 100
    with open(path, "r+b") as file:
        file.seek(4 * 1500)
        file.write(bytes(61))
    with LogReader(home.log_path, verify_crc=False) as reader:
        with pytest.raises(CorruptLog) as damage:
            list(reader.batches(0))
        assert (damage.value.position, damage.value.offset) == (4 * 1500, base + 4)


def test_an_owner_at_work_is_waited_for_not_for_ever(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    home.open()
    fill(home.log, 3)
    home.close()
    monkeypatch.setattr(held_segment, "OWNER_BUSY_S_MAX", 0.05)
    with open(home.segment_paths()[0], "rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        with pytest.raises(StorageError, match="stays locked"):
            LogReader(home.log_path).end_offset()
    assert LogReader(home.log_path).end_offset() == 3


def test_kafkas_directories(golden: Path) -> None:
    seen = 0
    for file in sorted(golden.glob("disk/*/*/n*/*/*.log.dump.txt")):
        lines = file.read_bytes().decode(errors="replace").split("\n")
        expected = [line for line in lines if line.startswith("baseOffset:")]
        if len(list(file.parent.glob("*.log"))) > 1 or not expected:
            continue
        with LogReader(file.parent) as reader:
            found = list(reader.batches(reader.log_start_offset))
            assert [f"baseOffset: {one.base_offset} " for one in found] == [
                line[: line.index("lastOffset")] for line in expected
            ]
            seen += 1
    assert seen > 20


def test_the_wait_for_an_owner_ends_by_the_clock(tmp_path: Path) -> None:
    """Found by a reviewer: pauses were counted, and beside other threads each takes longer."""
    home = Home(tmp_path)
    fill(home.open(), 3)
    home.close()
    slept = []

    class Slow:
        """Each pause takes a second."""

        def monotonic(self) -> float:
            return float(len(slept))

        def sleep(self, seconds: float, /) -> None:
            slept.append(seconds)

    with open(home.segment_paths()[0], "rb") as owner:
        fcntl.flock(owner, fcntl.LOCK_EX)
        with pytest.raises(held_segment.OwnerBusy):
            held_segment.HeldSegment(home.log_path, 0, waits=Slow())
    assert len(slept) == held_segment.OWNER_BUSY_S_MAX


class ChangingDisk(Disk):
    """Whose directory is listed as it was, for so many times, while its segments change."""

    def __init__(self, *listed: list[str]) -> None:
        super().__init__()
        self.listed = list(listed)

    def list_directory(self, path: str) -> list[str]:
        return self.listed.pop(0) if self.listed else super().list_directory(path)


def later_start(home: Home) -> int:
    """A log whose first segments are gone; where it starts."""
    log = home.open()
    fill(log, 200, 1500)
    log.flush()
    delete_before(log, 100)
    start = int(log.segments[0].base_offset)
    home.close()
    return start


@pytest.mark.parametrize("offset", [0, 7])
def test_a_list_of_segments_that_are_gone_is_made_anew(home: Home, offset: int) -> None:
    """It told that the log starts at one that is gone, which may be below what was asked for."""
    start = later_start(home)
    gone = [f"{base:020}.log" for base in (0, 5)]
    disk = ChangingDisk(gone, gone, [], gone)
    with (
        LogReader(home.log_path, disk=disk) as reader,
        pytest.raises(OffsetOutOfRange) as caught,
    ):
        read(reader, offset, start + 1)
    assert caught.value.log_start_offset == start and not disk.listed


def test_segments_that_are_replaced_by_others_are_waited_for(home: Home) -> None:
    """Where a snapshot takes the place of a log, no segment is there for a moment."""
    start = later_start(home)
    with LogReader(home.log_path, disk=ChangingDisk([], [], [])) as reader:
        assert read(reader, start, start + 1)


def test_segments_that_never_come_back_are_an_error(home: Home) -> None:
    later_start(home)
    names = ["00000000000000000000.log"]
    with (
        LogReader(home.log_path, disk=ChangingDisk(*[names] * 1000)) as reader,
        pytest.raises(StorageError, match="go on to change"),
    ):
        read(reader, 7, 8)
