"""A snapshot that is fetched is put on disk as it comes."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftfast.log.disk import Disk, NewFile
from kraftfast.node.snapshots import replica_snapshots
from kraftfast.node.snapshots.replica_snapshots import DownloadFile
from tests.node.test_snapshot_parts import ID, made


def test_a_snapshot_is_put_on_disk_as_it_comes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: one sync of all of it may take longer than its leader keeps it for the next request."""
    monkeypatch.setattr(replica_snapshots, "UNSYNCED_BYTES_MAX", 1000)
    data = made(tmp_path)
    synced: list[int] = []
    sync = NewFile.sync

    def note(self: NewFile) -> None:
        synced.append(self.size)
        sync(self)

    monkeypatch.setattr(NewFile, "sync", note)
    (tmp_path / "ours").mkdir()
    download = DownloadFile(Disk(), str(tmp_path / "ours"), ID, "")
    for at in range(0, len(data), 400):
        last = at + 400 >= len(data)
        assert download.take(at, data[at : at + 400], last) == ""
        assert last or at + 400 - max(synced, default=0) < 1000
    assert download.whole and synced[-1] == len(data) and len(synced) > 3
    download.drop()
