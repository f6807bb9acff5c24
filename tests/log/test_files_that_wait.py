"""Files that wait to be used again, on a full disk: whatever needs room gets their blocks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import DiskFull, OutOfResources, StorageError
from kraftfast.log.snapshots.log_start import delete_before
from kraftfast.log.trimming import RETIRE_MS
from tests.log.kit import KIB, Home, append, batch_of_size, snapshot


class FullDisk(Home):
    """A log with three segments, behind others whose files wait; only those have blocks to give."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(path)
        log = self.open()
        while len(log.segments) < 6:
            append(log, batch_of_size(24 * KIB))
        log.flush()
        delete_before(log, snapshot(self, log.segments[3].base_offset).offset)
        assert len(log.nursery.recycled) >= 2 and self.waiting() == len(log.nursery.recycled)
        for name in ("replace_file", "rewrite_file"):
            monkeypatch.setattr(self.disk, name, self._unless_full(getattr(self.disk, name)))

    def waiting(self) -> int:
        names = self.disk.list_directory(self.log.nursery.path)
        return sum(name.startswith("recycled-") for name in names)

    def _unless_full(self, call: Any) -> Any:
        def checked(*arguments: Any) -> None:
            if self.waiting():
                raise DiskFull("no space left: the test has used it up")
            call(*arguments)

        return checked


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FullDisk:
    return FullDisk(tmp_path / "replica", monkeypatch)


def test_a_trim_gets_their_blocks(home: FullDisk) -> None:
    """Its indexes need a few bytes; what it cuts off gives more."""
    log, now_ms = home.log, home.log.trims.due_ms
    log.nursery.pace = 0  # trims wait while it takes much
    log.trims.tend(log, now_ms)
    assert not home.waiting() and log.segments[0].has_page
    for _ in range(20):
        now_ms += RETIRE_MS
        log.trims.tend(log, now_ms)
    assert not log.segments[0].has_page, "it does not wait longer than for its next step"
    home.close()


def test_an_epoch_gets_their_blocks(home: FullDisk) -> None:
    """A log that takes nothing for want of them would never use them."""
    log = home.log
    assert not log.append(batch_of_size(300), 2) and isinstance(log.error, DiskFull)
    assert not home.waiting()
    log.tend(10**9)
    assert log.append(batch_of_size(300), 2) and log.last_epoch == 2
    home.close()


@pytest.mark.parametrize("error", [StorageError("of another kind"), OutOfResources("files"), None])
def test_they_stay_for_any_other_reason(home: FullDisk, error: StorageError | None) -> None:
    waiting = home.waiting()
    assert not home.log.nursery.make_way_for(error) and home.waiting() == waiting
    home.kill()
