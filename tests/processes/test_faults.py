"""Faults of disks and directories, each with its typed error; the quorum goes on without the one.

Torn and damaged files of every kind: tests/log. Producers that die in a claim: tests/client.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import kraftfast
from kraftfast.errors import (
    CorruptLog,
    DirectoryInUse,
    DiskFull,
    FlushFailed,
    ForeignDirectory,
    KraftfastError,
    NoQuorum,
    TimedOut,
)
from kraftfast.log.disk import Disk
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.scan import walk
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.quorum import LocalQuorum
from tests.damaging import flip
from tests.processes.kit import (
    PATIENCE_S,
    SMALL,
    a_quorum,
    followers_of,
    go_on,
    leader_of,
    loads,
    log_path,
    pid_of,
    settled,
    status_of,
    verify,
    wait_until,
)

pytestmark = pytest.mark.processes


def error_of(quorum: LocalQuorum, id: int) -> KraftfastError:
    """Why a worker ended for good; it is not started again."""
    worker = quorum.supervisor.workers[id]
    wait_until(lambda: worker.error is not None and worker.process is None)
    restarts = worker.restarts
    assert worker.is_final and worker.error is not None
    time.sleep(max(0.1, worker.start_at - time.monotonic() + 0.1))
    assert worker.restarts == restarts
    return worker.error


def segment_of(quorum: LocalQuorum, id: int) -> Path:
    """The first segment of a replica."""
    return sorted(Path(log_path(quorum, id)).glob("*.log"))[0]


def place_of_batch(path: str, offset: int, end_offset: int) -> int:
    """Where the batch of an offset begins in the first segment; the log has so much at least."""
    with LogReader(path) as reader:
        span = next(iter(reader.spans(offset, end_offset)))
        return int(span.position)


# --- directories ----------------------------------------------------------------------------------


def test_a_directory_that_is_held(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q") as quorum:
        with pytest.raises(DirectoryInUse, match="this process holds .*/q ") as refused:
            kraftfast.LocalQuorum(tmp_path / "q", **SMALL, timeout=PATIENCE_S)
        assert refused.value.exit_code == 34
        with loads(quorum, "ring") as running:
            pass
        verify(quorum, settled(quorum), running)


def test_a_start_without_a_leader_names_the_time_that_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not what the start of the workers had left of it."""
    monkeypatch.setattr(LocalQuorum, "_status_if_any", lambda *_asked: {})
    with pytest.raises(NoQuorum, match="no leader within 1 s"):
        LocalQuorum(tmp_path / "q", **SMALL, timeout=1)


def test_a_replica_that_another_process_holds(tmp_path: Path) -> None:
    """The others start; it does as soon as it can."""
    with a_quorum(tmp_path / "q"):
        pass
    held = ReplicaDirectory(Disk(), str(tmp_path / "q" / "2"))
    with a_quorum(tmp_path / "q") as quorum:
        assert quorum.faults == {} and sorted(quorum.statuses()) == [1, 3]
        held.close()
        wait_until(lambda: len(quorum.statuses()) == 3)


def test_a_directory_of_another_quorum(tmp_path: Path) -> None:
    """Replaced as a whole; or another replica's: a majority goes on without it."""
    for name in ("mine", "theirs"):
        with a_quorum(tmp_path / name, voters=1):
            pass
    shutil.rmtree(tmp_path / "mine" / "1")
    shutil.copytree(tmp_path / "theirs" / "1", tmp_path / "mine" / "1")
    with pytest.raises(ForeignDirectory, match="mine/1 belongs to cluster") as refused:
        kraftfast.LocalQuorum(tmp_path / "mine", **SMALL)
    assert refused.value.exit_code == 35
    shutil.copytree(tmp_path / "theirs" / "1", tmp_path / "theirs" / "2")
    description = (tmp_path / "theirs" / "quorum.json").read_text()
    (tmp_path / "theirs" / "quorum.json").write_text(description.replace("[1]", "[1,2]"))
    with a_quorum(tmp_path / "theirs", voters=None) as quorum:
        assert "theirs/2 belongs to node 1, not 2" in str(quorum.faults[2])
        assert isinstance(quorum.faults[2], ForeignDirectory)


# --- damage ---------------------------------------------------------------------------------------


def test_a_corrupt_segment_at_the_start(tmp_path: Path) -> None:
    """Refused with its exact place, nothing changed; with the bit back everything is there.

    The other two are a majority and start.
    """
    with a_quorum(tmp_path / "q") as quorum:
        with loads(quorum, "ring") as running:
            pass
        end_offset = settled(quorum)
        file, directory = segment_of(quorum, 2), log_path(quorum, 2)
    position = place_of_batch(directory, end_offset // 2, end_offset)
    flip(file, position + 70)
    before = {path: path.read_bytes() for path in sorted(file.parent.glob("0*"))}
    with a_quorum(tmp_path / "q") as quorum:
        error = quorum.faults[2]
        assert isinstance(error, CorruptLog) and error.exit_code == 33
        assert re.search(f"{file}.*{position}", str(error))
    assert {path: path.read_bytes() for path in sorted(file.parent.glob("0*"))} == before
    flip(file, position + 70)
    with a_quorum(tmp_path / "q", voters=None) as quorum:
        verify(quorum, settled(quorum), running)


def test_a_segment_that_is_damaged_while_its_quorum_runs(tmp_path: Path) -> None:
    """The next start of that replica refuses it, for good; the others go on."""
    with a_quorum(tmp_path / "q") as quorum:
        with loads(quorum, "ring") as running:
            damaged = followers_of(quorum)[0]
            wait_until(lambda: quorum.status(damaged)["flushed_end_offset"] > 20)
            flushed = quorum.status(damaged)["flushed_end_offset"]
            quorum.kill(damaged, signal.SIGSTOP)
            position = place_of_batch(log_path(quorum, damaged), 1, flushed)
            flip(segment_of(quorum, damaged), position + 70)
            quorum.kill(damaged)
            error = error_of(quorum, damaged)
            assert isinstance(error, CorruptLog) and error.exit_code == 33, error
            assert str(segment_of(quorum, damaged)) in str(error)
            go_on(running)
        others = [id for id in quorum.directories if id != damaged]
        verify(quorum, settled(quorum, others), running, others)


@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_damage_of_a_leader_keeps_no_follower_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, transport: str
) -> None:
    """A leader led on, and a follower that needed the batch fetched it again and again, unheard.

    The next leader has damage, too, elsewhere: if each ended by what it finds, none would be left.
    """
    caplog.set_level("INFO")
    with a_quorum(tmp_path / "q", transport=transport) as quorum:
        leader = leader_of(quorum)
        behind, other = followers_of(quorum)
        quorum.kill(behind, signal.SIGSTOP)
        with loads(quorum, "ring", size=1000) as running:
            offset = quorum.status(leader)["end_offset"] + 200  # far beyond what the other one has
            for id, at in ((leader, offset), (other, offset + 100)):
                wait_until(lambda id=id: quorum.status(id)["flushed_end_offset"] > offset + 200)
                damage(segment_of(quorum, id), at)
            quorum.kill(behind, signal.SIGCONT)
            wait_until(
                lambda: (status_of(quorum, behind) or {}).get("end_offset", 0) > offset + 200
            )
            go_on(running)
        verify(quorum, settled(quorum), running, [behind])
    assert "are not taken: CRC-32C does not match" in caplog.text
    assert f"{segment_of(quorum, leader)} is damaged at byte" in caplog.text
    assert "the log is damaged -> replica" in caplog.text


def damage(file: Path, offset: int) -> None:
    """Flip a bit of a record in the batch that holds an offset, in a replica's first segment."""
    with file.open("rb") as opened:
        data = opened.read(8 << 20)
    position, *_ = walk(data, 0, len(data), 0, end_offset=offset)
    flip(file, position + 70)


# --- disk full ------------------------------------------------------------------------------------


def fill(directory: Path) -> Path:
    """A file that takes all the space that is left."""
    ballast = directory / "ballast"
    with ballast.open("wb", buffering=0) as file:
        size = 1 << 20
        while size:
            try:
                file.write(bytes(size))
            except OSError:
                size //= 2
    return ballast


def test_a_disk_that_is_full_at_the_start(small_disk: Path) -> None:
    """Where there is no room to prepare, and where the directories are there already."""
    with a_quorum(small_disk / "q", voters=1):
        pass
    ballast = fill(small_disk)
    with pytest.raises(DiskFull, match="no space left") as refused:
        kraftfast.LocalQuorum(small_disk / "q", **SMALL, timeout=PATIENCE_S)
    assert refused.value.exit_code == 31
    with pytest.raises(DiskFull, match="no space left"):
        kraftfast.LocalQuorum(small_disk / "fresh", **SMALL, timeout=PATIENCE_S)
    ballast.unlink()
    with a_quorum(small_disk / "q", voters=None) as quorum:
        settled(quorum)


@pytest.mark.parametrize("over", ["ring", "socket"])
def test_a_disk_that_is_full_in_the_middle(small_disk: Path, over: str) -> None:
    """Appends are refused by a typed error, what is committed stays, and it goes on with space.

    DiskFull; where the followers' disks are full before the leader's, it learns nothing of what
    lies behind records that cannot be committed, and has no more room.
    """
    with a_quorum(small_disk / "q", transport=over) as quorum:
        with loads(quorum, "own", size=2000, pause=0.0, timeout=5.0) as running:
            pids = [pid_of(quorum, id) for id in quorum.directories]
            ballast = fill(small_disk)
            kinds: set[type] = set()

            def refused() -> bool:
                kinds.update(type(error) for error in running[0].refusals + running[0].refused)
                return bool(kinds & {DiskFull, TimedOut})

            wait_until(refused)
            assert any(status["nursery_error"] for status in quorum.statuses().values())
            ballast.unlink()
            go_on(running)
            assert [pid_of(quorum, id) for id in quorum.directories] == pids, "no SIGBUS"
        verify(quorum, settled(quorum), running)


# --- a flush that fails ---------------------------------------------------------------------------


class BrokenDisk:
    """From now on every fsync and fdatasync of a process fails with EIO."""

    def __init__(self, pid: int) -> None:
        self.process = subprocess.Popen(
            ["strace", "-f", "-p", str(pid), "-e", "trace=fsync,fdatasync",
             "-e", "inject=fsync,fdatasync:error=EIO"],
            stderr=subprocess.PIPE,
        )  # fmt: skip
        assert self.process.stderr is not None
        line = self.process.stderr.readline().decode()
        if "attached" not in line:
            pytest.skip(f"strace cannot attach here: {line.strip()}")
        self._drain = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._drain.start()

    def close(self) -> None:
        self.process.terminate()
        self.process.wait()
        self._drain.join()


def the_leader(quorum: LocalQuorum) -> int:
    return leader_of(quorum)


def a_follower(quorum: LocalQuorum) -> int:
    return followers_of(quorum)[0]


@pytest.mark.skipif(shutil.which("strace") is None, reason="needs strace")
@pytest.mark.parametrize("whose", [the_leader, a_follower], ids=lambda whose: whose.__name__)
def test_a_flush_that_fails_is_final(tmp_path: Path, whose: Callable[[LocalQuorum], int]) -> None:
    """D9: nothing is acknowledged after it, the replica stops for good, the quorum goes on."""
    with a_quorum(tmp_path / "q") as quorum:
        with loads(quorum, "ring", "ring") as running:
            broken = whose(quorum)
            disk = BrokenDisk(pid_of(quorum, broken))
            error = error_of(quorum, broken)
            disk.close()
            assert isinstance(error, FlushFailed) and error.exit_code == 32, error
            assert "failed" in str(error) and "\n" not in str(error)
            go_on(running)
        others = [id for id in quorum.directories if id != broken]
        verify(quorum, settled(quorum, others), running, others)


# --- too few descriptors --------------------------------------------------------------------------


def test_a_worker_without_descriptors_refuses_and_goes_on(tmp_path: Path) -> None:
    """EMFILE (fault 8): whoever comes is let wait or turned away; nothing else suffers."""
    with a_quorum(tmp_path / "q", voters=1) as quorum:
        with loads(quorum, "ring") as running:
            pid = pid_of(quorum, 1)
            soft, hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)
            assert soft == hard, "a worker may have as many as its user may"
            held = len(os.listdir(f"/proc/{pid}/fd"))
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (held, hard))
            with pytest.raises(KraftfastError):
                quorum.producer(timeout=1.0)
            go_on(running)
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (hard, hard))
            with quorum.producer(timeout=PATIENCE_S) as producer:
                producer.append_wait(b"p0-x", timeout=PATIENCE_S)
            go_on(running)
            assert pid_of(quorum, 1) == pid


def test_an_election_without_descriptors_ends_no_replica_for_good(tmp_path: Path) -> None:
    """Found by a review: votes could not be stored, and two of three stayed down (fault 8)."""
    with a_quorum(tmp_path / "q", voters=3) as quorum:
        with quorum.producer(timeout=PATIENCE_S) as producer:
            producer.append_wait(b"before", timeout=PATIENCE_S)
        followers = {id: pid_of(quorum, id) for id in followers_of(quorum)}
        for pid in followers.values():
            hard = resource.prlimit(pid, resource.RLIMIT_NOFILE)[1]
            resource.prlimit(pid, resource.RLIMIT_NOFILE, (3, hard))
        quorum.kill(leader_of(quorum))
        workers = quorum.supervisor.workers
        wait_until(lambda: any(workers[id].restarts > 0 for id in followers))
        quorum.wait_leader(PATIENCE_S)
        with quorum.producer(timeout=PATIENCE_S) as producer:
            producer.append_wait(b"after", timeout=PATIENCE_S)
        assert quorum.faults == {}
