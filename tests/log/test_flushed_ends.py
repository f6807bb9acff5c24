"""What a log says of its disk is true: flushed ends, watermarks and marks against a power cut."""

from __future__ import annotations

import os
import random

import pytest

from kraftfast.errors import CorruptLog
from kraftfast.log import trimming
from kraftfast.log.small_files import marks
from tests.log.crash_disk import CrashDisk, PowerCut
from tests.log.kit import Home, content, fill, tend_until

SEGMENTS = 12
"""More than a single flush covers."""


def unflushed_segments(disk: CrashDisk) -> Home:
    """A log with more unflushed segments than one flush job takes."""
    home = Home("/replica", disk)
    log = home.open()
    while len(log.segments) < SEGMENTS:
        fill(log, 1, 8000)
    return home


def test_a_flush_of_many_segments_covers_all_of_them() -> None:
    """D18: one job takes eight files, but the caller wants everything on disk."""
    home = unflushed_segments(CrashDisk())
    assert home.log.flush() == home.log.end_offset
    assert all(each.flushed_position == each.position for each in home.log.segments)


def test_a_power_cut_at_any_step_of_a_stop_leaves_a_log_that_opens() -> None:
    """D10: durable-end must not name bytes that a later step would have flushed."""
    whole = unflushed_segments(CrashDisk())
    before = len(whole.disk.steps)  # type: ignore[attr-defined]
    whole.close()
    steps = len(whole.disk.steps) - before  # type: ignore[attr-defined]
    assert steps > SEGMENTS
    for cut_at in range(0, steps, 3):
        disk = CrashDisk()
        home = unflushed_segments(disk)
        stored, flushed = content(home.log), home.log.flushed_end_offset
        disk.cut_at = len(disk.steps) + cut_at
        with pytest.raises(PowerCut):
            home.log.close(0.0)
        after = Home("/replica", disk.after_cut(random.Random(cut_at), 0.0))
        log = after.open()
        assert log.end_offset >= flushed and stored.startswith(content(log))
        mark = marks.read(after.disk, after.log_path, marks.DURABLE_END)
        assert mark is None or mark.offset <= log.end_offset


@pytest.mark.parametrize("kept", [0.0, 0.5])
def test_what_a_start_counts_as_flushed_survives_a_power_cut(kept: float) -> None:
    """D3: a killed process left its bytes in the page cache alone, in every segment.

    The disk is full, so that no trim syncs what the start itself did not.
    """
    killed = unflushed_segments(CrashDisk())
    stored = content(killed.log)
    killed.kill()
    disk: CrashDisk = killed.disk  # type: ignore[assignment]
    disk.space = 0
    log = Home("/replica", disk).open()
    assert log.flushed_end_offset == log.end_offset
    assert len([each for each in log.segments if each.has_page]) == SEGMENTS
    after = Home("/replica", disk.after_cut(random.Random(1), kept))
    assert content(after.open()) == stored


# --- D10: what was acknowledged is marked, so that damage there is no torn tail -------------------


def check_damage_is_noticed(home: Home) -> None:
    """Flip a byte of each batch after a power cut; a start refuses it or reports a phantom tail."""
    log, disk = home.log, home.disk
    acknowledged = log.flush()
    places = []
    for segment in log.segments:
        for offset in range(segment.base_offset, min(segment.end_offset, acknowledged)):
            places.append((segment.file.path, segment.place_of(offset)[0] + 65))
    assert places
    for path, position in places:
        after = disk.after_cut(random.Random(0), 0.0)  # type: ignore[attr-defined]
        node = after._node(path)
        flipped = bytes([os.pread(node.fd, 1, position)[0] ^ 1])
        os.pwrite(node.fd, flipped, position)
        node.sync()
        again = Home("/replica", after)
        try:
            again.open()
        except CorruptLog as error:
            assert error.path == path
        else:
            assert again.recovered is not None
            lost = again.recovered.phantom_tail
            assert lost is not None and lost.offset >= acknowledged, (path, position)


@pytest.mark.parametrize(
    "cut", ["within", "at the base", "an earlier segment", "a trimmed segment", "a trimmed base"]
)
def test_damage_below_the_flushed_end_is_noticed_after_a_cut(cut: str) -> None:
    home = Home("/replica", CrashDisk())
    log = home.open()
    fill(log, 20, 3000)
    if cut.startswith("a trimmed"):
        log.flush()
        fill(log, 12, 3000)
        log.flush()
        log.retire()
        assert not log.segments[0].has_page
    else:
        fill(log, 12, 3000)
    base = log.segments[-1].base_offset
    assert 20 < base < 30
    places = {"within": base + 1, "at the base": base, "an earlier segment": base - 3}
    log.truncate(places.get(cut, base if cut == "a trimmed base" else base - 3))
    check_damage_is_noticed(home)


@pytest.mark.parametrize(("batches", "rolled"), [(8, False), (25, False), (8, True), (25, True)])
def test_damage_below_the_flushed_end_is_noticed_after_a_start(
    batches: int, rolled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A start puts on disk what the process before had not: it may be acknowledged from then on."""
    monkeypatch.setattr(trimming, "retire", lambda _log: 0)  # followers map every segment
    home = Home("/replica", CrashDisk())
    log = home.open()
    fill(log, batches, 3000)
    if rolled:
        tend_until(log, log.roll)
    home.kill()
    home.open()
    check_damage_is_noticed(home)
