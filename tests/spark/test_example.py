"""The example that a newcomer runs in one command, on a short text."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.spark.sessions.local_session import why_not

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.processes
def test_words(tmp_path: Path) -> None:
    if why_not():
        pytest.skip(why_not())
    done = subprocess.run(
        [sys.executable, ROOT / "examples" / "words.py", ROOT / "README.md"],
        cwd=tmp_path, capture_output=True, text=True, timeout=240,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "the audit names the damaged batch" in done.stdout
    assert "Traceback" not in done.stderr
