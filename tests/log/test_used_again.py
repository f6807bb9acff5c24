"""Files that are used again, as they are: nothing that they held before is ever taken for records.

The attack: in the first life of each file a producer's records hold well-formed batches, at every
place at which the log will end in the file's next life, with the offsets and the epoch that it will
have there. Any page that a power cut takes shows them.
"""

from __future__ import annotations

import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.limits import BATCH_HEADER_BYTES
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.reading.verify import verify
from kraftfast.log.snapshots.log_start import delete_before, install_snapshot
from kraftfast.log.spare import Spare
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import (
    KIB,
    PAGE,
    Home,
    append,
    batch,
    batch_of_size,
    content,
    snapshot,
)

SIZE = 1024
"""Of a batch in the second life: four end in each page, one of them with it."""
ROOM: dict[str, Any] = {"segment_bytes": 64 * KIB, "stride_bytes": 64 * KIB, "prepare_bytes": 0}
WAYS = pytest.mark.parametrize("how", ["written", "mapped"])
FIRST_LIFE = 3  # segments
BEGIN = FIRST_LIFE + 1  # where the second life begins


def planted(first: int, epoch: int) -> bytes:
    """One record that fills a segment: its value holds what a log that begins with offset ``first``
    has there, but for the first batch."""
    wrong = b"".join(made(first + number, epoch, b"!") for number in range(1, 60))
    for start in range(SIZE):  # where the value begins in the batch, so that they stand in place
        whole = batch([b"s" * start + wrong], base_offset=0, epoch=1)
        if whole.find(wrong) == SIZE:
            return whole
    raise AssertionError("a value begins somewhere")


def made(offset: int, epoch: int = 1, fill: bytes = b"") -> bytes:
    return batch_of_size(
        SIZE, base_offset=offset, epoch=epoch, fill=fill or bytes([97 + offset % 26])
    )


def second_life(
    home: Home,
    how: str = "written",
    epoch: int = 1,
    trimmed: bool = True,
    cached: int | None = None,
    **more: Any,
) -> Any:
    """A log whose last segment is empty, in a file that held planted batches; the log.

    ``trimmed``: whether the file was, at the end of its first life. ``cached``: how much of it the
    page cache holds.
    """
    log = home.open(**ROOM | more, how=how)
    for _ in range(FIRST_LIFE):  # one record each
        append(log, planted(BEGIN, epoch), 1)
    append(log, batch_of_size(100), 1)  # rolls: the others are complete
    log.flush()
    if trimmed:
        log.retire()
    delete_before(log, snapshot(home, log.segments[2].base_offset).offset)
    assert [paged for _, paged in log.nursery.recycled] == [not trimmed] * 2
    while not (
        log.nursery.spare and log.nursery.spare.used and log.nursery.spare.stage == Spare.READY
    ):
        if log.nursery.spare is not None and not log.nursery.spare.used:
            log.nursery.give_up_spare(-10_000)
        log.nursery.spare_wanted = True
        log.tend(1)
    if cached is not None:
        log.nursery.spare.cached = cached
    assert log.roll()
    segment = log.active
    assert segment.key and segment.position == 0 and segment.prepared == segment.capacity
    assert log.end_offset == BEGIN
    return log


def expected(end: int, epoch: int = 1) -> list[bytes]:
    """What a second life holds up to an offset."""
    return [made(offset, epoch) for offset in range(BEGIN, end)]


def second(log: Any) -> bytes:
    """All that stands behind the first life."""
    found, at = content(log), 0
    while at < len(found) and int.from_bytes(found[at : at + 8], "big") < BEGIN:
        at += 12 + int.from_bytes(found[at + 8 : at + 12], "big")
    return found[at:]


def put(log: Any, count: int, epoch: int = 1) -> None:
    for _ in range(count):
        append(log, made(log.end_offset, epoch), epoch)


def has_used_spare(log: Any) -> bool:
    spare = log.nursery.spare
    return spare is not None and spare.used and spare.stage == Spare.READY


@WAYS
def test_the_attack_works_but_for_the_words(how: str) -> None:
    """By framing, CRC, offset and epoch nothing tells planted batches from the log's own."""
    home = Home("/replica", CrashDisk())
    log = second_life(home, how)
    put(log, 2)
    file, end = log.active.file, log.active.position
    assert bytes(file.view(PAGE, PAGE + SIZE)) == made(BEGIN + PAGE // SIZE, 1, b"!")
    zeros = PAGE if how == "written" else end + BATCH_HEADER_BYTES
    assert not any(file.view(end, zeros)), "no header, as far as the page goes if it was written"
    home.kill()
    assert second(home.open(how=how)) == b"".join(expected(BEGIN + 2))


# --- a power cut, at every step ---


class Life:
    """What is done in a second life; ``acked``: up to where it was flushed."""

    def __init__(self, home: Home) -> None:
        self.home, self.acked, self.truth = home, BEGIN, expected(BEGIN)
        self.cut: list[bytes] = []  # what may stand there instead, behind the last flush

    def flush(self) -> None:
        end = self.home.log.end_offset
        self.home.log.flush()
        self.acked = end

    def put(self, count: int, epoch: int = 1) -> None:
        for _ in range(count):
            self.truth.append(made(self.home.log.end_offset, epoch))
            append(self.home.log, self.truth[-1], epoch)


def appends(life: Life) -> None:
    for count in (1, 3, 4, 2, 7, 20):
        life.put(count)
        life.flush()
    life.put(3)


def appends_during_flushes(life: Life) -> None:
    for count in (1, 3, 5, 4):
        life.put(count)
        end = life.home.log.begin_flush()
        life.put(3)
        life.home.log.sync_files()
        life.home.log.end_flush()
        life.acked = end


def cuts_and_goes_on(life: Life) -> None:
    """What is cut and appended again at the same offsets, by a later epoch."""
    log = life.home.log
    life.put(9)
    life.flush()
    for epoch, keep in enumerate((BEGIN + 6, BEGIN + 2, BEGIN + 3, BEGIN), 2):
        life.acked = min(life.acked, keep)
        life.cut = life.truth[keep - BEGIN :]
        del life.truth[keep - BEGIN :]
        log.truncate(keep)
        life.cut = []
        life.put(4, epoch)
        life.flush()
    life.put(3, epoch)


def check(life: Life, home: Home, how: str) -> None:
    """What a start finds is what was appended, and all that was flushed; it can be gone on with."""
    found = verify(home.path) if type(home.disk) is not CrashDisk else None
    log = home.open(**ROOM, how=how)
    held = second(log)
    whole = b"".join(life.truth)
    if not whole.startswith(held) and life.cut:
        kept = len(life.truth) - sum(b in life.cut for b in life.truth)
        assert b"".join([*life.truth[:kept], *life.cut]).startswith(held), "cut, or not cut yet"
    else:
        assert whole.startswith(held), "a record that nobody appended"
    assert log.end_offset >= life.acked and (found is None or found.end_offset == log.end_offset)
    stored = [held]
    for _ in range(6):
        stored.append(made(log.end_offset, 9))
        append(log, stored[-1], 9)
    log.flush()
    home.kill()
    assert second(home.open(**ROOM, how=how)) == b"".join(stored)
    home.kill()


@WAYS
@pytest.mark.parametrize("every", [5, pytest.param(1, marks=pytest.mark.long)])
@pytest.mark.parametrize("lived", [appends, appends_during_flushes, cuts_and_goes_on])
def test_a_power_cut_at_every_step(lived: Any, every: int, how: str) -> None:
    def live(cut_at: int) -> tuple[Life, int]:
        disk = CrashDisk()
        home = Home("/replica", disk)
        life = Life(home)
        second_life(home, how)
        begin = len(disk.steps)
        disk.cut_at = begin + cut_at if cut_at >= 0 else -1
        try:
            lived(life)
            disk.cut_at = len(disk.steps)
            home.disk.step("the end")
        except PowerCut:
            pass
        return life, len(disk.steps) - begin

    _, steps = live(-1)
    assert steps > 5
    for cut_at in range(steps % every, steps + 1, every):  # the last of them always
        life, _ = live(cut_at)
        for after in cuts(life.home.disk, cut_at):  # type: ignore[arg-type]
            check(life, Home("/replica", after), how)


def test_what_was_appended_while_a_flush_ran_takes_nothing_with_it() -> None:
    """The end in the last page is beyond what the flush put on disk: its target vouches, too."""
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = second_life(home)
    put(log, 3)
    log.begin_flush()
    put(log, 6)  # in the page's words, and in no page of the disk but those of the flush
    node = disk._node(log.active.file.path)
    log.sync_files()
    for page in range(1, log.active.position // PAGE + 1):
        node.stable[page] = planted(BEGIN, 1)[page * PAGE : (page + 1) * PAGE]
    after = disk.after_cut(random.Random(1), 0.0)
    assert second(Home("/replica", after).open(**ROOM)) == b"".join(expected(BEGIN + 3))


@WAYS
@pytest.mark.parametrize("trimmed", [True, False])
def test_the_key_is_on_disk_before_the_first_batch(trimmed: bool, how: str) -> None:
    """Pages of batches may reach the disk, and the name of the file, before its last page does."""
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = second_life(home, how, trimmed=trimmed)
    put(log, 2)
    disk.sync_directory(home.log_path)
    node = disk._node(log.active.file.path)
    node.stable[0] = node.pages()[0][: 2 * SIZE] + planted(BEGIN, 1)[2 * SIZE : PAGE]
    after = disk.after_cut(random.Random(1), 0.0)
    log = Home("/replica", after).open(**ROOM, how=how)
    assert b"".join(expected(BEGIN + 2)).startswith(second(log)), "records that nobody appended"


# --- a kill: the page cache is whole ---


@WAYS
@pytest.mark.parametrize("flushed", [True, False])
def test_a_killed_process_loses_nothing(tmp_path: Path, how: str, flushed: bool) -> None:
    home = Home(tmp_path / "replica")
    log = second_life(home, how)
    put(log, 5)
    if flushed:
        log.flush()
    put(log, 4)
    home.kill()
    for _ in range(3):
        log = home.open(**ROOM, how=how)
        assert second(log) == b"".join(expected(BEGIN + 9)) and log.active.key
        assert home.recovered is not None and home.recovered.cut_bytes == 0
        home.kill()
    log = home.open(**ROOM, how=how)
    while len(log.segments) < 3:
        put(log, 1)
    end = log.end_offset
    home.close()
    assert second(home.open(**ROOM, how=how)) == b"".join(expected(end))
    home.close()


def test_a_directory_that_moved_goes_on(tmp_path: Path) -> None:
    """All that tells batches from older bytes stands in the file itself."""
    home = Home(tmp_path / "replica")
    log = second_life(home)
    put(log, 5)
    home.kill()
    shutil.copytree(tmp_path / "replica", tmp_path / "moved")
    moved = Home(tmp_path / "moved")
    log = moved.open(**ROOM)
    assert second(log) == b"".join(expected(BEGIN + 5))
    put(log, 3)
    moved.kill()
    assert second(moved.open(**ROOM)) == b"".join(expected(BEGIN + 8))
    moved.close()


def test_a_log_that_begins_anew_behind_a_snapshot(tmp_path: Path) -> None:
    """The snapshot ends where planted batches say that they follow."""
    disk = CrashDisk()
    home = Home("/replica", disk)
    log = second_life(home)
    put(log, 2)
    log.flush()
    log.retire()
    keep = log.active
    while log.active is keep:
        put(log, 1)
    log.flush()
    log.retire()
    delete_before(log, snapshot(home, log.segments[-1].base_offset).offset)
    while not (
        log.nursery.spare and log.nursery.spare.used and log.nursery.spare.stage == Spare.READY
    ):
        log.nursery.spare_wanted = True
        log.tend(1)
    end = snapshot(home, 500)
    install_snapshot(log, end)
    assert log.active.key and log.active.position == 0 and log.end_offset == 500
    stored = [batch_of_size(SIZE, base_offset=500 + n, epoch=2) for n in range(5)]
    for one in stored[:3]:
        append(log, one, 2)
    log.flush()
    for one in stored[3:]:
        append(log, one, 2)
    for after in cuts(disk, 5):
        again = Home("/replica", after).open(**ROOM)
        assert b"".join(stored).startswith(content(again)) and again.end_offset >= 503


# --- the words themselves ---


def words(log: Any) -> int:
    """Where the last page is mapped."""
    address: int = log.active.page_address
    return address


def key_is_damaged(home: Home) -> None:
    """Four batches of a second life that were not flushed, behind three that were."""
    log = second_life(home)
    put(log, 3)
    log.flush()
    put(log, 4)
    path, at = log.active.file.path, log.active.capacity + 1152
    home.kill()
    with open(path, "r+b") as file:
        file.seek(at + 3)
        byte = file.read(1)
        file.seek(at + 3)
        file.write(bytes([byte[0] ^ 4]))


def test_a_key_that_cannot_be_read_vouches_for_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    key_is_damaged(home)
    log = home.open(**ROOM)
    assert second(log) == b"".join(expected(BEGIN + 3)), "what was flushed, and no more"
    put(log, 5)
    home.kill()
    assert second(home.open(**ROOM)) == b"".join(expected(BEGIN + 8)), "under a new key"
    home.close()


def test_damage_below_the_flushed_end_is_told_as_ever(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = second_life(home)
    put(log, 8)
    log.flush()
    path = log.active.file.path
    home.kill()
    with open(path, "r+b") as file:
        file.seek(3 * SIZE + 500)
        file.write(b"?")
    with pytest.raises(CorruptLog) as damage:
        home.open(**ROOM)
    assert (damage.value.position, damage.value.offset) == (3 * SIZE, BEGIN + 3)


@pytest.mark.parametrize("more", [0, 2])
def test_a_write_that_the_disk_lost_is_damage(tmp_path: Path, more: int) -> None:
    """Older batches in the place of some that were flushed: the words vouch for those, too."""
    home = Home(tmp_path / "replica")
    log = second_life(home)
    put(log, 5)
    log.flush()
    put(log, more)
    if more:
        log.begin_flush()
        log.active.aim_watermark(log.end_offset, 1, log.active.voucher)
    path = log.active.file.path
    home.kill()
    with open(path, "r+b") as file:
        file.seek(SIZE)
        file.write(made(BEGIN + 1, 1, b"!"))
    with pytest.raises(CorruptLog, match="is not what was flushed there"):
        home.open(**ROOM)


def left_by_0_1_0(home: Home, rolled: bool = False) -> tuple[str, int, int]:
    """A log of four batches with older ones behind what is prepared: (path, prepared, capacity).

    ``rolled``: two more batches stand in a segment of their own.
    """
    log = home.open(**ROOM)
    put_at = [made(offset) for offset in range(4)]
    for one in put_at:
        append(log, one, 1)
    log.flush()
    prepared, capacity = log.active.prepared, log.active.capacity
    path = log.active.file.path
    if rolled:
        log.nursery.spare = log.nursery.spare_now()
        assert log.roll()
        put(log, 2)
        log.flush()
    home.kill()
    with open(path, "r+b") as file:
        for at in range(prepared, prepared + 40 * SIZE, SIZE):
            file.seek(at)
            file.write(made(at // SIZE, 1, b"!"))
    return path, prepared, capacity


def test_what_version_0_1_0_left_behind_its_prepared_bytes(tmp_path: Path) -> None:
    """Older batches behind them: they get a key before anything is appended there."""
    home = Home(tmp_path / "replica")
    _, prepared, capacity = left_by_0_1_0(home)
    log = home.open(**ROOM)
    assert log.end_offset == 4 and log.active.key and log.active.prepared == capacity
    while log.active.position < min(prepared + 2 * SIZE, 62 * KIB):
        append(log, made(log.end_offset), 1)
    log.flush()
    append(log, made(log.end_offset), 1)
    end = log.end_offset
    home.kill()
    log = home.open(**ROOM)
    assert content(log) == b"".join(made(offset) for offset in range(end))
    home.close()


def test_a_cut_back_into_what_version_0_1_0_left(tmp_path: Path) -> None:
    """A segment that rolled with older batches behind it, and that a reader keeps from a trim."""
    home = Home(tmp_path / "replica")
    left_by_0_1_0(home, rolled=True)
    with LogReader(home.log_path) as reader:
        assert reader.batches(0, 1).__next__().base_offset == 0
        log = home.open(**ROOM)
        assert len(log.segments) == 2 and log.segments[0].has_page and not log.segments[0].key
        log.truncate(3)
        assert log.active.base_offset == 0 and log.active.key
        put(log, 2, 2)
        log.flush()
        put(log, 2, 2)
        home.kill()
    stored = [*(made(number) for number in range(3)), *(made(number, 2) for number in range(3, 7))]
    assert content(home.open(**ROOM)) == b"".join(stored)
    home.close()


@pytest.mark.parametrize("damaged", [False, True], ids=["no key", "a damaged key"])
def test_a_power_cut_while_a_life_begins(tmp_path: Path, damaged: bool) -> None:
    """Sector by sector: what is on disk is never taken for damage, nor for older batches."""
    home = Home(tmp_path / "replica")
    if damaged:
        key_is_damaged(home)
    else:
        left_by_0_1_0(home)
    disk = CrashDisk.holding("/replica", tmp_path / "replica")
    whole = content(Home("/replica", disk).open(**ROOM))
    syncs = [at for at, step in enumerate(disk.steps) if step.startswith("sync") and ".log" in step]
    assert len(syncs) > 3 and whole.endswith(made(BEGIN + 2 if damaged else 3))
    for cut_at in syncs:
        for seed in range(8):
            disk = CrashDisk.holding("/replica", tmp_path / "replica")
            disk.cut_at = cut_at
            with pytest.raises(PowerCut):
                Home("/replica", disk).open(**ROOM)
            log = Home("/replica", disk.after_cut(random.Random(seed), 0.5)).open(**ROOM)
            assert log.active.key and content(log) == whole
