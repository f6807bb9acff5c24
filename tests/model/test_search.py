"""The search finds nothing in the core, and what is broken in each core that a patch broke.

Longer searches: ``python -m tests.model``; each mutant of the core by itself:
``python -m tests.model.mutant PATCH WORDS``.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.core.test_mutants import PATCHES
from tests.model.mutant import search_mutant

ROOT = Path(__file__).parents[2]
SEARCHES = {
    "rings": "--faults 1 --walks 60",
    "sockets": "--sockets --faults 2 --walks 60",
    "five voters": "--voters 5 --faults 3 --walks 40",
    "voters change": "--dynamic --observers 1 --admin 3 --walks 60",
    "snapshots": "--sockets --snapshots 3 --appends 3 --walks 60",
    "reads": "--reads 2 --faults 1 --walks 60",
    "short answers": "--sockets --turn-records 1 --appends 3 --walks 40",
    "by delays": "--way delays --delays 1",
}
FOUND = {
    "d01_leader_counts_what_is_not_on_its_disk": "--faults 1 --appends 2 --timers 5",
    "d03_fetch_without_flush": "--sockets --faults 2 --appends 2 --timers 5",
    "d05_candidacy_not_written": "",
    "d05_vote_not_written": "--sockets --faults 2 --appends 2 --timers 5",
    "d08_cut_leaves_the_flushed_end": "--sockets --faults 2 --appends 2 --timers 5",
    "d10_doubt_campaigns": "--sockets --faults 2 --appends 2 --timers 5",
    "d12_high_watermark_beyond_the_log": "--faults 1 --appends 2 --timers 5",
    "d21_votes_outlive_the_tail": "--sockets --appends 1 --length 50 --seed 11",
}
"""Mutants, and the search that finds them."""


def search(words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tests.model", *words.split()],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("name", list(SEARCHES))
def test_nothing_is_found_in_the_core(name: str) -> None:
    told = search(SEARCHES[name])
    assert "no violation" in told
    states = re.match(r"([\d,]+) states", told)
    assert states is not None and int(states[1].replace(",", "")) > 500


@pytest.mark.parametrize("name", list(FOUND))
def test_what_is_broken_is_found(name: str, tmp_path: Path) -> None:
    (patch,) = [each for each in PATCHES if each.stem == name]
    words = f"{FOUND[name]} --walks 3000 --seconds 120".split()
    done = search_mutant(patch.read_text(), tmp_path, words)
    assert done.returncode == 3, done.stdout + done.stderr
    assert "VIOLATION" in done.stdout
    if name != "d05_candidacy_not_written":  # which nothing can be done before
        assert "As a scenario of tests/core:" in done.stdout


def test_a_search_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    words = "--length 30 --seconds 500"
    first, second = [
        search(f"{words} --walks 20 --states {tmp_path / 'seen.npz'}") for _ in range(2)
    ]
    whole = search(f"{words} --walks 40")
    counts = [int(each.split()[0].replace(",", "")) for each in (first, second, whole)]
    assert counts[0] < counts[1] == counts[2]
