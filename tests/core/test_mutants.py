"""The kill matrix: without the line that keeps a condition, the test that is named for it fails.

Each file in ``mutants/`` says what is broken, which test must see it, and how: a small patch of the
sources, applied to a copy of them. Shipped code has no switches for this.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ahead import in_threads
from tests.core.kill import KILLED
from tests.log.mutate import apply

ROOT = Path(__file__).parents[2]
PATCHES = sorted((Path(__file__).parent / "mutants").glob("*.patch"))
CONDITIONS = {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 13, 14, 15, 16, 17, 19, 21, 23}
"""Of the conditions, those that the core keeps."""


def copy_sources(root: Path) -> None:
    """The core and its executor, interpreted but for what exists compiled only."""
    core = root / "kraftfast" / "core"
    (root / "kraftfast").mkdir(parents=True)
    for pattern in ("*.py", "_cyutility.*.so"):
        for path in (ROOT / "kraftfast").glob(pattern):
            shutil.copy(path, root / "kraftfast")
    own = ROOT / "kraftfast" / "core"
    compiled = [
        path
        for path in own.rglob("*.so")
        if not (path.parent / f"{path.name.split('.')[0]}.py").exists()
    ]
    for path in (*own.rglob("*.py"), *compiled):
        copy = core / path.relative_to(own)
        copy.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(path, copy)
    (root / "kraftfast" / "node").mkdir()
    for name in ("__init__.py", "executor.py"):
        shutil.copy(ROOT / "kraftfast" / "node" / name, root / "kraftfast" / "node")
    shutil.copytree(
        ROOT / "tests" / "core",
        root / "tests" / "core",
        ignore=shutil.ignore_patterns("__pycache__", "mutants"),
    )


def killer_of(path: Path) -> tuple[str, str]:
    """Module and name of the test that must see it."""
    (killer,) = re.findall(r"^Killed by: (\w+) (\w+)$", path.read_text(), re.MULTILINE)
    return killer


def run(killers: list[tuple[str, str]], root: Path) -> subprocess.CompletedProcess[str]:
    words = [word for killer in killers for word in killer]
    return subprocess.run(
        [sys.executable, "-m", "tests.core.kill", *words],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
    )


def outcome_of(path: Path) -> subprocess.CompletedProcess[str]:
    """What the test that is named for a mutant says of it."""
    with tempfile.TemporaryDirectory() as root:
        copy_sources(Path(root))
        apply(path.read_text(), Path(root))
        return run([killer_of(path)], Path(root))


Outcome = Callable[[Path], subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def outcome_with(request: pytest.FixtureRequest) -> Iterator[Outcome]:
    """Wait for the outcome of a mutant."""
    with in_threads(request, ("path",), outcome_of) as wait:
        yield wait


@pytest.mark.parametrize("path", PATCHES, ids=lambda path: path.stem)
def test_a_mutant_is_killed(path: Path, outcome_with: Outcome) -> None:
    outcome = outcome_with(path)
    assert outcome.returncode == KILLED, f"{killer_of(path)} did not see it: {outcome.stderr}"


def test_every_condition_has_a_mutant() -> None:
    named = {int(path.stem[1:3]) for path in PATCHES if re.match(r"d\d\d_", path.stem)}
    assert named == CONDITIONS


def test_without_a_patch_the_killers_pass(tmp_path: Path) -> None:
    copy_sources(tmp_path)
    outcome = run(sorted({killer_of(path) for path in PATCHES}), tmp_path)
    assert outcome.returncode == 0, outcome.stderr
