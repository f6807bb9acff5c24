"""Conditions that only a crash at the worst moment, or a second look at the disk, can tell.

Each is named as in docs/explanation/conditions.md; ``mutants/`` has the line that keeps it.
"""

from __future__ import annotations

import ctypes
import os
import random
import resource
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import DiskFull, FlushFailed
from kraftfast.link.ring_link import OwnDoorbell
from kraftfast.log.disk import Disk
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.node.threads.flusher import Flusher
from kraftfast.record.control import SnapshotFooter, control_batch
from kraftfast.sim.machines.paged_file import append_batch, copy_reference
from kraftfast.sim.machines.sim_disk import SimDisk
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import KIB, PAGE, Home, append, batch_of_size, content, fill

COMMITTED = Path(__file__).parent / "data"


def on_stable_storage(disk: CrashDisk) -> CrashDisk:
    """The disk after a power cut that keeps nothing but what was synced."""
    return disk.after_cut(random.Random(0), 0.0)


def crashing() -> Home:
    return Home("/replica", CrashDisk())


# --- D8: nothing that was cut comes back ----------------------------------------------------------


def test_a_cut_is_on_disk_when_it_returns() -> None:
    home = crashing()
    log = home.open()
    fill(log, 150)
    log.flush()
    first, *later = home.segment_paths()
    assert later
    log.truncate(20)
    left = on_stable_storage(home.disk)
    assert not any(left.exists(path) for path in later)
    data = left.read_file(first)
    assert data[20_000:-PAGE].count(0) == len(data) - PAGE - 20_000, "zeros"
    assert Home("/replica", left).open().end_offset == 20


def test_a_torn_tail_is_gone_from_the_disk_when_the_log_is_open() -> None:
    home = crashing()
    fill(home.open(), 10)
    home.log.flush()
    home.kill()
    (path,) = home.segment_paths()
    node = home.disk._node(path)
    os.pwrite(node.fd, b"\xee" * 20_000, 10_000)  # beyond what is prepared anew
    node.sync()
    home.open(stride_bytes=4 * KIB, how="mapped")  # whose preparation syncs nothing
    assert home.recovered is not None and home.recovered.cut_bytes >= 20_000
    assert b"\xee" not in on_stable_storage(home.disk).read_file(path)


def test_epochs_of_kafkas_batches_may_not_fall(tmp_path: Path) -> None:
    """Bytes 12 to 15 lie outside the CRC, and its checkpoint is not the word on them."""
    (source,) = (COMMITTED / "dynamic-4.3.0" / "n1").glob("*/quorum-state")
    home = Home.copied(source.parent, tmp_path / "n1")
    whole = home.open()
    epochs, end_offset = whole.epochs, whole.end_offset
    last = whole.locate(end_offset - 1, 0)[1]
    home.close()
    home = Home.copied(source.parent, tmp_path / "n2")
    assert epochs[-1][0] > 1
    with open(home.segment_paths()[-1], "r+b") as file:
        file.seek(last + 12)
        file.write((1).to_bytes(4, "big"))
    log = home.open()
    assert log.end_offset < end_offset and home.recovered is not None
    assert home.recovered.cut_reason == "leader epoch does not follow the log"


def test_a_flush_that_a_cut_overtook_counts_nothing() -> None:
    """D2: what it synced has gone, and what stands there now it did not sync."""
    home = crashing()
    log = home.open()
    fill(log, 5)
    log.flush()
    fill(log, 5)
    log.begin_flush()
    log.truncate(7)
    fill(log, 3, 1000, 2)
    assert log.end_flush() == 5
    assert log.active.flushed_position == 7_000, "the cut synced so much by itself"
    assert log.flush() == 10


def test_a_cut_below_what_was_flushed_starts_counting_anew() -> None:
    home = crashing()
    log = home.open()
    fill(log, 10)
    log.flush()
    log.truncate(5)
    assert log.flushed_end_offset == 5
    fill(log, 10, 1000, 2)
    assert log.flushed_end_offset == 5, "these were never flushed"


# --- D9: a failed sync is final, wherever it was --------------------------------------------------


@pytest.mark.parametrize("what", ["scrub", "cut", "names", "epoch"])
def test_a_failed_sync_outside_a_flush_is_final(what: str) -> None:
    home = crashing()
    log = home.open(how="mapped")
    fill(log, 70 if what == "names" else 10)
    log.flush()
    home.disk.fail_syncs_from = home.disk.syncs
    with pytest.raises(FlushFailed):
        if what == "scrub":  # zeros over a copy that was refused
            log.copy(rubbish(10), 1)
        elif what == "cut":
            log.truncate(5)
        elif what == "names":
            log.sync_names()
        else:
            append(log, batch_of_size(100), 2)
    home.disk.fail_syncs_from = -1
    assert isinstance(log.failed, FlushFailed)
    with pytest.raises(FlushFailed):
        log.flush()


def test_a_failed_sync_of_a_small_file_is_final(monkeypatch: pytest.MonkeyPatch) -> None:
    home = crashing()
    log = home.open()

    def fail(path: str, _data: bytes) -> None:
        raise FlushFailed(f"fsync of {path} failed: made to fail")

    with monkeypatch.context() as patched:
        patched.setattr(home.disk, "rewrite_file", fail)
        with pytest.raises(FlushFailed):
            append(log, batch_of_size(100), 1)
    with pytest.raises(FlushFailed):
        log.flush()


def test_a_failed_log_does_not_close_cleanly() -> None:
    home = crashing()
    log = home.open()
    fill(log, 3)
    home.disk.fail_syncs_from = home.disk.syncs
    with pytest.raises(FlushFailed):
        log.flush()
    home.disk.fail_syncs_from = -1
    home.close()
    assert not home.disk.exists(os.path.join(home.log_path, "durable-end"))
    assert home.disk.file_bytes(home.segment_paths()[0]) > 3000, "as a crash leaves it"


def test_pages_of_the_process_before_are_stored_again() -> None:
    """Its write-back may have failed: such pages look clean, and only a store makes them dirty."""
    home = crashing()
    fill(home.open(), 30)
    home.log.begin_flush()
    home.kill()
    (path,) = home.segment_paths()
    stored: list[tuple[int, int]] = []
    open_segment = home.disk.open_segment

    class Watched(type(open_segment(path, True))):  # type: ignore[misc]
        def store_again(self, start: int, end: int) -> None:
            stored.append((start, end))
            super().store_again(start, end)

    def watch(path: str, writable: bool) -> object:
        return Watched(home.disk, home.disk._node(path), path, writable)

    home.disk.open_segment = watch  # type: ignore[method-assign]
    home.open()
    assert [start for start, _ in stored] == [0] and stored[0][1] >= 30_000


def test_fdatasync_that_fails_is_heard(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(tmp_path / "replica", Disk())
    log = home.open()
    fill(log, 3)

    def fail(_fd: int) -> None:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fdatasync", fail)
    with pytest.raises(FlushFailed, match="Input/output error"):
        log.flush()
    monkeypatch.undo()
    with pytest.raises(FlushFailed):
        log.flush()
    assert log.flushed_end_offset == 0
    assert content(log)


def test_a_flush_of_the_flusher_that_fails_is_final(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = home.open()
    fill(log, 3)
    bell = OwnDoorbell()
    flusher = Flusher(bell.bell.address, bell.bell.fd)
    good, (pipe, other) = os.dup(log.active.file.fd), os.pipe()
    try:
        os.dup2(pipe, log.active.file.fd)  # which cannot be synced
        with pytest.raises(FlushFailed):
            flusher.run(log)
        os.dup2(good, log.active.file.fd)
        with pytest.raises(FlushFailed):
            flusher.run(log)
        assert log.flushed_end_offset == 0 and isinstance(log.failed, FlushFailed)
    finally:
        flusher.close()
        bell.close()
        for fd in (good, pipe, other):
            os.close(fd)
    home.kill()


# --- D10: damage is told from a torn tail, whenever the power goes --------------------------------


def at_every_step(home: Home, change: Any) -> Iterator[Home]:
    """Homes as power cuts leave them that come before each step of ``change(log)``.

    ``home`` is closed or was killed; every trial runs on a copy of what its disk holds.
    """
    for cut_at in range(200):
        trial = on_disk_now(home.disk)
        log = Home("/replica", trial).open()
        trial.steps.clear()
        trial.cut_at = cut_at
        try:
            change(log)
            assert cut_at > 2, "it was cut now and then"
            return
        except PowerCut:
            pass
        for after in cuts(trial, cut_at):
            yield Home("/replica", after)
    raise AssertionError("it does not end")


def on_disk_now(disk: CrashDisk) -> CrashDisk:
    """A copy of a disk, with everything on stable storage."""
    for directory in disk.directories.values():
        directory.sync()
        for node in directory.names.values():
            node.sync()
    return on_stable_storage(disk)


@pytest.mark.parametrize("count", [30, 100])
def test_a_cut_is_no_damage_at_any_step(count: int) -> None:
    """Inside the one prepared segment; or inside one that was trimmed, with others behind it."""
    home = crashing()
    fill(home.open(), count)
    home.log.flush()
    home.kill()
    for after in at_every_step(home, lambda log: log.truncate(10)):
        log = after.open()
        assert 10 <= log.end_offset <= count
        assert after.recovered is not None and after.recovered.phantom_tail is None


def test_a_cut_below_the_last_clean_close_is_no_damage_at_any_step() -> None:
    home = crashing()
    fill(home.open(), 100)
    home.close()
    for after in at_every_step(home, lambda log: log.truncate(10)):
        assert 10 <= after.open().end_offset <= 100


def test_a_close_is_no_damage_at_any_step() -> None:
    home = crashing()
    home.open()
    home.close()

    def write_and_close(log: Any) -> None:
        fill(log, 30)
        log.close()

    for after in at_every_step(home, write_and_close):
        assert after.open().end_offset <= 30


# --- D11: a reader sees what is there now ---------------------------------------------------------


def test_a_reader_notices_a_cut_in_place(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = home.open()
    fill(log, 20)
    with LogReader(home.log_path) as reader:
        assert reader.end_offset() == 20
        log.truncate(5)
        assert reader.end_offset() == 5
        stored = fill(log, 2, 700, 2)
        assert reader.end_offset() == 7
        assert b"".join(bytes(each.data) for each in reader.batches(5)) == b"".join(stored)
    home.close()


def test_a_reader_notices_that_a_file_grew(tmp_path: Path) -> None:
    """Kafka's own grow as they are appended to."""
    path = tmp_path / "00000000000000000000.log"
    reader = LogReader(tmp_path)
    for count in range(1, 4):
        with open(path, "ab") as file:
            file.write(batch_of_size(100, base_offset=count - 1))
        assert reader.end_offset() == count
        assert [record.offset for record in reader.records(0)] == list(range(count))


# --- D18: an acknowledgement needs every byte and every name before it ----------------------------


def test_what_is_counted_as_flushed_is_there_after_a_power_cut() -> None:
    home = crashing()
    log = home.open()
    for epoch in (1, 2, 3):
        fill(log, 60, 1000, epoch)
    assert len(log.segments) > 2
    while log.flushed_end_offset < 180:
        flushed = log.flush()
        left = Home("/replica", on_stable_storage(home.disk))
        assert left.open().end_offset == flushed
        assert left.log.epochs == log.epochs


def test_what_recovery_counts_as_flushed_is_there_after_a_power_cut() -> None:
    home = crashing()
    log = home.open()
    fill(log, 10)
    log.sync_names()
    home.kill()
    assert home.open(stride_bytes=4 * KIB).flushed_end_offset == 10  # nothing is to be prepared
    assert Home("/replica", on_stable_storage(home.disk)).open().end_offset == 10


def test_a_cut_leaves_nothing_unsynced_before_it() -> None:
    home = crashing()
    log = home.open()
    fill(log, 150)
    log.truncate(140)
    assert log.flush() == 140
    assert Home("/replica", on_stable_storage(home.disk)).open().end_offset == 140


def test_retention_removes_one_durably_before_the_next() -> None:
    home = crashing()
    log = home.open()
    fill(log, 300)
    log.flush()
    bases = [segment.base_offset for segment in log.segments]
    home.disk.steps.clear()
    delete_before(log, bases[-1])
    gone = 0
    for step in home.disk.steps:
        if "recycled" in step or (step.startswith("unlink") and step.endswith(".log")):
            gone += 1
            assert gone == 1, "the one before is still there after a crash, perhaps"
        elif step == f"sync {home.log_path}":
            gone = 0
    assert len(bases) > 4 and len(log.segments) == 1


def test_a_small_file_is_synced_before_its_name_and_its_name_before_it_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    did: list[str] = []
    fsync, rename = os.fsync, os.rename

    def watch_fsync(fd: int) -> None:
        did.append("sync " + os.path.basename(os.readlink(f"/proc/self/fd/{fd}")))
        fsync(fd)

    def watch_rename(source: str, target: str) -> None:
        did.append("rename " + os.path.basename(target))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", watch_fsync)
    monkeypatch.setattr(os, "rename", watch_rename)
    (tmp_path / "d").mkdir()
    Disk().replace_file(str(tmp_path / "d" / "file"), b"x")
    assert did == ["sync file.tmp", "rename file", "sync d"]


# --- D20: bytes of another process ----------------------------------------------------------------


def rubbish(offset: int) -> bytes:
    """A batch that does not check, whose body is made of batches that do."""
    inner = batch_of_size(100, base_offset=offset + 1, epoch=1)
    made = bytearray(batch_of_size(4000, base_offset=offset, epoch=1))
    made[100:3900] = inner * 38
    return bytes(made)


def written(log: Any) -> bytes:
    """Whatever lies behind the last batch."""
    segment = log.active
    return bytes(segment.file.view(segment.position, segment.prepared)).rstrip(b"\0")


@pytest.mark.parametrize("who", ["leader", "follower"])
def test_a_refused_copy_leaves_nothing_not_even_on_disk(who: str) -> None:
    """Where batches are put together in place; what is put together in a stage never was there."""
    home = crashing()
    log = home.open(how="mapped")
    fill(log, 5)
    log.flush()
    (node,) = [home.disk._node(path) for path in home.segment_paths()]
    sync = node.sync
    os.pwrite(node.fd, rubbish(5)[61:], 5_061)  # the kernel may write it back at any time
    sync()
    os.pwrite(node.fd, bytes(4_000), 5_000)
    refused = log.copy(rubbish(5), 1) if who == "follower" else append_batch(log, rubbish(5), 1)
    assert not refused and log.damaged()
    assert written(log) == b""
    stored = on_stable_storage(home.disk).read_file(home.segment_paths()[0])[: log.active.capacity]
    assert b"v" not in stored[5_000:]  # the key behind may have any byte


@pytest.mark.parametrize("how", ["written", "mapped"])
def test_a_batch_whose_epoch_cannot_be_stored_leaves_nothing(how: str) -> None:
    home = crashing()
    log = home.open(how=how)
    fill(log, 5)
    home.disk.space, held = 0, "leader-epoch-checkpoint.tmp"
    home.disk.unlink(f"{home.log_path}/{held}")
    assert not log.append(batch_of_size(900), 2) and isinstance(log.error, DiskFull), "it waits"
    assert written(log) == b"" and log.epochs == [(1, 0)]
    home.disk.space = -1
    assert append(log, batch_of_size(900), 2) == 5


@pytest.mark.parametrize(
    "offset, epoch, why",
    [
        (6, 3, "base offset does not follow"),
        (5, 2, "leader epoch does not follow"),
        (5, 5, "leader epoch does not follow"),
    ],
)
def test_a_follower_takes_only_what_follows(offset: int, epoch: int, why: str) -> None:
    home = crashing()
    log = home.open()
    fill(log, 5, 1000, 3)
    assert log.copy(batch_of_size(500, base_offset=offset, epoch=epoch), 4) == 0
    assert log.damaged() and why in log.fault_text()
    assert log.copy(batch_of_size(500, base_offset=5, epoch=4), 4) == 500


def test_a_producer_writes_no_control_records() -> None:
    log = crashing().open()
    made = control_batch([SnapshotFooter()], timestamp=0, leader_epoch=0)
    assert not append_batch(log, made, 1) and log.damaged()
    assert append_batch(log, batch_of_size(100), 1)


def leader() -> Home:
    return Home("/leader", SimDisk(random.Random(1)))


def test_a_source_that_was_cut_or_removed_is_not_copied_from() -> None:
    home, log = leader(), crashing().open()
    source = home.open()
    fill(source, 100)
    first, last = source.segments[0], source.segments[-1]
    mapped, removed = (home.disk.open_segment(each.file.path, False) for each in (first, last))
    told, told_of_removed = first.generation(), last.generation()
    assert copy_reference(log, mapped, 0, 5_000, 1, told) == 5_000
    source.truncate(20)
    for file, generation in ((mapped, told), (removed, told_of_removed)):
        assert copy_reference(log, file, 5_000, 5_000, 1, generation) == 0
        assert log.damaged() and "changed while it was read" in log.fault_text()
    assert copy_reference(log, mapped, 5_000, 5_000, 1, first.generation()) == 5_000


def test_a_source_that_is_cut_while_it_is_copied_is_not_taken() -> None:
    """The generation is looked at behind the body too: whoever cuts raises it first."""
    source = leader().open()
    made = batch_of_size(7 << 20)
    append(source, made, 1)
    log, file, told = crashing().open(), source.active.file, source.active.generation()
    word = ctypes.c_uint64.from_address(file.address + file.size - PAGE + 1024)
    assert word.value == told, "by the layout of cext/page.h"
    while attempt(log, file, len(made), told) != "taken":  # until there is room
        pass

    for number in range(200):
        word.value = told
        cutter = threading.Timer(number % 20 * 0.0001, setattr, (word, "value", told + 1))
        cutter.start()
        outcome = attempt(log, file, len(made), told)
        cutter.join()
        if outcome == "stale behind":
            return
    raise AssertionError("never seen while it was copied")


def attempt(log: Any, file: Any, size: int, told: int) -> str:
    """Copy one batch of another log's segment into an empty log; how that ended."""
    before = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt
    if copy_reference(log, file, 0, size, 1, told):
        log.truncate(0)
        return "taken"
    if not log.damaged():
        log.tend(0)
        return "no room"
    faults = resource.getrusage(resource.RUSAGE_THREAD).ru_minflt - before
    return "stale behind" if faults > 3 else "stale before"  # the stage took pages for the body
