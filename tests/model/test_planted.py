"""What is broken in the core, or in its host, is reported by the rule that it breaks."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model import planted, planted_displaced, planted_moves, planted_states  # noqa: F401
from tests.model.planting import BUGS, NOT_HERE
from tests.model.test_oracle import BROKEN

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def reports() -> dict[str, str]:
    """What was said of each bug."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.model.planted"],
        cwd=ROOT, capture_output=True, text=True, timeout=200,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return dict(json.loads(line) for line in done.stdout.splitlines())


@pytest.mark.parametrize("name", BUGS)
def test_a_bug_is_reported_by_its_rule(name: str, reports: dict[str, str]) -> None:
    rules = name.partition(":")[0].split(", ")
    assert rules and set(rules) <= said_rules(reports[name]), (
        f"{name} is reported as: {reports[name] or 'nothing'}"
    )


def said_rules(text: str) -> set[str]:
    """Return the invariants and conditions that a report names."""
    return set(re.findall(r"\b[DIL]\d+\b", text))


def test_each_invariant_has_something_planted_or_a_reason() -> None:
    names = {rule for name in BUGS for rule in name.partition(":")[0].split(", ")}
    names |= {rule for text, *_ in BROKEN for rule in text.split(", ")}
    wanted = {f"I{number}" for number in range(1, 26)}
    assert wanted - names == set(NOT_HERE)
