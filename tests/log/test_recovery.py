"""Bringing a log back: Kafka's directories and ours, torn, damaged, with strays in them."""

from __future__ import annotations

import gc
import os
from pathlib import Path

import pytest

from kraftfast import limits
from kraftfast.errors import CorruptLog, FlushFailed, ForeignDirectory, StorageError
from kraftfast.log.small_files import epoch_checkpoint, marks
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.record.batch import batches
from kraftfast.types import OffsetAndEpoch
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import (
    KIB,
    PAGE,
    Home,
    SteadyPreparer,
    append,
    batch,
    batch_of_size,
    content,
    fill,
)


def split(data: bytes) -> list[bytes]:
    return [bytes(found.data) for found in batches(data)]


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "replica")


def edit(path: str, position: int, data: bytes) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        file.write(data)


# --- Kafka's directories ---


def test_kafkas_directories_open_and_are_left_as_they_were(
    recorded: list[Path], tmp_path: Path
) -> None:
    for number, log_path in enumerate(recorded):
        home = Home.copied(log_path, tmp_path / str(number))
        before = {path.name: path.read_bytes() for path in log_path.glob("*.log")}
        log = home.open(segment_bytes=1 << 20)
        assert home.recovered.cut_bytes == 0 and home.recovered.phantom_tail is None
        assert content(log) == b"".join(before[name] for name in sorted(before)), log_path
        assert log.flushed_end_offset == log.end_offset
        stored = epoch_checkpoint.decode((log_path / "leader-epoch-checkpoint").read_bytes())
        start = log.log_start_offset  # Kafka's own start may lie inside the first segment
        assert [(epoch, max(offset, start)) for epoch, offset in log.epochs] == [
            (epoch, start if (epoch, offset) == stored[0] else offset) for epoch, offset in stored
        ]
        home.close()
        after = {path.name: path.read_bytes() for path in Path(home.log_path).glob("*.log")}
        assert {name: data for name, data in after.items() if data or name in before} == before
        assert not list(Path(home.log_path).glob("*.deleted"))
        for name in ("quorum-state", "partition.metadata"):
            assert Path(home.log_path, name).read_bytes() == (log_path / name).read_bytes()
        log = home.open()
        assert not home.directory.adopted and log.end_offset == log.flushed_end_offset
        fill(log, 1, epoch=2**31 - 1)
        home.close()


def test_a_torn_tail_of_kafkas_is_cut_at_the_first_bad_batch(
    recorded: list[Path], tmp_path: Path
) -> None:
    log_path = recorded[0]
    (path,) = log_path.glob("*.log")
    data = path.read_bytes()
    whole = split(data)
    ends = [
        sum(map(len, whole[: len(whole) - n])) for n in range(3)
    ]  # of the last batches, the largest first
    for length in range(ends[2], ends[0]):
        home = Home.on(CrashDisk.holding("/replica", log_path.parent), "/replica", log_path.name)
        os.ftruncate(home.disk._node(home.segment_paths()[0]).fd, length)
        kept = next(end for end in ends if end <= length)
        assert content(home.open()) == data[:kept] and home.recovered.cut_bytes == length - kept
        home.close()
        assert home.disk.read_file(home.segment_paths()[0]) == data[:kept]
    home = Home.on(CrashDisk.holding("/replica", log_path.parent), "/replica", log_path.name)
    place = sum(map(len, whole[:10]))
    os.pwrite(home.disk._node(home.segment_paths()[0]).fd, b"\xff", place + 70)
    for each in snapshot_ids(home.disk, home.log_path):
        home.disk.rename(snapshot_path(home.log_path, each), f"{home.path}/aside")
    assert content(home.open()) == data[:place], "Kafka's rule, which we follow where Kafka wrote"


# --- torn tails of ours ---


def torn() -> tuple[Home, list[bytes], str]:
    """A log of which 3 batches were flushed and 3 more were not, as a kill leaves it."""
    home = Home("/replica", CrashDisk())
    log = home.open()
    stored = [batch_of_size(90 + i, base_offset=i, epoch=1) for i in range(6)]
    for i, one in enumerate(stored):
        append(log, one)
        if i == 2:
            log.flush()
    home.kill()
    return home, stored, home.segment_paths()[0]


@pytest.mark.parametrize("then", ["zeros", "rubbish", "a hole and valid batches"])
def test_a_tail_torn_at_every_byte_is_cut_and_never_comes_back(then: str) -> None:
    home, stored, path = torn()
    disk = home.disk
    data = disk.read_file(path)
    begin, end = sum(map(len, stored[:3])), sum(map(len, stored))
    image = disk._node(path)
    for at in range(begin, end):
        tail = bytes(end - at)
        if then == "rubbish":
            tail = bytes(0x80 | (7 * i & 0x7F) for i in range(end - at))
        if then == "a hole and valid batches":
            tail = b"\0" + data[at + 1 : end]
        torn_at = next((i for i in range(at, end) if tail[i - at] != data[i]), end)
        os.pwrite(image.fd, data[:end], 0)
        os.pwrite(image.fd, tail, at)
        whole = max(n for n in range(3, 7) if sum(map(len, stored[:n])) <= torn_at)
        log = home.open()
        assert content(log) == b"".join(stored[:whole]), at
        assert home.recovered.phantom_tail is None, "no flush of it had begun"
        rest = bytes(log.active.file.view(log.active.position, log.active.prepared))
        assert rest == bytes(len(rest)), "zeros, on disk, before anything is appended (D8)"
        now = image.pages()
        page = max(now)  # whose words may say less than is true
        assert {**image.stable, page: b""} == {**now, page: b""}
        home.kill()
        os.pwrite(image.fd, bytes(PAGE), 0)
        os.pwrite(image.fd, data[-PAGE:], len(data) - PAGE)


# --- damage ---


def flushed_log(home: Home, closed: bool) -> tuple[list[str], list[bytes]]:
    """Three segments with everything on disk, trimmed or not."""
    log = home.open(segment_bytes=8 * KIB, stride_bytes=8 * KIB)
    for i in range(20):
        append(log, batch_of_size(1000 + i, fill=b"%d" % (i % 10)), 1 + i // 5)
    log.flush()
    stored = split(content(log))
    if closed:
        home.close()
    else:
        home.kill()
    return home.segment_paths(), stored


@pytest.mark.parametrize("closed", [True, False], ids=["trimmed", "prepared"])
@pytest.mark.parametrize("segment", [0, 1, 2])
def test_damage_to_any_field_is_refused_with_its_exact_place(
    tmp_path: Path, closed: bool, segment: int
) -> None:
    home = Home(tmp_path / "replica")
    paths, stored = flushed_log(home, closed)
    path = paths[segment]
    base = int(Path(path).name[:20])
    position = len(stored[base]) + len(stored[base + 1])
    offset = base + 2
    data = Path(path).read_bytes()
    places = [*range(61), 61, 66, 500, len(stored[offset]) - 1]
    for at in places:  # bytes 12-15, the epoch, lie outside the CRC
        for flip in (0x01, 0x80):
            edit(path, position + at, bytes([data[position + at] ^ flip]))
            with pytest.raises(CorruptLog) as damage:
                home.open(segment_bytes=8 * KIB)
            found = damage.value
            assert (found.path, found.position, found.offset) == (path, position, offset), (
                at,
                str(found),
            )
            assert f"{path} is damaged at byte {position} (offset {offset})" in str(found)
        edit(path, position + at, data[position + at : position + at + 1])
    for end in (position + len(stored[offset]), position + 61):
        edit(path, position, bytes(end - position))
        with pytest.raises(CorruptLog) as damage:
            home.open(segment_bytes=8 * KIB)
        assert (damage.value.path, damage.value.position, damage.value.offset) == (
            path,
            position,
            offset,
        )
        edit(path, position, data[position:end])
    assert content(home.open(segment_bytes=8 * KIB)) == b"".join(stored), "nothing was changed"
    home.close()


def test_batches_at_the_wrong_place_are_refused(tmp_path: Path) -> None:
    """Lost and misdirected writes: every batch is sound, and does not belong there (fault 10)."""
    home = Home(tmp_path / "replica")
    paths, stored = flushed_log(home, True)
    data = Path(paths[0]).read_bytes()
    first, second, third = (len(one) for one in stored[:3])
    for changed in (
        data[:first] + data[first + second :],
        stored[1] + stored[0] + data[first + second :],
        data[: first + second] + data[first:],
        data[:-first],
    ):
        Path(paths[0]).write_bytes(changed)
        with pytest.raises(CorruptLog):
            home.open()
    Path(paths[0]).write_bytes(data)
    os.rename(paths[1], paths[1] + ".away")
    with pytest.raises(CorruptLog):
        home.open()
    os.rename(paths[1] + ".away", paths[1])
    os.rename(paths[2], paths[2] + ".away")
    with pytest.raises(CorruptLog, match="ends at offset 16, but everything below offset 20"):
        home.open()
    os.rename(paths[2] + ".away", paths[2])
    home.open().close()


def test_damage_to_the_epoch_checkpoint(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    _, stored = flushed_log(home, False)
    file = Path(home.log_path, epoch_checkpoint.NAME)
    good = file.read_bytes()
    assert epoch_checkpoint.decode(good) == [(1, 0), (2, 5), (3, 10), (4, 15)]
    for entries in ([(1, 0), (2, 5), (3, 10)], [(1, 0), (2, 4), (3, 10), (4, 15)], [], [(1, 0)]):
        file.write_bytes(epoch_checkpoint.encode(entries))
        with pytest.raises(CorruptLog):
            home.open()
    for rebuilt in (None, b"rubbish"):
        file.unlink()
        if rebuilt is not None:
            file.write_bytes(rebuilt)
        assert home.open().epochs == epoch_checkpoint.decode(good)
        home.kill()
        assert file.read_bytes() == good
    file.write_bytes(epoch_checkpoint.encode([(1, 0), (2, 5), (3, 10), (4, 15), (6, 20)]))
    assert home.open().epochs == epoch_checkpoint.decode(good), "its first batch was never stored"
    home.kill()
    assert file.read_bytes() == good
    assert len(stored) == 20


def test_damage_to_the_last_page(home: Home) -> None:
    fill(home.open(), 3)
    home.log.flush()
    home.kill()
    path = home.segment_paths()[0]
    page = os.path.getsize(path) - PAGE
    edit(path, page + 512 + 4, b"\xff")
    edit(path, page + 576 + 4, b"\xff")
    with pytest.raises(CorruptLog, match="neither durable watermark") as damage:
        home.open()
    assert (damage.value.path, damage.value.position) == (path, page)


# --- phantom tails ---


def lose_unflushed(home: Home, flushed: int, lost: int, epoch: int = 1) -> None:
    """``lost`` batches whose flush has begun, and of which nothing reaches the disk."""
    log = home.log
    fill(log, flushed, 100, epoch)
    log.flush()
    position = log.active.position
    fill(log, lost, 100, epoch)
    log.begin_flush()
    home.disk.fail_syncs_from = home.disk.syncs + 1  # the names are synced first
    with pytest.raises(FlushFailed):
        log.sync_files()
    home.disk.fail_syncs_from = -1
    path = log.active.file.path
    home.kill()
    os.pwrite(home.disk._node(path).fd, bytes(lost * 100), position)


def test_what_may_have_been_acknowledged_is_remembered() -> None:
    home = Home("/replica", CrashDisk())
    home.open()
    lose_unflushed(home, 3, 5)
    for _ in range(2):  # and again after a further restart
        assert home.open().end_offset == 3
        assert home.recovered.phantom_tail == OffsetAndEpoch(8, 1)
        home.kill()
    home.open()
    home.close()
    home.open()
    assert home.recovered.phantom_tail == OffsetAndEpoch(8, 1), "only the replica forgets it"
    home.disk.unlink("/replica/phantom-tail")
    home.kill()
    home.open()
    assert home.recovered.phantom_tail is None


def test_the_larger_phantom_tail_by_epoch_then_offset() -> None:
    home = Home("/replica", CrashDisk())
    home.open()
    lose_unflushed(home, 3, 9)
    home.open()
    lose_unflushed(home, 1, 2, epoch=4)
    home.open()
    assert home.recovered.phantom_tail == OffsetAndEpoch(6, 4), (
        "a later epoch, though it is shorter"
    )
    marks.write(home.disk, "/replica", marks.PHANTOM_TAIL, (5, 7))
    lose_unflushed(home, 1, 4, epoch=6)
    home.open()
    assert home.recovered.phantom_tail == OffsetAndEpoch(5, 7)


def test_a_phantom_tail_is_on_disk_before_anything_is_cut() -> None:
    whole = Home("/replica", CrashDisk())
    whole.open()
    lose_unflushed(whole, 3, 5)
    image = whole.disk
    image._node(whole.segment_paths()[0]).sync()  # its page got there, its last batches did not
    for cut_at in range(60):
        for disk in cuts(image, 1):
            disk.cut_at = cut_at
            home = Home("/replica", disk)
            try:
                home.open()
                return  # no further step: it was opened whole
            except PowerCut:
                pass
            for after in cuts(disk, cut_at):
                again = Home("/replica", after)
                assert again.open().end_offset == 3
                assert again.recovered.phantom_tail == OffsetAndEpoch(8, 1)


def test_a_phantom_tail_that_a_killed_start_named_outlives_its_cut() -> None:
    for killed_at in range(60):
        killed = Home("/replica", CrashDisk())
        killed.open()
        lose_unflushed(killed, 3, 5)
        disk = killed.disk
        disk.cut_at = len(disk.steps) + killed_at
        try:
            killed.open()
            return  # no further step: it was opened whole
        except PowerCut:  # of this process alone: the machine goes on
            disk.cut_at = -1
        disk.locks.clear()
        next_one = Home("/replica", disk)
        assert next_one.open().end_offset == 3
        assert next_one.recovered.phantom_tail == OffsetAndEpoch(8, 1)
        for after in cuts(disk, killed_at):
            again = Home("/replica", after)
            assert again.open().end_offset == 3
            assert again.recovered.phantom_tail == OffsetAndEpoch(8, 1), disk.steps[-40:]


# --- files that do not belong, or are not there ---


def test_what_crashes_and_kafkas_delayed_deletion_left_behind(home: Home) -> None:
    fill(home.open(), 3)
    home.close()
    strays = ["x.deleted", "y.tmp", "z.checkpoint.part", "a.swap", "b.cleaned"]
    for name in strays:
        Path(home.log_path, name).write_bytes(b"x")
    Path(home.path, "nursery", "spare-9").write_bytes(b"x")
    assert home.open().end_offset == 3
    home.close()
    assert not set(strays) & set(os.listdir(home.log_path))


@pytest.mark.parametrize("name", ["9" * 20, f"{2**63 - 1:020d}"])
def test_names_that_are_no_offsets(home: Home, name: str) -> None:
    home.open()
    home.close()
    Path(home.log_path, f"{name}.log").write_bytes(b"")
    gc.collect()  # what earlier tests left holds descriptors
    before = len(os.listdir("/proc/self/fd"))
    preparer = SteadyPreparer()
    with pytest.raises(ForeignDirectory, match="out of range"):
        home.open(preparer)
    assert len(os.listdir("/proc/self/fd")) == before and preparer.closed


def test_files_that_are_no_segments(home: Home) -> None:
    home.open()
    home.close()
    path = Path(home.segment_paths()[0])
    with open(path, "r+b") as file:
        file.truncate(2**32)
    with pytest.raises(ForeignDirectory, match="out of range"):
        home.open()
    path.unlink()
    path.mkdir()
    with pytest.raises(StorageError):
        home.open()
    path.rmdir()
    path.write_bytes(b"")
    assert home.open().end_offset == 0
    home.close()


def killed(home: Home) -> list[bytes]:
    log = home.open(segment_bytes=16 * KIB, stride_bytes=8 * KIB)
    stored = fill(log, 40)
    log.flush()
    with_holder = log.segments[-1]
    assert with_holder.has_page
    home.kill()
    return stored


def test_an_open_that_fails_leaks_nothing(home: Home) -> None:
    killed(home)
    edit(home.segment_paths()[0], 5000, b"\xff\xfe")
    gc.collect()  # what other tests left
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(3):
        preparer = SteadyPreparer()
        with pytest.raises(CorruptLog):
            home.open(preparer)
        assert preparer.closed
    assert len(os.listdir("/proc/self/fd")) == before


def test_the_largest_batch_fits_every_segment(home: Home) -> None:
    log = home.open(segment_bytes=4 * KIB, stride_bytes=4 * KIB)
    one = batch([bytes(limits.BATCH_BYTES_MAX - 75)])
    assert len(one) <= limits.BATCH_BYTES_MAX < len(one) + 8
    append(log, one)
    append(log, batch())
    assert len(log.segments) == 2
    home.close()
    assert home.open().end_offset == 2
