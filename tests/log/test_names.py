"""Names of segments that are not durable yet, and pages that tell of what stands before them (D10).

A journal keeps the order of names; of other file systems any of them may be left after a power cut.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tests.log.crash_disk import CrashDisk, PowerCut, cuts
from tests.log.kit import KIB, Home, batch_of_size

SETTINGS = {"segment_bytes": 24 * KIB, "stride_bytes": 16 * KIB}
PATH, LOG = "/replica", "__cluster_metadata-0"
STEPS_MAX = 100


class Grown:
    """A log that has rolled twice since its last flush: two names are not durable."""

    def __init__(self) -> None:
        self.disk = CrashDisk()
        self.home = Home(PATH, self.disk)
        self.log: Any = self.home.open(**SETTINGS)
        self.now_ms = 0
        self.append(5)
        self.log.flush()
        self.flushed = self.log.flushed_end_offset
        self.append(16)
        assert len(self.log.segments) == 3

    def append(self, count: int) -> None:
        for _ in range(count):
            one = batch_of_size(3000, base_offset=self.log.end_offset, epoch=1)
            while not self.log.append(one, 1):
                self.now_ms += 200
                self.log.tend(self.now_ms)


def opens_whole(act: Callable[[Grown], object], killed: bool = False) -> int:
    """Cut the power before each system call of ``act``; return how many there are."""
    for step in range(STEPS_MAX):
        grown = Grown()
        if killed:
            grown.home.kill()
        grown.disk.cut_at = len(grown.disk.steps) + step
        try:
            act(grown)
        except PowerCut:
            for seed in range(8):
                for disk in cuts(grown.disk, seed):
                    log = Home.on(disk, PATH, LOG).open(**SETTINGS)
                    assert log.end_offset >= grown.flushed, (step, seed)
        else:
            return step
    raise AssertionError(f"more than {STEPS_MAX} system calls")


def test_a_cut_names_its_segments_before_a_page_tells_of_them() -> None:
    """A replica that lost its power in a cut did not start again: "the segment that goes on is
    missing"."""
    assert opens_whole(lambda grown: grown.log.truncate(grown.log.end_offset - 2)) > 5


def test_a_start_names_its_segments_before_a_page_tells_of_them() -> None:
    """The same in a start, of a process that was killed before its names were durable."""
    assert opens_whole(lambda grown: grown.home.open(**SETTINGS), killed=True) > 5
