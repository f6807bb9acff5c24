"""What other checkers say of the sources: ruff of style, names and layout, mypy of types."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CHECKERS = {
    "ruff": ["ruff", "check", "--output-format=concise", "."],
    "format": ["ruff", "format", "--check", "."],
    "mypy": ["mypy"],
}


@pytest.mark.parametrize("name", CHECKERS)
def test_it_finds_nothing(name: str) -> None:
    pytest.importorskip(CHECKERS[name][0])
    command = [sys.executable, "-m", *CHECKERS[name]]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, done.stdout + done.stderr
