"""Logs that begin later: retention, and replicas that catch up by snapshot, under load."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast.errors import OffsetOutOfRange
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.quorum import LocalQuorum
from kraftfast.types import OffsetAndEpoch
from tests.histories import COMMITTED
from tests.processes import machines
from tests.processes.kit import (
    Load,
    a_quorum,
    committed_bytes,
    data_records,
    followers_of,
    go_on,
    keeps_up,
    leader_of,
    loads,
    log_path,
    pid_of,
    settled,
    status_of,
    wait_back,
    wait_until,
)

pytestmark = pytest.mark.processes
TRANSPORTS = ("ring", "socket")
MIB = 1 << 20
KEPT: dict[str, Any] = {"retention_bytes": 16 * MIB, "segment_bytes": 8 * MIB}
MACHINE: dict[str, Any] = {
    **KEPT,
    "state_machine": f"{machines.__file__}:Seen",
    "snapshot_bytes": 8 * MIB,
    "retention_bytes": 64 * MIB,  # the log, and two snapshots of 24 MiB
}


def fill(quorum: LocalQuorum, mib: int) -> int:
    """So many MiB that nobody remembers; the last offset."""
    with quorum.producer() as producer:
        for _ in range(mib):
            offset = producer.append_many([machines.FILLER * 1000] * 1050)[-1]
    return int(offset)


def starts(quorum: LocalQuorum) -> dict[int, int]:
    return {id: status["log_start_offset"] for id, status in quorum.statuses().items()}


def part_of(quorum: LocalQuorum, id: int) -> str | None:
    """A snapshot that is on its way to a replica and has grown a bit."""
    path = log_path(quorum, id)
    for name in os.listdir(path):
        if name.endswith(".part") and os.stat(os.path.join(path, name)).st_size > MIB:
            return name
    return None


def only_snapshot(path: str) -> OffsetAndEpoch:
    """Its snapshot; the one before stays until the new one is in its place and the log is cut."""
    wait_until(lambda: len(set(snapshot_ids(Disk(), path)) - {BOOTSTRAP}) == 1)
    (newest,) = set(snapshot_ids(Disk(), path)) - {BOOTSTRAP}
    return newest


def same_from_the_latest_start(quorum: LocalQuorum) -> tuple[int, list[tuple[int, bytes]]]:
    """Where the log starts on every replica, and its records from there: the same on each."""
    end = settled(quorum)
    read = [data_records(log_path(quorum, id), end) for id in quorum.directories]
    start = max(starts(quorum).values())  # no log started later while it was read
    found = [[record for record in records if record[0] >= start] for records in read]
    assert all(each == found[0] for each in found), "logs differ"
    return start, found[0]


def nothing_is_lost(quorum: LocalQuorum, running: list[Load]) -> None:
    """Every replica's state machine has what was acknowledged, once."""
    end = settled(quorum)
    for load in running:
        acked = [at for at, each in enumerate(load.appends) if each.outcome == COMMITTED]
        assert len(acked) > 20
        for id in quorum.directories:
            counts = quorum.query(id, "counts", at_least=end, timeout=60)
            assert counts["twice"] == 0
            for begin in range(0, len(acked), 2000):
                some = acked[begin : begin + 2000]
                count, missing = quorum.query(id, "missing", load.name, some, timeout=60)
                assert not missing and len(acked) <= count <= len(load.appends)


# --- without a state machine ------------------------------------------------------------------


def is_below(path: str, bytes_max: int) -> bool:
    """Return whether all files together are shorter: segments are trimmed once the log is quiet."""
    with suppress(FileNotFoundError):  # one that went between the two calls
        return sum(os.stat(each.path).st_size for each in os.scandir(path)) < bytes_max
    return False


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_old_records_are_given_up_and_the_rest_is_the_same(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport, **KEPT) as quorum:
        with loads(quorum) as running:
            fill(quorum, 60)
            go_on(running)
            wait_until(lambda: min(starts(quorum).values()) > 20_000)
        start, kept = same_from_the_latest_start(quorum)
        held = {offset: value for offset, value in kept}
        for append in (each for load in running for each in load.appends):
            if append.outcome == COMMITTED and append.offset >= start:
                assert held[append.offset] == append.value
        for id in quorum.directories:
            path = log_path(quorum, id)
            wait_until(functools.partial(is_below, path, 40 * MIB))
            newest = only_snapshot(path)
            with open_snapshot(Disk(), path, newest) as snapshot:
                assert snapshot.check() == 0
        leader = leader_of(quorum)
        with pytest.raises(OffsetOutOfRange) as early:
            quorum.consumer(0, replica=leader).read(1)
        assert early.value.log_start_offset == starts(quorum)[leader]
        before = starts(quorum)  # of each: one that is slow gives up its old records later
        quorum.kill(leader)
        fill(quorum, 1)
    with a_quorum(tmp_path / "q", transport=transport, **KEPT) as quorum:
        after = starts(quorum)
        assert all(after[id] >= before[id] for id in before), "a start is no way back"
        fill(quorum, 30)
        wait_until(lambda: min(starts(quorum).values()) > start)
        same_from_the_latest_start(quorum)


def test_kafkas_clients_see_where_it_starts(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", transport="socket", **KEPT) as quorum:
        fill(quorum, 40)
        wait_until(lambda: min(starts(quorum).values()) > 10_000)
        with kraftfast.connect(quorum.addresses.values()) as remote:
            with pytest.raises(OffsetOutOfRange), remote.consumer(0, timeout=10) as consumer:
                consumer.read(1, timeout=10)
            start = starts(quorum)[leader_of(quorum)]
            with remote.consumer(start) as consumer:
                assert consumer.read(1)[0].offset >= start


def test_by_age(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", retention_ms=500, segment_bytes=8 * MIB) as quorum:
        fill(quorum, 20)
        time.sleep(0.6)
        wait_until(lambda: min(starts(quorum).values()) > 10_000)
        same_from_the_latest_start(quorum)


@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_replica_that_was_wiped_comes_back(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport, **KEPT) as quorum:
        fill(quorum, 40)
        wait_until(lambda: min(starts(quorum).values()) > 10_000)
        wiped, path = followers_of(quorum)[0], ""
        path = log_path(quorum, wiped)
    for name in os.listdir(path):
        if name not in ("quorum-state", "partition.metadata"):  # its vote is not given twice
            os.unlink(os.path.join(path, name))
    with a_quorum(tmp_path / "q", transport=transport, **KEPT) as quorum:
        wait_until(lambda: wiped in quorum.faults)
        assert "had been flushed" in str(quorum.faults[wiped]), "it is refused (D10)"
        with loads(quorum) as running:
            quorum.replace(wiped, timeout=60)
            fill(quorum, 20)
            wait_until(lambda: starts(quorum)[wiped] > 0)
            go_on(running)
        start, _ = same_from_the_latest_start(quorum)
        assert start > 0 and committed_bytes(path, settled(quorum))


# --- with a state machine ---------------------------------------------------------------------


def lag_behind(quorum: LocalQuorum, lagging: int) -> None:
    """Stop a follower until the log of all others begins behind its end."""
    end = quorum.status(lagging)["end_offset"]
    quorum.kill(lagging, signal.SIGSTOP)
    others = [id for id in quorum.directories if id != lagging]

    def ahead() -> bool:
        fill(quorum, 4)
        return all(quorum.status(id)["log_start_offset"] > end for id in others)

    wait_until(ahead)
    quorum.kill(lagging, signal.SIGCONT)


# covers: testFollowerListenerNotified, testListenerRenotified
@pytest.mark.parametrize("transport", TRANSPORTS)
def test_a_lagging_replica_catches_up_by_snapshot(tmp_path: Path, transport: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport, **MACHINE) as quorum:
        with loads(quorum) as running:
            lagging = followers_of(quorum)[0]
            lag_behind(quorum, lagging)
            wait_until(lambda: (status_of(quorum, lagging) or {}).get("log_start_offset", 0) > 0)
            go_on(running)
            wait_back(quorum, lagging, -1)
        nothing_is_lost(quorum, running)
        assert quorum.query(lagging, "counts")["restored"] >= 1
        same_from_the_latest_start(quorum)
        for id, start in starts(quorum).items():  # which is inside a segment, mostly
            assert quorum.consumer(start, replica=id).read(1)[0].offset >= start
            with pytest.raises(OffsetOutOfRange, match=f"starts at offset {start}"):
                quorum.consumer(start - 1, replica=id).read(1)


@pytest.mark.parametrize("transport", TRANSPORTS)
@pytest.mark.parametrize("killed", ["who fetches it", "who sends it"])
def test_a_kill_in_the_middle_of_a_download(tmp_path: Path, transport: str, killed: str) -> None:
    with a_quorum(tmp_path / "q", transport=transport, **MACHINE) as quorum:
        with loads(quorum) as running:
            lagging = followers_of(quorum)[0]
            lag_behind(quorum, lagging)
            wait_until(lambda: part_of(quorum, lagging), pause=0.001)
            leader = leader_of(quorum)
            victim = lagging if killed == "who fetches it" else leader
            pid = pid_of(quorum, victim)
            quorum.kill(victim)
            go_on(running)
            wait_back(quorum, victim, pid)
            wait_until(lambda: (status_of(quorum, lagging) or {}).get("log_start_offset", 0) > 0)
            wait_back(quorum, lagging, -1)
        nothing_is_lost(quorum, running)
        same_from_the_latest_start(quorum)
        left = [name for name in os.listdir(log_path(quorum, victim)) if name.endswith(".part")]
        assert len(left) <= 1, "at most one that is written now"


# covers: testLeaderListenerNotified
def test_all_start_again_from_their_snapshots(tmp_path: Path) -> None:
    with a_quorum(tmp_path / "q", **MACHINE) as quorum:
        with loads(quorum) as running:
            fill(quorum, 40)
            wait_until(lambda: min(starts(quorum).values()) > 0)
            # One that is behind the start of the leader's log restores a second, fetched snapshot.
            wait_until(lambda: all(keeps_up(quorum, id) for id in quorum.directories))
            pids = {id: pid_of(quorum, id) for id in quorum.directories}
            for id in quorum.directories:
                quorum.kill(id)
            go_on(running)
            for id, pid in pids.items():
                wait_back(quorum, id, pid)
        nothing_is_lost(quorum, running)
        assert all(quorum.query(id, "counts")["restored"] == 1 for id in quorum.directories)
        same_from_the_latest_start(quorum)


def test_disks_that_are_replaced_one_after_the_other_get_the_whole_log(tmp_path: Path) -> None:
    """Each got the newest snapshot instead: at the end no replica had what retention keeps."""
    with a_quorum(tmp_path / "q", **MACHINE | {"retention_bytes": -1}) as quorum:
        last = fill(quorum, 20)
        wait_until(lambda: all(snapshot_ids(Disk(), log_path(quorum, id))[1:] for id in (1, 2, 3)))
    for id in (1, 2, 3):
        shutil.rmtree(tmp_path / "q" / str(id))
        with a_quorum(tmp_path / "q", **MACHINE | {"retention_bytes": -1}) as quorum:
            wait_until(lambda id=id: id in quorum.faults)  # type: ignore[misc]
            quorum.replace(id, timeout=60)
            settled(quorum)
            assert starts(quorum)[id] == 0
    with a_quorum(tmp_path / "q", **MACHINE | {"retention_bytes": -1}) as quorum:
        for id in (1, 2, 3):
            assert quorum.status(id)["end_offset"] > last
            assert quorum.consumer(0, replica=id).read(1)[0].offset < 10
