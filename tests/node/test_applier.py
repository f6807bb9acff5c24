"""The thread of a state machine beside a log whose owner is at work."""

from __future__ import annotations

import fcntl
from pathlib import Path
from typing import Any

import pytest

from kraftfast.log.reading import held_segment
from kraftfast.node.applier import Applier
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
