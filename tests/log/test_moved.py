"""A directory that is moved or replaced while its log is open, and segments that are removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import DirectoryInUse, DirectoryMoved, FlushFailed, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.committed_floor import read_floor, write_floor
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import KIB, Home, append, batch_of_size, content, fill


def test_no_flush_counts_a_segment_that_was_removed(tmp_path: Path) -> None:
    """D18: no start would find it."""
    home = Home(str(tmp_path), Disk())
    log = home.open()
    fill(log, 3)
    assert log.flush() == 3
    append(log, batch_of_size(1000), 1)
    os.unlink(log.active.file.path)
    with pytest.raises(FlushFailed, match="No such file"):
        log.flush()
    assert log.flushed_end_offset == 3 and log.failed is not None
    home.kill()


def test_a_log_goes_on_in_the_directory_that_was_moved(tmp_path: Path) -> None:
    """And not in one that was made in its place since (D18)."""
    here, there = tmp_path / "here", tmp_path / "there"
    sizes = {"segment_bytes": 64 * KIB, "prepare_bytes": 64 * KIB}
    home = Home(str(here), Disk())
    log = home.open(**sizes)
    stored = b"".join(fill(log, 30))
    os.rename(here, there)
    with pytest.raises(DirectoryMoved, match="was moved, removed or replaced") as caught:
        home.directory.check()
    said = f"what it was is {there} now: stop what runs it, then move it back or start it there"
    assert said in str(caught.value)
    other = Home(str(here), Disk())
    taken = b"".join(fill(other.open(**sizes), 5))
    for number in range(30, 150):  # it rolls twice
        made = batch_of_size(1000, base_offset=number, epoch=1)
        append(log, made)
        stored += made
    write_floor(home.disk, home.path, OffsetAndEpoch(150, 1))
    home.close()
    assert read_floor(other.disk, other.path) == OffsetAndEpoch(0, 0)
    assert content(other.log) == taken
    other.close()
    for path, expected in ((here, taken), (there, stored)):
        opened = Home(str(path), Disk())
        assert content(opened.open(**sizes)) == expected
        opened.close()


def test_a_held_directory_is_no_other_that_begins_with_its_name(tmp_path: Path) -> None:
    disk = Disk()
    (tmp_path / "log").mkdir()
    (tmp_path / "log-2").mkdir()
    disk.hold(str(tmp_path / "log"))
    disk.replace_file(str(tmp_path / "log-2" / "file"), b"x")
    disk.replace_file(str(tmp_path / "log" / "file"), b"y")
    assert (tmp_path / "log-2" / "file").read_bytes() == b"x"
    assert disk.list_directory(str(tmp_path / "log")) == ["file"]
    disk.let_go(str(tmp_path / "log"))


def test_a_directory_is_held_once(tmp_path: Path) -> None:
    disk = Disk()
    disk.hold(f"{tmp_path}/")
    with pytest.raises(DirectoryInUse):
        disk.hold(str(tmp_path))
    assert disk.at(f"{tmp_path}/file").startswith("/proc/self/fd/")
    disk.let_go(str(tmp_path))
    disk.let_go(str(tmp_path))
    assert disk.at(f"{tmp_path}/file") == f"{tmp_path}/file"


def test_a_look_that_fails_says_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory above that cannot be entered for a while stops no replica."""
    disk = Disk()
    disk.hold(str(tmp_path))

    def refused(*_arguments: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(os, "stat", refused)
        disk.check_held(str(tmp_path))
    disk.check_held(str(tmp_path))
    tmp_path.rename(tmp_path.with_name("elsewhere"))
    with pytest.raises(StorageError, match="what it was is .*/elsewhere now"):
        disk.check_held(str(tmp_path))
    disk.let_go(str(tmp_path))
