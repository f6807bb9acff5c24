"""The flush of a log that keeps its records in memory: what it covers outlives a power cut."""

from __future__ import annotations

import pytest

from kraftfast.log.recovery import LogSettings
from tests.sim.kit import Home, NothingIsLeft

SIZE = 700
MAPPED = LogSettings(
    segment_bytes=16 * 1024, stride_bytes=8 * 1024, prepare_bytes=16 * 1024, how="mapped"
)


@pytest.mark.parametrize("batches", [1, 5, 6, 11, 60])
def test_what_was_flushed_is_there_after_a_power_cut(batches: int) -> None:
    """D1, D10: the bytes up to the end and the page that names it, not what lies between."""
    home = Home(batches, MAPPED)
    for epoch in (1, 2, 3):
        home.append(batches, epoch, SIZE)
        home.flush()
        flushed = home.log.flushed_end_offset
        assert flushed == home.log.end_offset == epoch * batches
        home.append(3, epoch, SIZE)
        home.kill()
        home.disk.random = NothingIsLeft()
        home.lose_power()
        home.open()
        assert home.log.end_offset == flushed
        assert home.log.last_epoch == epoch
