"""Every file in ``scenarios/`` says what replicas do; see ``scenario`` for the language."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.core.scenario import SCENARIOS, run_file

FILES = sorted(SCENARIOS.glob("*.txt"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario(path: Path) -> None:
    run_file(path)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_names_its_source(path: Path) -> None:
    head = path.read_text().split("\n\n")[0]
    assert head.startswith("#"), "a scenario begins with what it is about"
