"""The table of the core's mutants is whole, and what it calls found is found again.

``python -m tests.model.table`` goes on with it. Each mutant that is found, within two minutes on an
idle machine:

    KRAFTFAST_MUTANTS=all python -m pytest tests/model/test_table.py
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.command import Refused
from tests.core.test_mutants import PATCHES
from tests.model import table
from tests.model.mutant import broken_core, search_core
from tests.model.settings import SETTINGS

NAMES = {path.stem: path for path in PATCHES}
ROWS = table.rows()
UNSEEN = table.unseen()
NOT_SEARCHED_MAX = 5
"""Mutants that were not searched yet, with room for a few that are new: may shrink only."""
FOUND = [row for row in ROWS.values() if row.is_found]
SAMPLE = [row for row in FOUND if row.states < 400][::6][:6]
SEARCHED = FOUND if os.environ.get("KRAFTFAST_MUTANTS") == "all" else SAMPLE
SECONDS_MAX = 120
"""Of a search that found a mutant."""


def test_each_mutant_is_found_or_says_why_not() -> None:
    assert set(ROWS) <= set(NAMES) and set(UNSEEN) <= set(NAMES)
    found = {row.name for row in FOUND}
    assert all(row.seconds < SECONDS_MAX for row in FOUND)
    assert not found & set(UNSEEN), "found, and called unseen"
    silent = {name for name in ROWS if name not in found} - set(UNSEEN)
    assert not silent, f"not found, without a reason in {table.UNSEEN.name}"
    assert len(set(NAMES) - set(ROWS) - set(UNSEEN)) <= NOT_SEARCHED_MAX
    for name, reason in UNSEEN.items():
        assert reason.startswith(("by nature, ", "not found yet, ")), name


@pytest.mark.parametrize("row", SEARCHED, ids=lambda row: row.name)
def test_what_the_table_calls_found_is_found_again(row: table.Row, tmp_path: Path) -> None:
    broken_core(NAMES[row.name].read_text(), tmp_path)
    found = search_core(tmp_path, table.words_for(row.settings, row.walks))
    assert found.violation, found.printed


def test_settings_that_fit_a_name_come_first() -> None:
    for name in NAMES:
        settings = table.settings_for(name)
        assert sorted(settings) == sorted(SETTINGS)
    assert table.settings_for("d15_sole_voter_commits_unflushed")[0] == "one voter"


def test_a_row_that_was_cut_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "core_mutants.txt"
    whole = table.TABLE.read_text()
    for text in (whole[: whole.rindex(" | ", 0, -9)], whole.replace(" | 1 | ", " | one | ", 1)):
        path.write_text(text)
        with pytest.raises(Refused, match="has a row that is none"):
            table.rows(path)


def test_a_mutant_that_is_named_and_not_found_is_told_by_the_exit_code() -> None:
    missed = next(row for row in ROWS.values() if not row.is_found and row.walks >= 60)
    assert table.main([missed.name, "--settings", "1"]) == 1
    assert table.main([FOUND[0].name]) == 0


def test_a_run_of_the_table_skips_what_is_found() -> None:
    words = ["--settings", "1", "--walks", "1", *list(ROWS)[:1]]
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.table", *words],
        cwd=table.TABLE.parents[2], capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    skipped, count = done.stdout.splitlines()
    assert skipped.startswith(f"{list(ROWS)[0]} is not searched again: ")
    assert count == f"{len(FOUND)} of {len(PATCHES)} mutants are found"
