"""A type checker sees through the package's names: mistakes of a program are found."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from kraftfast.node.tuning import Settings, Tuning

ROOT = Path(__file__).parents[2]
PROGRAM = """
import kraftfast

def use() -> int:
    with kraftfast.LocalQuorum("quorum", voters=3, flush="deferred") as quorum:
        with quorum.producer(window=8) as producer:
            offset = producer.append_wait(b"hello", timeout=5)
    with kraftfast.connect("./quorum", timeout=5) as reached:
        known: kraftfast.Quorum = reached
        return offset + known.describe().high_watermark
"""
MISTAKES = {
    "an unknown setting": ('flush="deferred"', 'flushed="deferred"'),
    "a wrong type": ("timeout=5)\n    with", 'timeout="5")\n    with'),
    "a misspelt option": ("window=8", "windows=8"),
    "a misspelt field": (".high_watermark", ".high_watermarks"),
    "a misspelt name": ("kraftfast.Quorum", "kraftfast.Qourum"),
}


def test_settings_are_those_of_the_tuning() -> None:
    assert Settings.__annotations__.keys() == {each.name for each in fields(Tuning)}


def test_mistakes_are_found(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    files = {"sound": PROGRAM}
    for name, (right, wrong) in MISTAKES.items():
        assert PROGRAM.count(right) == 1
        files[name.replace(" ", "_")] = PROGRAM.replace(right, wrong)
    for name, text in files.items():
        (tmp_path / f"{name}.py").write_text(text)
    paths = [str(tmp_path / f"{name}.py") for name in files]
    command = [sys.executable, "-m", "mypy", "--strict", *paths]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    found = {
        Path(line.partition(":")[0]).stem for line in done.stdout.splitlines() if ": error:" in line
    }
    assert found == files.keys() - {"sound"}, done.stdout + done.stderr
