"""What is broken in the core, or in its host, is reported by the rule that it breaks."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.model.planted import BUGS

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
    rule = name.partition(":")[0]
    assert rule in reports[name], f"{name} is reported as: {reports[name] or 'nothing'}"
