"""Looking at a log that another process runs."""

from __future__ import annotations

import fcntl
import os
import threading
from pathlib import Path

import pytest

from kraftfast.errors import CorruptLog, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.reading import at_rest, verify
from kraftfast.log.reading.at_rest import find_log, looked_at
from tests.log.kit import PAGE, Home, append, batch, batch_of_size, fill


@pytest.fixture
def home(tmp_path: Path) -> Home:
    return Home(tmp_path / "replica")


def test_an_owner_at_work_is_waited_for_not_for_ever(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    fill(home.open(), 3)
    home.kill()
    (path,) = home.segment_paths()
    owner = os.open(path, os.O_RDWR)
    fcntl.flock(owner, fcntl.LOCK_EX)
    monkeypatch.setattr(at_rest, "OWNER_BUSY_S_MAX", 0.02)
    with pytest.raises(StorageError, match="stays locked"):
        with looked_at(Disk(), find_log(Disk(), home.path)):
            pass
    monkeypatch.setattr(at_rest, "OWNER_BUSY_S_MAX", 10.0)
    later = threading.Timer(0.05, os.close, [owner])
    later.start()
    with looked_at(Disk(), find_log(Disk(), home.path)) as recovery:
        assert recovery.segments[0].end_offset == 3
    later.join()


def test_a_log_that_is_looked_at_keeps_its_lengths(home: Home) -> None:
    log = home.open()
    fill(log, 150)
    log.flush()
    sizes = [os.path.getsize(path) for path in home.segment_paths()]
    with looked_at(Disk(), find_log(Disk(), home.path)):
        assert log.retire() == 0
        assert [os.path.getsize(path) for path in home.segment_paths()] == sizes
    assert log.retire() > 0
    home.close()


def test_a_cut_while_it_is_verified_is_no_damage(
    home: Home, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = home.open()
    fill(log, 20)
    log.flush()
    looks = []

    class Recovery(at_rest.Recovery):
        def look(self) -> None:
            looks.append(1)
            if len(looks) == 1:  # the words of the page have been read by now
                log.truncate(10)
                append(log, batch_of_size(5000, base_offset=10, epoch=2), 2)
            super().look()

    monkeypatch.setattr(at_rest, "Recovery", Recovery)
    assert verify.verify(home.path).end_offset == 11
    assert len(looks) == 2
    home.kill()
    (path,) = home.segment_paths()
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    with pytest.raises(CorruptLog):
        verify.verify(home.path)
    assert len(looks) == 4


def test_a_cut_leaves_no_file_that_passes_for_a_prepared_one(tmp_path: Path) -> None:
    """A record may hold what a page of ours begins with; a cut may end just behind such a page."""
    magic = (0x3147455354534146).to_bytes(8, "little")
    value = b"v" * (2 * PAGE - 70)
    size = len(batch([value]))
    value = value[: 2 * PAGE - size] if size > 2 * PAGE else value + b"v" * (2 * PAGE - size)
    at = PAGE - (2 * PAGE - 1 - len(value))
    made = batch([value[:at] + magic + value[at + 8 :]], epoch=1)
    assert len(made) == 2 * PAGE and made[PAGE : PAGE + 8] == magic
    home = Home(tmp_path / "replica")
    log = home.open()
    append(log, made)
    fill(log, 80)
    log.flush()
    assert log.retire() and not log.segments[0].has_page
    log.truncate(1)
    home.kill()
    log = home.open()
    assert (log.end_offset, bytes(log.segments[0].file.view(0, 2 * PAGE))) == (1, made)
    home.kill()
    log = home.open()  # the first start found a longer file, and may have left a shorter one
    assert not log.segments[0].has_page
    assert (log.end_offset, bytes(log.segments[0].file.view(0, 2 * PAGE))) == (1, made)
    home.close()
