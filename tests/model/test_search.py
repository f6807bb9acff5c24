"""The search finds nothing in the core, and what is broken in each core that a patch broke.

Longer searches: ``python -m tests.model --all --resume FILE``; other broken cores, or longer:
``python -m tests.model.mutant PATCH...``.
"""

from __future__ import annotations

import pickle
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from pytest import CaptureFixture

from tests.core.test_mutants import PATCHES
from tests.model.__main__ import arguments, quorum_of
from tests.model.beginning import BEGINNINGS
from tests.model.mutant import broken_core, search_core, words_of
from tests.model.replay import PARTED
from tests.model.search import Outcome
from tests.model.settings import SETTINGS
from tests.model.telling import tell

ROOT = Path(__file__).parents[2]
DEFECTS = sorted((Path(__file__).parent / "defects").glob("*.patch"))
"""What was wrong in the core once: each patch takes a mend back."""
MUTANTS = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
"""What never was: each breaks a rule that the search alone is asked to see."""
RINGS = "--faults 1 --appends 2 --timers 5"
SOCKETS = "--sockets --faults 2 --appends 2 --timers 5"
FOUND = {
    "d01_leader_counts_what_is_not_on_its_disk": RINGS,
    "d03_fetch_without_flush": SOCKETS,
    "d05_candidacy_not_written": "",
    "d05_vote_not_written": SOCKETS,
    "d08_cut_leaves_the_flushed_end": SOCKETS,
    "d10_doubt_campaigns": SOCKETS,
    "d12_high_watermark_beyond_the_log": RINGS,
}
"""Mutants of the core, and the search that finds them."""
LOOKED_AT = (
    "elected", "committed", "committed anew", "durable", "logs match",
    "cut or extended", "acknowledged", "told committed", "done", "added", "read", "snapshot",
    "consumed", "granted", "granted in doubt", "unflushed tail", "old tail",
    "asked what comes of it",
)  # fmt: skip
"""What rules must have had to look at, or that nothing is found shows nothing.

Longer searches also look at flushes that do not return, at cuts above a floor, and at leaders
where more disks were hurt than the quorum bears.
"""


def run(words: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tests.model", *words],
        cwd=ROOT, capture_output=True, text=True, timeout=400,
    )  # fmt: skip


def search(words: list[str]) -> str:
    done = run(words)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.long
def test_nothing_is_found_in_the_core() -> None:
    words = "--all --rounds 1 --walks 6 --beside 150 --seconds 300"
    told = search(words.split())
    assert told.count("no violation") == len(SETTINGS)
    states = [int(each.replace(",", "")) for each in re.findall(r"([\d,]+) new ones", told)]
    assert len(states) == len(SETTINGS) and min(states) > 200, told
    told += search("--setting reads --walks 20 --beside 150 --seconds 100".split())
    looked: Counter[str] = Counter()
    for kind, count in re.findall(r"([a-z ]+) (\d+)(?:,|$)", told, re.MULTILINE):
        looked[kind.strip()] += int(count)
    assert not {kind for kind in LOOKED_AT if not looked[kind]}, looked


def test_both_forms_of_the_core_go_through_the_same_states(tmp_path: Path) -> None:
    path = tmp_path / "histories"
    words = "--all --rounds 1 --walks 1 --beside 1 --seconds 300 --histories"
    assert search([*words.split(), str(path)]).count("no violation") == len(SETTINGS)
    told = search(["--replay", str(path), "--compiled"])
    wanted = rf"{len(SETTINGS)} histories, ([\d,]+) states: the same in the compiled core\n"
    found = re.fullmatch(wanted, told)
    assert found and int(found[1].replace(",", "")) > 500, told
    kept = pickle.loads(path.read_bytes())
    kept[3][2][7] += 1
    path.write_bytes(pickle.dumps(kept))
    done = run(["--replay", str(path), "--compiled"])
    assert done.returncode == PARTED and "PARTED after 7 actions, in the comp" in done.stdout


def test_a_history_that_is_told_is_taken_by_the_other_form(capsys: CaptureFixture[str]) -> None:
    quorum, start = quorum_of(arguments().parse_args([]))
    elect = [("timer", 2, "fetch_deadline_ms"), ("deliver", 2, 1), ("deliver", 1, 2)]
    outcome = Outcome(history=elect, violation="as if")
    tell(quorum, start, outcome, [])
    assert "In the other form of the core: 1 histories, " in capsys.readouterr().out


def test_nothing_is_found_by_few_deviations() -> None:
    assert "no violation" in search("--way delays --delays 1 --seconds 3".split())


def test_each_beginning_has_a_setting() -> None:
    begun = {arguments().parse_args(shlex.split(words)).begin for words in SETTINGS.values()}
    assert begun == {"", *BEGINNINGS}


def test_each_defect_has_its_patch() -> None:
    assert len(DEFECTS) == 7 and len(MUTANTS) >= 4


@pytest.mark.parametrize("path", [*DEFECTS, *MUTANTS], ids=lambda path: path.stem)
def test_a_defect_is_found(path: Path, tmp_path: Path) -> None:
    patch = path.read_text()
    broken_core(patch, tmp_path)
    found = search_core(tmp_path, [*words_of(patch), "--seconds", "120"])
    assert found.violation, found.printed


@pytest.mark.parametrize("name", list(FOUND))
def test_what_is_broken_is_found(name: str, tmp_path: Path) -> None:
    (patch,) = [each for each in PATCHES if each.stem == name]
    broken_core(patch.read_text(), tmp_path)
    found = search_core(tmp_path, f"{FOUND[name]} --walks 3000 --seconds 120".split())
    assert found.violation, found.printed
    if name != "d05_candidacy_not_written":  # which nothing can be done before
        assert "As a scenario of tests/core:" in found.printed


def test_a_search_goes_on_where_the_last_one_stopped(tmp_path: Path) -> None:
    words = "--length 30 --seconds 500".split()
    first, second = [
        search([*words, "--walks", "10", "--resume", str(tmp_path / "seen.npz")]) for _ in range(2)
    ]
    whole = search([*words, "--walks", "20"])
    counts = [int(each.split()[0].replace(",", "")) for each in (first, second, whole)]
    assert counts[0] < counts[1] == counts[2]
