"""The thread of a state machine beside a log whose owner is at work."""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import CorruptLog, FlushFailed, StorageError
from kraftfast.log.disk import storage_error
from kraftfast.log.reading import held_segment
from kraftfast.node.local_host import LocalHost
from kraftfast.node.state_machine import StateMachine
from kraftfast.node.threads.applier import Applier, embed
from tests.log.kit import Home, fill
from tests.node.inside import Inside


class Counting(StateMachine):
    """Notes the offsets of what it is given."""

    def __init__(self) -> None:
        self.offsets: list[int] = []

    def apply(self, batch: Any) -> None:
        self.offsets.append(batch.base_offset)


def test_a_trim_on_a_disk_that_hangs_ends_no_replica(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A trim locks its segment for as long as the disk takes; the applier ended its process."""
    home = Home(tmp_path / "replica")
    fill(home.open(), 3)
    home.close()
    monkeypatch.setattr(held_segment, "OWNER_BUSY_S_MAX", 0.02)
    machine = Counting()
    applier = Applier(machine, LocalHost(), home.log_path, pytest.fail)
    applier._committed = 3
    with applier._reader() as reader:
        with open(home.segment_paths()[0], "rb") as owner:
            fcntl.flock(owner, fcntl.LOCK_EX)
            applier._read(reader)
        assert machine.offsets == [] and applier.applied == 0
        applier._read(reader)
    assert machine.offsets == [0, 1, 2] and applier.applied == 3


def test_damage_that_it_meets_is_the_replicas(tmp_path: Path) -> None:
    """It ended the process as a fault of the state machine, and so again after each start (D9)."""
    home, applier, failures = applied(tmp_path / "replica")
    segment = Path(home.segment_paths()[0])
    data = bytearray(segment.read_bytes())
    data[data.index(b"bbbb")] ^= 1
    segment.write_bytes(data)
    applier.start()
    applier.committed(3)
    until(lambda: failures)
    assert isinstance(failures[0], CorruptLog) and failures[0].offset == 1
    assert applier.applied == 1
    applier.close()


def test_a_batch_that_seems_to_go_on_is_damage(tmp_path: Path) -> None:
    """L7: its count reaches beyond the high watermark, where a batch ends; it was read for ever.

    One high watermark within a batch is waited out: the next one may lie behind it.
    """
    home, applier, failures = applied(tmp_path / "replica")
    with open(home.segment_paths()[0], "r+b") as file:
        file.seek(57)  # the count of the first batch, and its last offset delta before that
        assert file.read(4) == (1).to_bytes(4, "big")
        for at, value in ((57, 9), (23, 8)):
            file.seek(at)
            file.write(value.to_bytes(4, "big"))
    reads: list[int] = []
    read = applier._read
    applier._read = lambda reader: (reads.append(0), read(reader))[1]  # type: ignore[method-assign]
    applier.start()
    applier.committed(2)
    until(lambda: reads)
    applier.committed(2)
    time.sleep(0.05)
    assert len(reads) == 1 and not failures
    applier.committed(3)
    until(lambda: failures)
    assert isinstance(failures[0], CorruptLog) and failures[0].offset == 0
    applier.close()


def test_it_reads_its_own_log_wherever_that_is(tmp_path: Path) -> None:
    """Found by a reviewer: another quorum in its place was read by path (D18)."""
    home, applier, failures = applied(tmp_path / "replica")
    applier.host.disk.hold(str(tmp_path / "replica"))
    os.rename(tmp_path / "replica", tmp_path / "moved")
    other = Home(tmp_path / "replica")
    fill(other.open(), 9)
    other.close()
    applier.start()
    applier.committed(9)
    until(lambda: failures)
    assert applier.machine.offsets == [0, 1, 2]  # type: ignore[attr-defined]
    assert isinstance(failures[0], CorruptLog), "its own log ends there"
    applier.close()
    applier.host.disk.let_go(str(tmp_path / "replica"))


def test_a_leader_that_is_known_is_not_forgotten_in_its_epoch() -> None:
    """A replica that asks whether it would be elected knows no leader for a while (KIP-996)."""
    told: list[tuple[int, int]] = []
    node: Any = SimpleNamespace(
        log=SimpleNamespace(log_start_offset=0), host=LocalHost(), on_role=[], on_commit=[],
        config=SimpleNamespace(retention_bytes=None, retention_ms=None),
        directory=SimpleNamespace(log_path="."), core=SimpleNamespace(epoch_start_offset=0),
    )  # fmt: skip
    node.attach_applier = lambda applier: setattr(node, "applier", applier)

    class Noting(Counting):
        def leader_changed(self, leader_id: int, epoch: int) -> None:
            told.append((leader_id, epoch))

    embed(node, Noting())
    for role, leader_id, epoch in (
        ("unattached", -1, 1), ("follower", 2, 1), ("prospective", -1, 1), ("follower", 2, 1),
        ("candidate", -1, 2), ("leader", 1, 2), ("resigned", 1, 2), ("unattached", -1, 3),
    ):  # fmt: skip
        effect = SimpleNamespace(role=role, leader_id=leader_id, epoch=epoch)
        for call in node.on_role:
            call(effect)
        until(lambda: not node.applier._changes)
    node.applier.end()
    assert told == [(-1, 1), (2, 1), (-1, 2), (1, 2), (-1, 3)]


def test_what_the_machine_raises_is_no_damage_of_the_replica(tmp_path: Path) -> None:
    """Found by a reviewer: an error of another log that it reads kept the replica down (D9)."""
    home, applier, failures = applied(tmp_path / "replica")
    raised: list[BaseException] = []
    applier.host.state_machine_failed = lambda error, _at: raised.append(error)  # type: ignore

    def apply(batch: Any) -> None:
        raise CorruptLog("another log", "there", 0, 0)

    applier.machine.apply = apply  # type: ignore[method-assign]
    applier.start()
    applier.committed(3)
    until(lambda: raised)
    assert isinstance(raised[0], RuntimeError) and "another log" in str(raised[0])
    assert failures == []
    applier.end()


def test_a_flush_that_fails_at_the_end_is_told(tmp_path: Path) -> None:
    """Found by a reviewer: a replica ended as if everything were on disk (D9)."""
    home, applier, failures = applied(tmp_path / "replica")

    def begin_shutdown() -> None:
        raise_from_within()

    def raise_from_within() -> None:
        raise FlushFailed("fsync of a snapshot failed")

    applier.calls.run = lambda method, *args: method(*args)  # type: ignore
    applier.machine.begin_shutdown = begin_shutdown  # type: ignore[method-assign]
    applier.start()
    with pytest.raises(FlushFailed):
        applier.end()
    assert len(failures) == 1
    applier.close()  # once more says nothing


def test_a_leader_of_an_epoch_that_is_over_is_not_waited_for(tmp_path: Path) -> None:
    """Found by a reviewer: what it had appended was cut, and no later leader was told of."""
    home, applier, failures = applied(tmp_path / "replica")
    told: list[tuple[int, int]] = []
    applier.machine.leader_changed = lambda *words: told.append(words)  # type: ignore
    applier.leader_changed(1, 5, 100)
    applier.leader_changed(-1, 6, 0)
    applier.leader_changed(2, 6, 0)
    applier.start()
    until(lambda: len(told) == 2)
    assert told == [(-1, 6), (2, 6)] and failures == []
    applier.end()


def test_damage_ends_the_loop(tmp_path: Path) -> None:
    """The replica ends there as for any damage: typed, and for good (D9)."""
    replica = Inside(tmp_path / "quorum", state_machine=f"{__name__}:Counting")
    try:
        replica.node.applier.fail(CorruptLog("it is damaged", "there", 0, 0))
        with pytest.raises(CorruptLog, match="it is damaged"):
            replica.until(lambda: False)
    finally:
        replica.close()


def test_what_passes_is_not_final(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Found by a reviewer: half a second without descriptors kept a replica down for good."""
    home, applier, failures = applied(tmp_path / "replica")
    raised: list[BaseException] = []
    applier.host.state_machine_failed = lambda error, _at: raised.append(error)  # type: ignore

    def open_to_read(path: str) -> int:
        raise storage_error("cannot open", path, OSError(errno.EMFILE, "Too many open files"))

    monkeypatch.setattr(applier.host.disk, "open_to_read", open_to_read)
    applier.start()
    applier.committed(3)
    until(lambda: raised)
    assert isinstance(raised[0], StorageError) and failures == []
    applier.end()


def applied(path: Path) -> tuple[Home, Applier, list[StorageError]]:
    """A log of three records, and who applies it."""
    home, failures = Home(path), list[StorageError]()
    fill(home.open(), 3)
    home.close()
    return home, Applier(Counting(), LocalHost(), home.log_path, failures.append), failures


def until(holds: Callable[[], object]) -> None:
    end = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.005)
