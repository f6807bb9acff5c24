"""What the simulator has found, each by the smallest history that shows it."""

from __future__ import annotations

import pytest

from kraftfast.sim import Settings, run_seed
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


def test_a_cut_back_into_a_rolled_segment_prepares_nothing_under_its_batches() -> None:
    """After a restart only the last segment knew how far it was prepared; the nursery, asked for
    room behind a cut into the one before, wrote zeros from its start: over committed batches."""
    home = Home()
    home.append(size=6_000)
    first = home.log.segments[0]
    reader = home.disk.open_segment(first.file.path, False)
    assert reader.share()  # a follower maps it: it is rolled, but not trimmed
    while len(home.log.segments) < 2:
        home.append(size=6_000)
    home.flush()
    home.kill()
    home.open()
    first = home.log.segments[0]
    assert len(home.log.segments) == 2 and first.has_page
    before = bytes(first.file.view(0, first.position))
    home.log.truncate(first.end_offset)
    home.append(epoch=2, size=1_000)
    assert bytes(first.file.view(0, len(before))) == before


@pytest.mark.parametrize("seed", [5014, 5049])
def test_a_voter_in_doubt_without_a_log_does_not_keep_a_new_quorum_from_beginning(
    seed: int,
) -> None:
    """durability=memory: a minority lost its memory before anybody had a log, and the others, who
    were refused by it, waited for the log that it might have (D23)."""
    result = run_seed(seed, Settings.of_seed(seed, reach=False))
    assert result["ok"], result["violation"]


def test_durability_all_waits_for_a_voter_whose_damage_is_found_last() -> None:
    """A voter that starts when all heals refuses its damaged log: appends wait for it (L1)."""
    result = run_seed(7310206, Settings.of_seed(7310206, reach=False))
    assert result["ok"] and result["counts"]["a voter of all is missing"], result["violation"]
