"""The picture of README.md is the one that its results make."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.cli.kit import ROOT

PLACE = ROOT / "docs" / "benchmarks"


def test_the_picture_shows_the_results(tmp_path: Path) -> None:
    drawn = tmp_path / "picture.svg"
    program = ROOT / "bench" / "picture.py"
    subprocess.run([sys.executable, program, PLACE / "results.json", drawn], check=True)
    assert drawn.read_text() == (PLACE / "picture.svg").read_text(), f"draw it again by {program}"
