"""The thread of a state machine beside a log whose owner is at work."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import CorruptLog, StorageError
from kraftfast.log.reading import held_segment
from kraftfast.node.applier import Applier, embed
from kraftfast.node.host import LocalHost
from kraftfast.node.state_machine import StateMachine
from tests.log.kit import Home, fill


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
    node.applier.committed(0)
    until(lambda: len(told) == 5)
    assert told == [(-1, 1), (2, 1), (-1, 2), (1, 2), (-1, 3)]
    node.applier.close()


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
