"""Walks that begin where others met something new find what is broken, from any seed."""

from __future__ import annotations

from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from tests.model.guided import Corpus
from tests.model.mutant import broken_core, search_core
from tests.model.test_search import search

DEFECTS = Path(__file__).parent / "defects"


def test_nothing_is_found_in_the_core() -> None:
    words = ["--setting", "replaced disks", "--way", "guided", "--walks", "12", "--seconds", "100"]
    assert "no violation" in search(words)


@pytest.mark.parametrize("seed", ["1", "2", "3"])
def test_a_replaced_disk_is_found_from_any_seed(seed: str, tmp_path: Path) -> None:
    broken_core((DEFECTS / "replaced_disk.patch").read_text(), tmp_path)
    words = ["--setting", "replaced disks", "--way", "guided", "--liveness", "0", "--seed", seed]
    found = search_core(tmp_path, [*words, "--walks", "400", "--seconds", "120"])
    assert found.violation, found.printed


def met(name: str, *left: int) -> Any:
    """A state of which only its abstract form, its name, and what is left are asked."""
    return SimpleNamespace(name=name, left=left)


def test_the_state_after_which_most_may_happen_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.model.guided.abstract", lambda quorum, state: (state.name,))
    corpus = Corpus(met("start", 9))
    for state, depth in ((met("a", 2, 1), 5), (met("a", 2, 2), 7), (met("a", 0, 1), 1)):
        corpus.note(None, state, (None, (depth,)), depth)  # type: ignore[arg-type]
    assert [entry[0].left for entry in corpus.entries.values()] == [(2, 2)]
    chance = Random(1)
    picked = {corpus.pick(chance)[0].name for _ in range(30)}
    assert picked == {"start", "a"}
    corpus.clear()
    assert corpus.pick(chance) == (corpus.start, None, 0)
