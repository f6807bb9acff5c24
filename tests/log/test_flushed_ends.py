"""What a log says of its disk is true: flushed ends, watermarks and marks against a power cut."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from kraftfast.log import marks
from tests.log.crash_disk import CrashDisk, PowerCut
from tests.log.kit import Home, content, fill

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
