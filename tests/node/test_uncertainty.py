"""The marks of what a start leaves in doubt, on a disk that has no room for them."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftfast.errors import DiskFull, StorageError
from kraftfast.log import activation, boot
from kraftfast.log.disk import Disk
from kraftfast.log.reading.at_rest import find_log, looked_at, trim_log
from kraftfast.log.recovery import LogSettings, open_log
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.log.used_again import appended_end
from kraftfast.node.uncertainty import RETRY_MS, Uncertainty
from kraftfast.types import OffsetAndEpoch
from tests.log.kit import SMALL, Home, SteadyPreparer, fill, tend_until


class Started:
    """A memory replica's directory and log, as one start of its process has them."""

    def __init__(self, path: Path) -> None:
        self.directory = ReplicaDirectory(Disk(), str(path))
        self.made = Uncertainty(self.directory)
        settings = LogSettings(**SMALL, how="mapped")
        self.recovered = open_log(Disk(), self.directory, settings, SteadyPreparer())
        self.log = self.recovered.log
        self.made.opened(self.recovered.phantom_tail)

    def kill(self) -> None:
        self.log.abandon()
        self.directory.close()


def test_pages_that_are_gone_in_the_same_boot_are_a_lost_memory(tmp_path: Path) -> None:
    """D10: a file system shut itself down, or was unmounted by force; its kernel ran on.

    The replica took its log for whole: what it had acknowledged from memory, it forgot.
    """
    path = tmp_path / "r"
    Home(path, durability="memory")
    first = Started(path)
    stored = fill(first.log, 3)
    assert not first.made.memory_lost
    first.kill()
    lose(path, len(stored[0]) + len(stored[1]), len(stored[2]))
    for _ in range(2):  # killed again before anything was fetched
        again = Started(path)
        assert again.log.end_offset < 3 and again.made.memory_lost
        assert again.recovered.phantom_tail == (3, 1)
        again.kill()
    core = cast(Any, SimpleNamespace(in_doubt=False))
    last = Started(path)
    last.made.tend(core, 0)
    last.kill()
    after = Started(path)
    assert not after.made.memory_lost
    after.kill()


def killed(path: Path) -> list[bytes]:
    """Have a new memory replica append three batches, and die; return them."""
    Home(path, durability="memory")
    first = Started(path)
    stored = fill(first.log, 3)
    first.kill()
    return stored


def lose(path: Path, begin: int, size: int) -> None:
    """Have a part of the first segment be as if it was never written back."""
    segment = path / "__cluster_metadata-0" / f"{0:020}.log"
    data = bytearray(segment.read_bytes())
    data[begin : begin + size] = bytes(size)
    segment.write_bytes(data)


def trim(path: Path) -> None:
    """Do as ``kraftfast log trim``."""
    directory = ReplicaDirectory(Disk(), str(path))
    assert trim_log(Disk(), directory)
    directory.close()


def test_a_trim_does_not_hide_that_pages_are_gone(tmp_path: Path) -> None:
    """D10: it took the last page, which alone told of them; a majority of replicas that had been
    trimmed elected without what they had acknowledged."""
    path = tmp_path / "r"
    stored = killed(path)
    lose(path, len(stored[0]) + len(stored[1]), len(stored[2]))
    trim(path)
    again = Started(path)
    assert again.recovered.phantom_tail == (3, 1) and again.made.memory_lost
    again.kill()


def test_pages_of_a_segment_that_was_trimmed_before_are_missed(tmp_path: Path) -> None:
    """D10: its new last page had no key, so that nothing told of what had been appended there."""
    path = tmp_path / "r"
    stored = killed(path)
    trim(path)
    again = Started(path)
    assert not again.log.segments[-1].used, "nothing older stands behind: it is stored into"
    stored += fill(again.log, 2)
    assert again.log.end_offset == 5 and not again.made.memory_lost
    again.kill()
    lose(path, sum(map(len, stored[:-1])), len(stored[-1]))
    last = Started(path)
    assert 3 <= last.log.end_offset < 5
    assert last.recovered.phantom_tail == (5, 1) and last.made.memory_lost
    last.kill()


def test_what_a_segment_without_batches_tells_names_an_epoch(tmp_path: Path) -> None:
    """D10: it named -1, and a mark of that epoch no start could read."""
    path = tmp_path / "r"
    Home(path, durability="memory")
    first = Started(path)
    fill(first.log, 3)
    tend_until(first.log, first.log.roll)
    empty = first.log.segments[-1]
    assert empty.base_offset == first.log.end_offset == 3 and empty.key
    looked = SimpleNamespace(target=OffsetAndEpoch(2, 1), segments=[empty])
    assert appended_end(looked) == (3, 1)
    first.kill()


def test_a_trim_of_a_whole_memory_log_is_a_clean_close(tmp_path: Path) -> None:
    """Its host was started again, and all replicas were in doubt of logs that were on disk."""
    path = tmp_path / "r"
    killed(path)
    assert (path / "boot-id").exists()
    trim(path)
    assert not (path / "boot-id").exists()


def test_a_memory_log_of_a_version_before_gets_a_key(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D10: a segment that it had reopened has a last page, and no key: no loss in it was told."""
    path = tmp_path / "r"
    killed(path)
    trim(path)
    with monkeypatch.context() as before:
        before.setattr(activation, "begin_life", lambda *_words: None)
        old = Started(path)
        fill(old.log, 1)
        assert not old.log.segments[-1].key
        old.kill()
    again = Started(path)
    stored = fill(again.log, 2)
    assert again.log.segments[-1].key
    end = again.log.segments[-1].position
    again.kill()
    lose(path, end - len(stored[-1]), len(stored[-1]))
    last = Started(path)
    assert last.recovered.phantom_tail == (6, 1) and last.made.memory_lost
    last.kill()


@pytest.mark.parametrize("leave", ["close", "kill"])
def test_a_host_that_tells_no_boot_judges_a_log_that_was_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, leave: str
) -> None:
    path = tmp_path / "r"
    home = Home(path, durability="memory")
    first = Started(path)
    fill(first.log, 3)
    if leave == "close":
        first.log.close()
        first.made.closed()
        first.directory.close()
    else:
        first.kill()
    monkeypatch.setattr(boot, "KERNEL_BOOT_ID", str(tmp_path / "none"))
    if leave == "close":
        with looked_at(Disk(), find_log(Disk(), home.path)) as recovery:
            assert recovery.phantom_tail is None
    else:
        with pytest.raises(StorageError, match="durability=memory needs it"):
            with looked_at(Disk(), find_log(Disk(), home.path)):
                pass


def test_an_operator_may_say_that_the_memory_is_lost(tmp_path: Path) -> None:
    """Where pages are gone and the log does not show it (docs/explanation/acknowledgement.md)."""
    path = tmp_path / "r"
    Home(path, durability="memory")
    Started(path).kill()
    (path / "boot-id").write_text("lost\n")
    again = Started(path)
    assert again.made.memory_lost
    again.kill()


def test_a_memory_log_of_a_killed_process_is_whole(tmp_path: Path) -> None:
    path = tmp_path / "r"
    Home(path, durability="memory")
    for round in range(3):
        started = Started(path)
        assert not started.made.memory_lost and started.log.end_offset == 40 * round
        fill(started.log, 40, 4000)  # several segments
        started.kill()


def test_a_lost_memory_stays_marked_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: the replica ended as soon as it was no longer in doubt, and again after each start."""
    Home(tmp_path / "r", durability="memory")
    directory = ReplicaDirectory(Disk(), str(tmp_path / "r"))
    Uncertainty(directory).opened(None)
    monkeypatch.setattr(directory.disk, "boot_id", lambda _path: "another")
    made, core = Uncertainty(directory), cast(Any, SimpleNamespace(in_doubt=False))
    assert made.memory_lost
    tries = []

    def refuse(*_: object) -> None:
        tries.append(1)
        raise DiskFull("no room", errno.ENOSPC)

    with monkeypatch.context() as full:
        full.setattr(directory, "write_boot_id", refuse)
        for now_ms in (0, 1, RETRY_MS - 1, RETRY_MS):
            made.tend(core, now_ms)
    assert made.memory_lost and len(tries) == 2
    assert Uncertainty(directory).memory_lost, "another start is in doubt again"
    made.tend(core, 3 * RETRY_MS)
    assert not made.memory_lost and not Uncertainty(directory).memory_lost
    directory.close()


@pytest.mark.parametrize("content", [None, "", " \n"])
def test_only_memory_needs_a_host_that_tells_its_boot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: str | None
) -> None:
    """In a sandbox without that file no replica started, whatever its durability."""
    file = tmp_path / "boot_id"
    if content is not None:
        file.write_text(content)
    monkeypatch.setattr(boot, "KERNEL_BOOT_ID", str(file))
    for durability in ("majority", "all", "memory"):
        Home(tmp_path / durability, durability=durability)
        directory = ReplicaDirectory(Disk(), str(tmp_path / durability))
        if durability == "memory":
            # Each power cut would pass for the end of a process.
            with pytest.raises(StorageError, match=f"{file}.*durability=memory needs it"):
                Uncertainty(directory).opened(None)
        else:
            assert not Uncertainty(directory).memory_lost
        directory.close()
