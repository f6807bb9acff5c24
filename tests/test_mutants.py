"""The table of mutants is current: each patch applies, and what must kill it exists.

They are run by hand: ``python -m tests.mutants``.
"""

from __future__ import annotations

import pytest

from tests import mutants
from tests.log.mutate import ROOT, patched
from tests.sim.reached import PROBES

ALL = mutants.mutants()


def test_each_mutant_fits_the_sources_and_has_a_killer() -> None:
    unfit = [each.name for each in ALL if not mutants.fits(each)]
    assert not unfit, "their tests are gone"


def test_the_probes_of_reverted_mends_fit_the_sources() -> None:
    assert patched(PROBES.read_text(), ROOT)


def test_the_defects_of_the_search_fit_the_sources() -> None:
    """It takes minutes to run them all: a patch whose context has changed is seen here."""
    defects = sorted((ROOT / "tests" / "model" / "defects").glob("*.patch"))
    assert defects and all(patched(each.read_text(), ROOT) for each in defects)


def test_the_page_is_current() -> None:
    page = mutants.PAGE.read_text()
    assert mutants.page_of(mutants.measured(page)) == page, "python -m tests.mutants --page"


def test_each_that_is_run_by_hand_was_killed() -> None:
    measures = mutants.measured(mutants.PAGE.read_text())
    by_hand = [each for each in ALL if each.room not in ("core", "log", "model")]
    by_hand = [each for each in by_hand if mutants.way_of(each) is mutants.by_test]
    assert {(each.room, each.name) for each in by_hand} <= set(measures)
    never = [
        each.name for each in by_hand if measures[each.room, each.name].seconds == mutants.NEVER
    ]
    assert not never, "python -m tests.mutants NAME --write"


def test_what_cannot_be_a_mutant_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        mutants.main(["no_such_mutant"])
    assert ended.value.code == 2
    assert "neither a mutant nor a room: no_such_mutant" in capsys.readouterr().err
