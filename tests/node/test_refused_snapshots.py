"""A fetched snapshot that cannot be put in place of the log."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.errors import DiskFull
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from tests.node.test_snapshot_parts import ID, FakeNode, made, message_with


def test_one_that_cannot_get_its_name_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """D25: the log is as it was. On a full disk each attempt would leave another one."""
    data = made(tmp_path)
    place = tmp_path / "there"
    place.mkdir()
    node: Any = FakeNode(place)
    asked: list[object] = []
    nursery = SimpleNamespace(make_way_for=asked.append)
    node.wait_for_flush, node.log = lambda: None, SimpleNamespace(failed=None, nursery=nursery)
    snapshots = Snapshots(node)

    def full(*_: object) -> None:
        raise DiskFull("no space left")

    monkeypatch.setattr(node.disk, "rename", full)
    for _ in range(2):
        snapshots.write(fx.WriteSlice(message_with(data), ID, 0, True))
        snapshots.install(fx.InstallSnapshot(ID, 1))
        refused = node.events[-1]
        assert isinstance(refused, ev.SnapshotInstalled) and refused.rejected
        assert list(place.iterdir()) == [] and snapshots.download is None
    assert len(set(node.lines)) == 1, "the same words: they are said once"
    assert len(asked) == 2 and isinstance(asked[0], DiskFull), "there may be room for the next one"
