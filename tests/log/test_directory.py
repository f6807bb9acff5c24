"""A replica's directory: formatting, whose it is, and that one process at a time has it."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraftfast.errors import (
    DirectoryInUse,
    DiskFull,
    ForeignDirectory,
    InvalidOption,
    NotFormatted,
    StorageError,
)
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.committed_floor import write_floor
from kraftfast.log.small_files.directory import (
    META,
    OPTIONS,
    LogOptions,
    ReplicaDirectory,
    format_directory,
    random_uuid,
    read_options,
)
from kraftfast.types import ZERO_UUID, OffsetAndEpoch, uuid_text
from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import META as MINE
from tests.log.kit import Home


def test_formatting_and_opening(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "replica"
    options = LogOptions("all", "kafka-raft", "events", random_uuid())
    format_directory(Disk(), str(path), MINE, options)
    opened = ReplicaDirectory(Disk(), str(path))
    assert (opened.meta, opened.options, opened.adopted) == (MINE, options, False)
    assert opened.log_path == str(path / "events-0")
    assert os.stat(path).st_mode & 0o777 == 0o700
    opened.close()
    with pytest.raises(ForeignDirectory, match="already formatted"):
        format_directory(Disk(), str(path), MINE, options)


def test_a_witness_of_kafkas_acknowledges_from_disk_alone(tmp_path: Path) -> None:
    """Kafka's leader takes each acknowledgement for what is on disk: it knows of no other (D3)."""
    with pytest.raises(InvalidOption, match="durability=memory does not go with"):
        LogOptions("memory", "kafka-raft")
    format_directory(Disk(), str(tmp_path / "1"), MINE, LogOptions("majority", "kafka-raft"))
    options = tmp_path / "1" / OPTIONS
    options.write_text(options.read_text().replace("=majority", "=memory"))
    with pytest.raises(ForeignDirectory, match="durability=memory does not go with"):
        ReplicaDirectory(Disk(), str(tmp_path / "1"))


def test_formatting_is_all_or_nothing() -> None:
    whole = CrashDisk()
    format_directory(whole, "/replica", MINE, LogOptions())
    for cut_at in range(len(whole.steps)):
        disk = CrashDisk(cut_at)
        with pytest.raises(PowerCut):
            format_directory(disk, "/replica", MINE, LogOptions())
        for after in cuts(disk, cut_at):
            if not after.exists("/replica/meta.properties"):
                with pytest.raises(NotFormatted):
                    ReplicaDirectory(after, "/replica", lock=False)
                format_directory(after, "/replica", MINE, LogOptions())
            Home("/replica", after).open().close()


def test_what_is_promised_is_checked(tmp_path: Path) -> None:
    for bad in ({"durability": "some"}, {"records": "none"}):
        with pytest.raises(InvalidOption):
            LogOptions(**bad)
    Home(tmp_path)
    good = (tmp_path / OPTIONS).read_text()
    for old, new in (
        ("majority", "most"),
        ("topic.id=", "topic.id=x"),
        ("records=", "record="),
        ("=", "\\u"),
    ):
        (tmp_path / OPTIONS).write_text(good.replace(old, new, 1))
        with pytest.raises(ForeignDirectory):
            read_options(Disk(), str(tmp_path))
        with pytest.raises(ForeignDirectory):
            ReplicaDirectory(Disk(), str(tmp_path))
    (tmp_path / OPTIONS).write_text(good)
    ReplicaDirectory(Disk(), str(tmp_path)).close()  # a refused opening has let go of the lock


def test_ids() -> None:
    assert not any(uuid_text(random_uuid()).startswith("-") for _ in range(300))


def test_not_formatted(tmp_path: Path) -> None:
    for path in (tmp_path, tmp_path / "nowhere"):
        with pytest.raises(NotFormatted):
            ReplicaDirectory(Disk(), str(path))


def test_a_missing_directory_id_is_made_up_once(tmp_path: Path) -> None:
    (tmp_path / META).write_text("#\n#today\nversion=1\nnode.id=4\ncluster.id=c\\:d\n")
    read_only = ReplicaDirectory(Disk(), str(tmp_path), lock=False)
    assert read_only.meta.directory_id == ZERO_UUID
    first = ReplicaDirectory(Disk(), str(tmp_path))
    first.close()
    assert first.meta.directory_id != ZERO_UUID and first.meta.cluster_id == "c:d"
    second = ReplicaDirectory(Disk(), str(tmp_path))
    assert second.meta == first.meta
    second.close()


# --- the lock ---


def test_one_at_a_time(tmp_path: Path) -> None:
    Home(tmp_path)
    held = ReplicaDirectory(Disk(), str(tmp_path))
    with pytest.raises(DirectoryInUse, match="this process holds"):
        ReplicaDirectory(Disk(), str(tmp_path))
    with open(tmp_path / ".lock"):
        pass  # closing another descriptor of the file loses nothing
    with pytest.raises(DirectoryInUse):
        ReplicaDirectory(Disk(), str(tmp_path))
    held.close()
    ReplicaDirectory(Disk(), str(tmp_path)).close()


OURS = "from kraftfast.log.small_files.directory import *; held = ReplicaDirectory(Disk(), path)"
KAFKAS = "import fcntl; held = open(path + '/.lock', 'w'); fcntl.lockf(held, fcntl.LOCK_EX)"


@contextmanager
def another_process(path: Path, does: str) -> Iterator[subprocess.Popen[str]]:
    code = f"import sys; path = sys.argv[1]; {does}; print('held', flush=True); sys.stdin.read()"
    process = subprocess.Popen(
        [sys.executable, "-c", code, str(path)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )  # fmt: skip
    assert process.stdin and process.stdout
    try:
        assert process.stdout.readline() == "held\n"
        yield process
    finally:
        process.stdin.close()
        process.stdout.close()
        process.wait()


@pytest.mark.parametrize("does", [OURS, KAFKAS], ids=["ours", "kafka's"])
def test_a_second_process(tmp_path: Path, does: str) -> None:
    Home(tmp_path)
    with another_process(tmp_path, does) as process:
        with pytest.raises(DirectoryInUse, match="another process holds"):
            ReplicaDirectory(Disk(), str(tmp_path))
        process.kill()
        process.wait()
        ReplicaDirectory(Disk(), str(tmp_path)).close()  # the kernel has let go of it


def test_kafka_is_kept_out(tmp_path: Path) -> None:
    Home(tmp_path)
    with another_process(tmp_path, OURS), open(tmp_path / ".lock", "w") as kafka:
        with pytest.raises(OSError):
            fcntl.lockf(kafka, fcntl.LOCK_EX | fcntl.LOCK_NB)


def test_a_fifo_in_place_of_a_file_holds_up_nobody(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / META)
    with pytest.raises(ForeignDirectory):
        ReplicaDirectory(Disk(), str(tmp_path))


# --- Kafka's own directories ---


def test_kafkas_directory_is_adopted_once(tmp_path: Path) -> None:
    (tmp_path / META).write_text("version=1\nnode.id=1\ncluster.id=c\n")
    log_path = tmp_path / "some-topic-0"
    log_path.mkdir()
    (tmp_path / "other-topic-1").mkdir()
    (tmp_path / "other-topic-1" / "quorum-state").write_text("{}")
    (log_path / "quorum-state").write_text("{}")
    topic_id = random_uuid()
    (log_path / "partition.metadata").write_text(f"version: 0\ntopic_id: {uuid_text(topic_id)}")
    directory = ReplicaDirectory(Disk(), str(tmp_path))
    assert directory.adopted and directory.log_path == str(log_path)
    assert directory.options == LogOptions("majority", "kafka-raft", "some-topic", topic_id)
    directory.mark_ours()
    directory.close()
    again = ReplicaDirectory(Disk(), str(tmp_path))
    assert not again.adopted and again.options == directory.options
    again.close()


def test_what_kraftfast_wrote_is_no_directory_of_kafkas(tmp_path: Path) -> None:
    """Without kraftfast.properties its promises would be forgotten, and its records refused."""
    format_directory(Disk(), str(tmp_path), MINE, LogOptions("all", "any"))
    write_floor(Disk(), str(tmp_path), OffsetAndEpoch(3, 1))
    options = (tmp_path / OPTIONS).read_bytes()
    (tmp_path / OPTIONS).unlink()
    with pytest.raises(ForeignDirectory, match=f"no {OPTIONS}.* put that file back"):
        ReplicaDirectory(Disk(), str(tmp_path))
    assert not Disk().is_locked(str(tmp_path / ".lock"))
    (tmp_path / OPTIONS).write_bytes(options)
    directory = ReplicaDirectory(Disk(), str(tmp_path))
    assert directory.options == LogOptions("all", "any") and not directory.adopted
    directory.close()


# --- the boot id of memory quorums ---


class Booted(Disk):
    """A disk of a host that says which boot this is."""

    def __init__(self, boot: str) -> None:
        super().__init__()
        self.boot = boot

    def boot_id(self, path: str) -> str:
        return self.boot


def test_which_boot_a_memory_log_was_last_written_under(tmp_path: Path) -> None:
    Home(tmp_path, durability="memory")
    disk = Booted("boot-1")
    directory = ReplicaDirectory(disk, str(tmp_path))
    assert directory.keeps_memory()
    directory.write_boot_id()
    assert directory.keeps_memory()
    disk.boot = "boot-2"
    assert not directory.keeps_memory()
    directory.clear_boot_id()
    directory.clear_boot_id()
    assert directory.keeps_memory()
    directory.close()


def test_only_a_memory_log_keeps_what_is_in_memory(tmp_path: Path) -> None:
    Home(tmp_path, durability="majority")
    directory = ReplicaDirectory(Booted("boot-1"), str(tmp_path))
    assert not directory.in_memory and not directory.keeps_memory()
    directory.close()


def test_a_boot_id_that_stands_takes_no_space(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A replica that was killed on a full disk could not start, nor give up what would make room:
    the file was written anew at each start."""
    Home(tmp_path, durability="memory")
    disk = Booted("boot-1")
    directory = ReplicaDirectory(disk, str(tmp_path))
    directory.write_boot_id()
    synced: list[str] = []

    def full(*_: object) -> None:
        raise DiskFull("no space left: the test has used it up")

    monkeypatch.setattr(directory.disk, "replace_file", full)
    monkeypatch.setattr(directory.disk, "sync_directory", synced.append)
    directory.write_boot_id()
    assert synced == [str(tmp_path)], "a start that was killed may have named it just now"
    disk.boot = "boot-2"
    with pytest.raises(DiskFull):
        directory.write_boot_id()
    directory.close()


# --- the seam itself ---


def test_errors_of_the_disk_are_typed(tmp_path: Path) -> None:
    disk = Disk()
    here = str(tmp_path)
    file = str(tmp_path / "file")
    disk.replace_file(file, b"x")
    for failing in (
        lambda: disk.make_directory(file),
        lambda: disk.make_directory(file + "/below"),
        lambda: disk.read_file(here),
        lambda: disk.read_file(file, 0),
        lambda: disk.replace_file(here + "/no/file", b""),
        lambda: disk.rename(here + "/none", file),
        lambda: disk.unlink(here),
        lambda: disk.sync_directory(here + "/none"),
        lambda: disk.open_directory(file),
        lambda: disk.file_bytes(here + "/none"),
        lambda: disk.create_segment(here, 4096),
        lambda: disk.open_segment(here + "/none", True),
        lambda: disk.lock(here + "/none/.lock"),
        lambda: disk.list_directory(file),
    ):
        with pytest.raises(StorageError) as failed:
            failing()
        assert "\n" not in str(failed.value)
    with pytest.raises(DiskFull):
        disk.create_segment(file + "-huge", 2**62)
    assert disk.list_directory(here) == ["file"], "nothing is left behind"
    assert disk.list_directory(here + "/none") == []
    with pytest.raises(FileNotFoundError):
        disk.read_file(here + "/none")
