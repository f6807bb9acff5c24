"""Elections, replication and disks as a TLA+ specification (``Quorum.tla``), searched by TLC.

Within small bounds every state is searched, and nothing must be wrong in any of them. Without one
of the rules TLC must find a history that loses a committed record, or elects two leaders.
``python -m tests.formal.quorum --deep`` searches further.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.formal.quorum import tlc
from tests.formal.quorum.searches import MUTANTS, PLANTED, SOUND
from tests.formal.quorum.tlc import Search

SECONDS_MAX = 240

pytestmark = pytest.mark.skipif(bool(tlc.missing()), reason=tlc.missing())


@pytest.mark.parametrize("search", SOUND, ids=lambda search: search.name)
def test_nothing_committed_is_lost(search: Search, tmp_path: Path) -> None:
    report = tlc.run(search, tmp_path, SECONDS_MAX)
    assert report.violated == "", report.text
    assert report.complete, f"not searched within {SECONDS_MAX} s"
    assert report.distinct > 10_000, "next to nothing was searched"


@pytest.mark.parametrize("search", MUTANTS + PLANTED, ids=lambda search: search.name)
def test_tlc_refuses_the_mutant(search: Search, tmp_path: Path) -> None:
    report = tlc.run(search, tmp_path, SECONDS_MAX)
    assert (report.violated,) == search.must_hold, f"TLC does not see {search.name}"
    assert report.steps > 0


def test_every_invariant_can_be_violated() -> None:
    violated = {search.must_hold[0] for search in MUTANTS + PLANTED}
    assert violated == set(tlc.MUST_HOLD)
