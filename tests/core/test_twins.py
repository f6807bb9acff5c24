"""Interpreted and compiled, the core does the same (style rule 9).

By chance as well: ``tests/model/test_search.py`` takes the walks of a search again.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

import kraftfast.core.state
from tests.core import scenario
from tests.core.scenario import SCENARIOS
from tests.core.twins import CORE, interpreted

AUGMENTED = sorted(
    ".".join(path.relative_to(CORE).with_suffix("").parts)
    for path in CORE.rglob("*.pxd")
    if path.with_suffix(".py").exists() and path.stem != "__init__"
)
FILES = sorted(SCENARIOS.glob("*.txt"))

pytestmark = pytest.mark.skipif(
    kraftfast.core.state.__file__.endswith(".py"), reason="the core is not compiled here"
)


@pytest.fixture(scope="module")
def twin() -> Iterator[list[ModuleType]]:
    with interpreted("scenario") as modules:
        pass
    yield modules


def test_both_are_what_they_are_called(twin: list[ModuleType]) -> None:
    import importlib

    assert len(AUGMENTED) >= 15
    for name in AUGMENTED:
        module = importlib.import_module(f"kraftfast.core.{name}")
        assert module.__file__.endswith(".so"), f"{name} is not compiled"
    mine, theirs = scenario.World.replica_class, twin[0].World.replica_class
    assert mine is not theirs
    assert not inspect.isfunction(mine.step) and inspect.isfunction(theirs.step)


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenarios_print_the_same(path: Path, twin: list[ModuleType]) -> None:
    assert twin[0].run_file(path, check=False) == scenario.run_file(path, check=False)
