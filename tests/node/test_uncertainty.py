"""The marks of what a start leaves in doubt, on a disk that has no room for them."""

from __future__ import annotations

import errno
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kraftfast.errors import DiskFull
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.node.uncertainty import RETRY_MS, Uncertainty
from tests.log.kit import Home


def test_a_lost_memory_stays_marked_while_the_disk_is_full(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: the replica ended as soon as it was no longer in doubt, and again after each start."""
    Home(tmp_path / "r", durability="memory")
    directory = ReplicaDirectory(Disk(), str(tmp_path / "r"))
    Uncertainty(directory, "before").opened(None)
    made, core = Uncertainty(directory, "now"), cast(Any, SimpleNamespace(in_doubt=False))
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
    assert Uncertainty(directory, "now").memory_lost, "another start is in doubt again"
    made.tend(core, 3 * RETRY_MS)
    assert not made.memory_lost and not Uncertainty(directory, "now").memory_lost
    directory.close()
