"""Who reads files that are used again: readers, verify, a trim, and the next life."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from kraftfast.log.disk import Disk
from kraftfast.log.reading.at_rest import trim_log
from kraftfast.log.reading.held_segment import HeldSegment
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.reading.verify import verify
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.node.rings.ring_fetch import open_peer_segment
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import Home, fill, snapshot
from tests.log.test_used_again import BEGIN, ROOM, WAYS, expected, put, second_life


@WAYS
def test_readers_end_where_the_log_does(tmp_path: Path, how: str) -> None:
    home = Home(tmp_path / "replica")
    log = second_life(home, how)
    for count in (0, 1, 3, 4, 12):
        put(log, count)
        with LogReader(home.log_path) as reader:
            assert reader.end_offset() == log.end_offset
            assert [r.offset for r in reader.records(BEGIN)] == list(range(BEGIN, log.end_offset))
        held = HeldSegment(home.log_path, BEGIN)
        assert held.limit == log.active.position
        held.close()
    log.flush()
    home.kill()
    found = verify(home.path)
    assert (found.end_offset, found.tail.kind) == (
        BEGIN + 20,
        "zeros" if found.tail.bytes else "none",
    )
    found = verify(os.path.join(home.log_path, f"{BEGIN:020d}.log"))
    assert found.end_offset == BEGIN + 20


def test_trimmed_files_hold_nothing_but_the_log(tmp_path: Path) -> None:
    home = Home(tmp_path / "replica")
    log = second_life(home)
    put(log, 10)
    log.flush()
    home.kill()
    directory = ReplicaDirectory(home.disk, home.path)
    trim_log(home.disk, directory)
    directory.close()
    path = os.path.join(home.log_path, f"{BEGIN:020d}.log")
    assert Path(path).read_bytes() == b"".join(expected(BEGIN + 10))
    log = home.open(**ROOM)
    assert not log.active.key, "zeros stand behind the batches again"
    put(log, 3)
    home.close()
    assert Path(path).read_bytes() == b"".join(expected(BEGIN + 13))


def test_a_file_with_another_name_is_not_used_again(tmp_path: Path) -> None:
    """A backup by hard links keeps what it had (``cp -al``)."""
    home = Home(tmp_path / "replica")
    log = home.open(**ROOM)
    while len(log.segments) < 3:
        fill(log, 3)
    log.flush()
    log.retire()
    names = [segment.file.path for segment in log.segments[:2]]
    os.link(names[0], tmp_path / "backup")
    content = (tmp_path / "backup").read_bytes()
    delete_before(log, snapshot(home, log.segments[2].base_offset).offset)
    assert len(log.nursery.recycled) == 1, "the other one is"
    assert not os.path.exists(names[0])
    while len(log.segments) < 3:
        fill(log, 3)
    assert (tmp_path / "backup").read_bytes() == content
    home.kill()


def test_old_words_are_true_of_the_log_as_it_was(tmp_path: Path) -> None:
    """A file that was never trimmed keeps its page: what it says was flushed lies far behind."""
    home = Home(tmp_path / "replica")
    log = home.open(**ROOM, how="mapped")
    fill(log, 150)
    log.flush()
    first = log.segments[0]
    assert first.has_page
    number = first.file.inode()
    delete_before(log, snapshot(home, log.segments[1].base_offset).offset)
    while not any(s.file.inode() == number for s in log.segments):
        fill(log, 1)
    again = log.active
    assert again.file.inode() == number and again.key
    assert again.watermark()[0] < (again.base_offset, 1), "still the old ones"
    fill(log, 3)
    end = log.end_offset
    home.kill()
    log = home.open(**ROOM, how="mapped")
    assert log.end_offset == end
    home.close()
    assert OffsetAndEpoch(*log.durable_end).offset <= end


def test_a_verify_meets_a_segment_that_retention_frees(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "replica")
    log = home.open(**ROOM)
    fill(log, 200)
    log.flush()
    log.retire()
    begin, open_segment = log.segments[1].base_offset, Disk.open_segment

    def open_late(disk: Disk, path: str, writable: bool) -> Any:
        monkeypatch.undo()
        delete_before(log, snapshot(home, begin).offset)
        return open_segment(disk, path, writable)

    monkeypatch.setattr(Disk, "open_segment", open_late)
    found = verify(home.path)
    assert (found.start_offset, found.end_offset) == (begin, 200)
    home.kill()


def test_a_verify_meets_an_index_that_retention_removes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(tmp_path / "replica")
    log = home.open(**ROOM)
    fill(log, 200)
    log.flush()
    log.retire()
    index = log.segments[0].file.path.removesuffix(".log") + ".index"
    read_file = Disk.read_file

    def read(disk: Disk, path: str, *more: int) -> bytes:
        data = read_file(disk, path, *more)
        if path == index:
            os.unlink(path)  # it is read a second time
        return data

    monkeypatch.setattr(Disk, "read_file", read)
    assert verify(home.path).end_offset == 200 and not os.path.exists(index)
    assert verify(home.path).end_offset == 200
    home.kill()


def test_a_follower_that_pauses_before_its_lock_gets_no_other_segment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is opened under one name, used again under another, and only then locked."""
    home = Home(tmp_path / "replica")
    log = home.open(**ROOM)
    fill(log, 100)
    log.flush()
    log.retire()
    first, system_open = log.segments[0], os.open
    path, number = first.file.path, first.file.inode()

    def paused(name: str, *flags: Any) -> int:
        fd = system_open(name, *flags)
        if name == path:
            monkeypatch.undo()
            delete_before(log, snapshot(home, log.segments[1].base_offset).offset)
            while log.active.file.inode() != number:
                fill(log, 1)
            fill(log, 1)
        return fd

    monkeypatch.setattr(os, "open", paused)
    assert open_peer_segment(path, number) is None
    assert log.active.file.inode() == number and log.active.base_offset > 0
    held = open_peer_segment(log.active.file.path, number)
    assert held.share() and not log.active.file.exclude()
    held.close()
    assert log.active.file.exclude()
    home.kill()
