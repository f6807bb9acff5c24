"""A snapshot in place of the log: when it takes it, and that it does so wholly or not at all."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import CorruptLog, DiskFull, FlushFailed, ForeignDirectory
from kraftfast.log.idempotence.producer_records import to_tags
from kraftfast.log.reading.verify import verify
from kraftfast.log.small_files import marks
from kraftfast.log.snapshots.log_start import delete_before, install_snapshot
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_name
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter, write_bootstrap
from kraftfast.record.batch import batches
from kraftfast.types import KRaftVersion, OffsetAndEpoch
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import KIB, Home, append, batch, batch_of_size, content, fill, snapshot

SETTINGS: dict[str, Any] = {"segment_bytes": 16 * KIB, "stride_bytes": 16 * KIB}
COMMITTED = Path(__file__).parent / "data"


def filled(disk: CrashDisk, count: int = 60, epoch: int = 3) -> Home:
    home = Home("/replica", disk)
    fill(home.open(**SETTINGS), count, epoch=epoch)
    home.log.flush()
    assert len(home.log.segments) > 3
    return home


def cut_at_every_step(act: Callable[[Home], None]) -> list[tuple[Home, bool]]:
    """The replica, opened, after a power cut at each step of ``act``, and whether that was over."""
    whole = filled(CrashDisk())
    begun = len(whole.disk.steps)
    act(whole)
    found = []
    for cut in range(begun, len(whole.disk.steps) + 1):
        disk = CrashDisk(cut)
        home = filled(disk)
        try:
            act(home)
        except PowerCut:
            pass
        for after in cuts(disk, cut):
            again = Home("/replica", after)
            again.open(**SETTINGS)
            found.append((again, cut == len(whole.disk.steps)))
    return found


PLACES = {"ahead": (200, 4), "of the same epoch": (61, 3), "beside": (30, 4), "at the end": (60, 4)}


# covers: testCreateReplicatedLogTruncatesFully
@pytest.mark.parametrize("place", PLACES.values(), ids=PLACES.keys())
def test_installed_wholly_or_not_at_all(place: tuple[int, int]) -> None:
    snapshot_id = OffsetAndEpoch(*place)

    def install(home: Home) -> None:
        snapshot(home, *snapshot_id)
        install_snapshot(home.log, snapshot_id)
        append(home.log, batch_of_size(200, base_offset=snapshot_id.offset, epoch=9), 9)
        home.log.flush()

    old = anew = 0
    for home, over in cut_at_every_step(install):
        log = home.log
        ids = snapshot_ids(home.disk, home.log_path)
        if not ids:
            assert (log.log_start_offset, log.end_offset) == (0, 60) and not over
            old += 1
            continue
        anew += 1
        assert ids == [snapshot_id] and home.recovered.snapshots == (snapshot_id,)
        assert log.log_start_offset == log.segments[0].base_offset == snapshot_id.offset
        assert log.end_offset == snapshot_id.offset + len(list(batches(content(log))))
        assert log.end_offset == snapshot_id.offset + 1 or not over, "what was flushed is there"
        assert log.last_epoch == (9 if log.end_offset > snapshot_id.offset else snapshot_id.epoch)
        names = home.disk.list_directory(home.log_path)
        assert sum(name.endswith(".log") for name in names) == 1, "nothing old is left"
        append(log, batch([b"on"]), 9)
        log.flush()
        home.close()
    assert old > 20 and anew > 50


# covers: testTruncateFullyToLatestSnapshot
def test_a_start_that_ends_too_is_finished_by_the_next() -> None:
    """The power goes while a snapshot takes the log's place, and again at each step of a start."""

    def stopped() -> CrashDisk:
        home = filled(CrashDisk())
        snapshot(home, 200, 4)
        home.disk.cut_at = len(home.disk.steps)  # before the first segment goes
        with pytest.raises(PowerCut):
            install_snapshot(home.log, OffsetAndEpoch(200, 4))
        return home.disk.after_cut(random.Random(1), 1.0)

    whole = stopped()
    Home("/replica", whole).open(**SETTINGS)
    for cut in range(len(whole.steps)):
        disk = stopped()
        disk.cut_at = cut
        with pytest.raises(PowerCut):
            Home("/replica", disk).open(**SETTINGS)
        for after in cuts(disk, cut):
            log = Home("/replica", after).open(**SETTINGS)
            assert log.log_start_offset == log.end_offset == 200


def test_an_install_counts_as_a_truncation_and_empties_the_log() -> None:
    home = filled(CrashDisk())
    log = home.log
    pages = [segment.generation() for segment in log.segments if segment.has_page]
    before, kept = log.truncations, list(log.segments)
    install_snapshot(log, snapshot(home, 100, 5))
    assert log.truncations == before + 1, "D2"
    recycled = [file for file, _ in log.nursery.recycled]
    assert pages and all(segment.file.fd < 0 or segment.file in recycled for segment in kept)
    assert log.locate(99, 1000) is None and log.segment_of(100) is log.active
    assert (log.start_epoch, log.last_epoch, log.epochs) == (5, 5, [])
    with_old = batch([b"old"], base_offset=100, epoch=4)
    assert log.copy(with_old, 9) == 0 and log.damaged(), "an epoch below the snapshot's"
    log.truncate(100)
    assert log.last_epoch == 5
    home.close()
    assert home.open(**SETTINGS).last_epoch == 5


def test_a_full_disk_changes_nothing() -> None:
    home = filled(CrashDisk())
    stored = content(home.log)
    snapshot_id = snapshot(home, 100, 5)
    home.disk.space = 0
    with pytest.raises(DiskFull):
        install_snapshot(home.log, snapshot_id)
    assert content(home.log) == stored and home.log.truncations == 0
    home.disk.space = -1
    install_snapshot(home.log, snapshot_id)
    assert home.log.end_offset == 100


def test_old_epochs_stay_on_a_full_disk() -> None:
    """D25: the segments are gone by then, and what was freed must not end the replica."""
    home = filled(CrashDisk())
    log = home.log
    fill(log, 30, epoch=4)
    log.flush()
    snapshot(home, 80, 4)
    home.disk.space = 0
    assert delete_before(log, 80) > 0 and log.segments[0].base_offset > 60
    home.disk.space = -1
    append(log, batch_of_size(200, base_offset=90, epoch=5), 5)
    log.flush()
    home.kill()
    log = home.open(**SETTINGS)
    assert (log.log_start_offset, log.end_offset) == (80, 91)
    assert home.recovered.epochs == ((4, 80), (5, 90))


class FailingDisk(CrashDisk):
    """A disk that refuses one step, number ``fail_at``, and goes on."""

    fail_at = -1

    def step(self, what: str) -> None:
        super().step(what)
        if len(self.steps) == self.fail_at:
            raise DiskFull(f"no space left: {what}")


@pytest.mark.parametrize("stopped_before", [False, True])
def test_a_refused_step_loses_nothing(stopped_before: bool) -> None:
    """D25: refused before the first removal, everything is as it was; after it, the next start
    finishes."""

    def prepared() -> tuple[Home, OffsetAndEpoch]:
        home = filled(FailingDisk())
        if stopped_before:
            home.close()
            home.open(**SETTINGS)
        return home, snapshot(home, 100, 5)

    home, snapshot_id = prepared()
    begun = len(home.disk.steps)
    install_snapshot(home.log, snapshot_id)
    kept = finished = 0
    for step in range(begun + 1, len(home.disk.steps) + 1):
        home, snapshot_id = prepared()
        stored = content(home.log)
        home.disk.fail_at = step
        try:
            install_snapshot(home.log, snapshot_id)
        except DiskFull:
            pass
        if home.log.failed is None and home.log.end_offset == 60:
            kept += 1
            assert content(home.log) == stored and home.log.truncations == 0
            append(home.log, batch_of_size(200, base_offset=60, epoch=3), 3)
            home.log.flush()
            home.disk.unlink(os.path.join(home.log_path, snapshot_name(snapshot_id)))
            home.kill()
            assert home.open(**SETTINGS).end_offset == 61
            continue
        finished += 1
        home.kill()
        log = home.open(**SETTINGS)
        assert (log.log_start_offset, log.end_offset, log.last_epoch) == (100, 100, 5)
        append(log, batch_of_size(200, base_offset=100, epoch=5), 5)
    assert kept >= 6 and finished > 10


def test_a_refused_step_of_retention_leaves_no_gap() -> None:
    """D25: a segment whose removal failed is there at the next start, so nothing goes on."""

    def retain(home: Home, fail_at: int) -> None:
        home.disk.fail_at = fail_at  # type: ignore[attr-defined]
        for offset in (40, 55):
            if home.log.failed is None:
                with suppress(DiskFull):
                    delete_before(home.log, offset)

    def prepared() -> Home:
        home = filled(FailingDisk())
        for offset in (40, 55):
            snapshot(home, offset, 3)
        return home

    home = prepared()
    begun = len(home.disk.steps)
    retain(home, -1)
    failed = 0
    for step in range(begun + 1, len(home.disk.steps) + 1):
        home = prepared()
        retain(home, step)
        failed += home.log.failed is not None
        home.kill()
        log = home.open(**SETTINGS)
        assert log.end_offset == 60 and log.log_start_offset in (0, 40, 55)
    assert failed > 5


def with_state(home: Home, snapshot_id: OffsetAndEpoch, state: bytes) -> OffsetAndEpoch:
    with SnapshotWriter(
        home.disk, home.log_path, snapshot_id, last_contained_log_timestamp=0
    ) as writer:
        writer.freeze(to_tags(state))
    return snapshot_id


UNREADABLE = {
    "of a version that this one cannot read": (b"\x04\x04\x00\x00", ForeignDirectory),
    "damaged": (b"\x01\x05", CorruptLog),
}


@pytest.mark.parametrize("state, error", UNREADABLE.values(), ids=UNREADABLE.keys())
def test_a_state_that_cannot_be_read_changes_nothing(state: bytes, error: type) -> None:
    """D25: the state of producers is judged before anything is removed, by a start too."""
    home = filled(CrashDisk())
    stored = content(home.log)
    snapshot_id = with_state(home, OffsetAndEpoch(100, 5), state)
    with pytest.raises(error, match="state of producers"):
        install_snapshot(home.log, snapshot_id)
    assert content(home.log) == stored and home.log.failed is None
    home.kill()
    with pytest.raises(error, match=snapshot_name(snapshot_id)):
        home.open(**SETTINGS)
    home.disk.unlink(os.path.join(home.log_path, snapshot_name(snapshot_id)))
    assert content(home.open(**SETTINGS)) == stored


def test_a_failed_sync_is_final() -> None:
    home = filled(CrashDisk())
    snapshot_id = snapshot(home, 100, 5)
    home.disk.fail_syncs_from = home.disk.syncs + 2
    with pytest.raises(FlushFailed):
        install_snapshot(home.log, snapshot_id)
    with pytest.raises(FlushFailed):
        home.log.flush()


def test_a_clean_close_of_before_is_no_loss() -> None:
    """``durable-end`` lies behind the snapshot's end: it told of a log that is given up."""
    home = filled(CrashDisk())
    home.close()
    assert marks.read(home.disk, home.log_path, marks.DURABLE_END) == (60, 3)
    home.open(**SETTINGS)
    install_snapshot(home.log, snapshot(home, 30, 4))
    append(home.log, batch_of_size(200, base_offset=30, epoch=4), 4)
    home.log.flush()
    for leave in (home.kill, home.close, home.kill):
        leave()
        log = home.open(**SETTINGS)
        assert (log.log_start_offset, log.end_offset, log.last_epoch) == (30, 31, 4)


# covers: testDoesntTruncateFully
def test_a_snapshot_that_the_log_holds_takes_nothing() -> None:
    home = filled(CrashDisk())
    ids = tuple(snapshot(home, offset, 3) for offset in (20, 60))
    write_bootstrap(home.disk, home.log_path, (KRaftVersion(1),))
    home.kill()
    log = home.open(**SETTINGS)
    assert (log.log_start_offset, log.end_offset) == (0, 60) and home.recovered.snapshots == ids
    delete_before(log, 20)
    home.close()
    log = home.open(**SETTINGS)
    assert 0 < log.segments[0].base_offset < log.log_start_offset == 20
    assert home.recovered.snapshots == ids and home.recovered.epochs == ((3, 20),)
    assert snapshot_ids(home.disk, home.log_path) == [BOOTSTRAP, *ids], "the bootstrap's stays"


# covers: testStartupWithInvalidSnapshotState, testCleanupOlderSnapshots
def test_a_log_that_starts_later_needs_a_snapshot(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = home.open(segment_bytes=8 * KIB, stride_bytes=8 * KIB)
    fill(log, 20)
    log.flush()
    delete_before(log, 10)
    assert (log.segments[0].base_offset, log.log_start_offset) == (8, 10)
    home.close()
    with pytest.raises(ForeignDirectory, match="no snapshot reaches that far"):
        home.open()
    snapshot(home, 7)
    Path(home.log_path, f"{9:020d}-{1:010d}.checkpoint.part").write_bytes(b"")
    with pytest.raises(ForeignDirectory):
        home.open()
    later = snapshot(home, 10)
    assert snapshot_ids(home.disk, home.log_path) == [OffsetAndEpoch(7, 1), later]
    log = home.open()
    assert (log.log_start_offset, log.end_offset, log.epochs) == (10, 20, [(1, 8)])
    assert (home.recovered.snapshots, home.recovered.epochs) == ((later,), ((1, 10),))
    assert snapshot_ids(home.disk, home.log_path) == [later], "what is below the start is gone"
    home.close()


@pytest.mark.parametrize("place", [(60, 3), (59, 3), (30, 4), (200, 4)])
def test_damage_is_told_even_where_a_snapshot_covers_it(place: tuple[int, int]) -> None:
    """Nothing that a crash leaves of an install: readers would miss the records in silence."""
    home = filled(CrashDisk())
    snapshot(home, *place)
    home.kill()
    node = home.disk._node(home.segment_paths()[1])
    os.pwrite(node.fd, b"\xff", 5000)
    with pytest.raises(CorruptLog, match="damaged at byte 5000"):
        home.open(**SETTINGS)


@pytest.mark.parametrize("closed", [False, True])
def test_a_page_that_is_lost_is_told_where_a_snapshot_covers_it(closed: bool) -> None:
    """D10: a log ended where the page had been, and all of it was left without a word."""
    home = filled(CrashDisk())
    snapshot(home, 60, 3)
    segment = home.log.active
    at, offset = segment.place_of(segment.base_offset + 1)[0], segment.base_offset + 1
    home.close() if closed else home.kill()
    os.pwrite(home.disk._node(home.segment_paths()[-1]).fd, bytes(100), at)
    with pytest.raises(CorruptLog, match=f"ends at offset {offset}"):
        home.open(**SETTINGS)


def test_zeros_that_a_cut_left_are_no_damage() -> None:
    """L5: it cuts a trimmed file that is mapped by zeros, and an install removes what follows."""
    home = filled(CrashDisk())
    snapshot(home, 60, 3)
    home.close()
    last, before = home.segment_paths()[-1], home.segment_paths()[-2]
    home.disk.unlink(last)
    node = home.disk._node(before)
    os.pwrite(node.fd, bytes(3000), os.fstat(node.fd).st_size)
    log = home.open(**SETTINGS)
    assert (log.log_start_offset, log.end_offset) == (60, 60)
    home.close()


@pytest.mark.parametrize("place, good", [((60, 3), True), ((59, 3), False), ((30, 4), True)])
def test_an_end_that_a_snapshot_has_may_be_missing(place: tuple[int, int], good: bool) -> None:
    """As a crash leaves it that cut off an install: the newest segments are gone."""
    home = filled(CrashDisk())
    snapshot(home, *place)
    home.close()
    home.disk.unlink(home.segment_paths()[-1])
    if good:
        log = home.open(**SETTINGS)
        assert (log.log_start_offset, log.end_offset) == (place[0], place[0])
        home.close()
    else:
        with pytest.raises(CorruptLog):
            home.open(**SETTINGS)


def test_a_log_without_segments_begins_at_its_snapshot() -> None:
    home = filled(CrashDisk())
    snapshot_id = snapshot(home, 60, 3)
    home.close()
    for path in home.segment_paths():
        home.disk.unlink(path)
    log = home.open(**SETTINGS)
    assert (log.log_start_offset, log.end_offset, log.last_epoch) == (60, 60, snapshot_id.epoch)


def test_an_older_snapshot_excuses_nothing() -> None:
    home = filled(CrashDisk())
    snapshot(home, 40, 3)
    home.close()
    for path in home.segment_paths():
        home.disk.unlink(path)
    with pytest.raises(CorruptLog, match="below offset 60"):
        home.open(**SETTINGS)


def test_verify_tells_what_a_start_would_do(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    fill(home.open(**SETTINGS), 60, epoch=3)
    home.close()
    snapshot(home, 100, 3)
    found = verify(home.path)
    assert (found.start_offset, found.end_offset) == (100, 100)
    assert found.tail.kind == "torn" and "behind or beside its snapshot" in found.tail.reason


def test_a_damaged_log_of_kafkas_begins_again_at_its_snapshot(tmp_path: Path) -> None:
    """A damaged log of Kafka's below its snapshot: it is begun anew there, as Kafka does."""
    (log_path,) = (COMMITTED / "dynamic-4.3.0/n1").glob("*metadata-0")
    home = Home.on(CrashDisk.holding("/replica", log_path.parent), "/replica", log_path.name)
    os.pwrite(home.disk._node(home.segment_paths()[0]).fd, b"\xff", 2000)
    log = home.open()
    assert (content(log), log.log_start_offset, log.end_offset, log.last_epoch) == (
        b"", 113, 113, 4,
    )  # fmt: skip
    home.close()


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_its_files_are_used_again_without_what_their_pages_said(how: str) -> None:
    """They say that more was flushed than the log has that goes on in them (D10)."""
    home = filled(CrashDisk())
    log = home.log
    install_snapshot(log, snapshot(home, *PLACES["beside"]))
    assert log.nursery.recycled
    while not log.active.used:
        append(log, batch_of_size(3000, epoch=5), 5)
    end = log.end_offset
    assert end < 60
    home.kill()
    log = home.open(**SETTINGS, how=how)
    assert log.end_offset == end and home.recovered is not None
    assert home.recovered.phantom_tail is None
    home.close()
