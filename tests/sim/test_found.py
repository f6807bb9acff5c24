"""What the simulator has found, each by the smallest history that shows it."""

from __future__ import annotations

from tests.sim.kit import Home


def test_a_flush_counts_only_the_segments_that_fit_its_job() -> None:
    """A job holds eight files; what the ninth holds was called flushed without a sync (D1)."""
    home = Home()
    while len(home.log.segments) < 12:
        home.append(size=6_000)
    home.flush()
    flushed = home.log.flushed_end_offset
    assert 0 < flushed < home.log.end_offset
    home.lose_power()
    home.open()
    assert home.log.end_offset >= flushed
