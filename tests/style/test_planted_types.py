"""A type checker sees through the package's names: mistakes of a program are found."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.node.processes.tuning import Tuning, TuningFields

ROOT = Path(__file__).parents[2]
PROGRAM = """
import kraftfast

def use() -> int:
    with kraftfast.LocalQuorum("quorum", voters=3, flush="deferred") as quorum:
        with quorum.producer(window=8) as producer:
            offset = producer.append_wait(b"hello", timeout=5)
        with quorum.consumer() as consumer:
            assert consumer.read(1)[0].offset == offset
    with kraftfast.connect("./quorum", timeout=5) as reached:
        known: kraftfast.Quorum = reached
        return offset + known.describe().high_watermark
"""
MISTAKES = {
    "an unknown setting": ('flush="deferred"', 'flushed="deferred"'),
    "a wrong type": ("timeout=5)\n        with", 'timeout="5")\n        with'),
    "a misspelt option": ("window=8", "windows=8"),
    "a misspelt field": (".high_watermark", ".high_watermarks"),
    "a field that records do not have": ("[0].offset", "[0].ofset"),
    "a text for bytes": ('append_wait(b"hello"', 'append_wait("hello"'),
    "a misspelt choice": ('"deferred"', '"defered"'),
    "a misspelt argument": ('b"hello", timeout', 'b"hello", heders=(), timeout'),
    "a misspelt name": ("kraftfast.Quorum", "kraftfast.Qourum"),
}


def test_settings_are_those_of_the_tuning() -> None:
    assert TuningFields.__annotations__.keys() == set(Tuning.__struct_fields__)


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sound program, and one with each mistake."""
    folder = tmp_path_factory.mktemp("programs")
    (folder / "sound.py").write_text(PROGRAM)
    for name, (right, wrong) in MISTAKES.items():
        assert PROGRAM.count(right) == 1
        (folder / f"{name.replace(' ', '_')}.py").write_text(PROGRAM.replace(right, wrong))
    settings = {"typeCheckingMode": "standard", "extraPaths": [str(ROOT)]}
    (folder / "pyrightconfig.json").write_text(json.dumps(settings))
    return folder


CHECKERS = {"mypy": ["mypy", "--strict"], "pyright": ["basedpyright", "--level", "error"]}
"""basedpyright is pyright with the program that it needs in its own wheel."""


@pytest.mark.parametrize("checker", CHECKERS)
def test_mistakes_are_found(checker: str, programs: Path) -> None:
    tool, *words = CHECKERS[checker]
    found = shutil.which(tool, path=str(Path(sys.executable).parent))
    if found is None:
        pytest.skip(f"{tool} is not installed: pip install -e '.[dev]'")
    words += ["--pythonpath", sys.executable, "-p", str(programs)] if checker == "pyright" else []
    files = sorted(map(str, programs.glob("*.py"))) if checker == "mypy" else []
    done = subprocess.run(
        [found, *words, *files], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    wrong = {Path(path).stem for path in re.findall(r"(\S+\.py):\d+.* error: ", done.stdout)}
    expected = {name.replace(" ", "_") for name in MISTAKES}
    assert wrong == expected, done.stdout + done.stderr
