"""Checkouts of the project, each installed into an environment of its own, to be compared."""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from kraftfast.bench.plan import Plan
from kraftfast.errors import InputError, KraftfastError, TimedOut
from kraftfast.log.disk import storage_error

MADE = {".git", ".venv", "build", "dist", "site", "__pycache__"}
"""Folders that are no sources."""
MADE_FILES = (".so", ".pyc")
WHOLE = "installed"
BUILD_TIMEOUT_S = 3600.0
SIDES = ("first", "second")

Tell = Callable[[str], None]


def sources(checkout: Path) -> Iterator[Path]:
    """Yield the files of a checkout, sorted, without what a build or a test run makes."""
    for folder, names, files in os.walk(checkout):
        names[:] = sorted(each for each in names if each not in MADE and "egg-info" not in each)
        for name in sorted(files):
            if not name.endswith(MADE_FILES):
                yield Path(folder, name)


def digest(checkout: Path) -> str:
    """Return a name for what a checkout holds. Raises InputError where it is none."""
    for needed in ("setup.py", "kraftfast/__init__.py"):
        if not (checkout / needed).is_file():
            raise InputError(f"{checkout} is no checkout of the project: it has no {needed}")
    found = hashlib.sha256()
    try:
        for path in sources(checkout):
            found.update(f"{path.relative_to(checkout)}\0".encode(errors="surrogateescape"))
            found.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
    return found.hexdigest()[:16]


def python_of(checkout: Path, folder: Path, tell: Tell) -> str:
    """Return the Python of an environment that has what a checkout holds; built once, in
    ``folder``. Raises InputError, StorageError, KraftfastError where it does not build, TimedOut.
    """
    place = folder / digest(checkout)
    python = str(place / "bin" / "python")
    if (place / WHOLE).exists():
        return python
    tell(f"installing {checkout} (once; a minute or two)")
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        with tempfile.TemporaryDirectory(dir=folder) as copy:
            for path in sources(checkout):
                target = Path(copy, path.relative_to(checkout))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=True)
            _run([sys.executable, "-m", "venv", str(place)], checkout)
            _run([python, "-m", "pip", "install", "--quiet", "--no-compile", copy], checkout)
            (place / WHOLE).touch()
    except OSError as error:
        raise storage_error("cannot install into", str(place), error) from None
    return python


def _run(command: list[str], checkout: Path) -> None:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        raise TimedOut(f"{checkout} was not installed within {BUILD_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        told = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        raise KraftfastError(f"{checkout} cannot be installed: {told}")


def by_turns(plan: Plan, pythons: tuple[str, str]) -> Plan:
    """Return a plan with each measure for both environments, one right behind the other."""
    measures = tuple(
        replace(measure, name=side_of(side, measure.name), python=python)
        for measure in plan.measures
        for side, python in zip(SIDES, pythons)
    )
    return Plan(plan.name, plan.repeat, measures)


def side_of(side: str, measure: str) -> str:
    """Return the name of a measure of the first or the second environment."""
    return f"{side}, {measure}"


def unpaired(measures: list[str]) -> list[str]:
    """Return a line for each measure of a result that only one side has."""
    told = []
    for side, other in (SIDES, SIDES[::-1]):
        for each in measures:
            name = each.removeprefix(f"{side}, ")
            if name != each and side_of(other, name) not in measures:
                told.append(f"only the {side} has {name!r}")
    return told


def pairs(measures: list[str]) -> list[tuple[str, str]]:
    """Return the names that are compared, of those of a result: what both sides have."""
    first, second = (f"{side}, " for side in SIDES)
    names = [each.removeprefix(first) for each in measures if each.startswith(first)]
    return [(first + name, second + name) for name in names if second + name in measures]
