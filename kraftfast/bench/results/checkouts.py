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

from kraftfast.bench.results.plan import BenchPlan
from kraftfast.errors import InputError, TimedOut
from kraftfast.log.disk import storage_error

MADE = {".git", ".venv", "build", "dist", "site", "__pycache__"}
"""Folders that are no sources."""
MADE_FILES = (".so", ".pyc")
RESULT_FILES = (".json", ".json.new")
LOG_CHARACTERS = 1 << 20
"""Of what a build that fails has written, the end is kept."""
START_OF_BUILD, END_OF_BUILD = "lines of output]", "[end of output]"
"""As pip frames it."""
WHOLE = "installed"
BUILD_TIMEOUT_S = 3600.0
SIDES = ("first", "second")

Tell = Callable[[str], None]


def sources(checkout: Path, environments: Path | None = None) -> Iterator[Path]:
    """Yield the files of a checkout, sorted, without what a build or a test run makes.

    Also without what ``compare`` itself writes where that is within the checkout: the folder of
    ``environments``, and the results beside it. Pipes, sockets and devices are no sources.
    """
    made = os.path.realpath(environments) if environments else None
    for folder, names, files in os.walk(checkout):
        here = os.path.realpath(folder)
        names[:] = sorted(
            each
            for each in names
            if each not in MADE and "egg-info" not in each and os.path.join(here, each) != made
        )
        ours = made is not None and here == os.path.dirname(made)
        for name in sorted(files):
            is_made = name.endswith(MADE_FILES) or (ours and name.endswith(RESULT_FILES))
            if not is_made and os.path.isfile(os.path.join(folder, name)):
                yield Path(folder, name)


def digest(checkout: Path, environments: Path | None = None) -> str:
    """Return a name for what a checkout holds, as of :func:`sources`. Raises InputError where it is
    none."""
    for needed in ("setup.py", "kraftfast/__init__.py"):
        if not (checkout / needed).is_file():
            raise InputError(f"{checkout} is no checkout of the project: it has no {needed}")
    found = hashlib.sha256()
    try:
        for path in sources(checkout, environments):
            found.update(f"{path.relative_to(checkout)}\0".encode(errors="surrogateescape"))
            found.update(hashlib.sha256(path.read_bytes()).digest())
    except OSError as error:
        raise InputError(f"cannot read {error.filename}: {error.strerror}") from None
    return found.hexdigest()[:16]


def python_of(checkout: Path, folder: Path, tell: Tell) -> str:
    """Return the Python of an environment that has what a checkout holds; built once, in
    ``folder``. Raises InputError, also where it does not build, StorageError, TimedOut.
    """
    place = folder / digest(checkout, folder)
    python = str(place / "bin" / "python")
    if (place / WHOLE).exists():
        return python
    tell(f"installing {checkout} (once; a minute or two)")
    try:
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True)
        found = list(sources(checkout, folder))  # all of them before the first copy
        log = place.with_suffix(".log")
        with tempfile.TemporaryDirectory(dir=folder) as copy:
            for path in found:
                target = Path(copy, path.relative_to(checkout))
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(path, target, follow_symlinks=True)
            _run([sys.executable, "-m", "venv", str(place)], checkout, log)
            _run([python, "-m", "pip", "install", "--quiet", "--no-compile", copy], checkout, log)
            (place / WHOLE).touch()
    except OSError as error:
        raise storage_error("cannot install into", str(place), error) from None
    return python


def _run(command: list[str], checkout: Path, log: Path) -> None:
    """Run a step of the installation; what it wrote is kept in ``log`` if it fails.

    Raises InputError, TimedOut, OSError.
    """
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, errors="replace", timeout=BUILD_TIMEOUT_S
        )
    except subprocess.TimeoutExpired:
        raise TimedOut(f"{checkout} was not installed within {BUILD_TIMEOUT_S:.0f} s") from None
    if done.returncode:
        text = done.stdout + done.stderr
        log.write_text(text[-LOG_CHARACTERS:])
        told = reason(text) or f"exit code {done.returncode}"
        raise InputError(f"{checkout} cannot be installed: {told} (the rest is in {log})")


def reason(text: str) -> str:
    """Return the line of pip's words that says why a build failed; "" where there is none.

    pip frames what the build itself wrote; behind it stand notes that say nothing of the cause.
    """
    lines = [each.strip() for each in text.splitlines() if each.strip()]
    ends = [at for at, each in enumerate(lines) if each == END_OF_BUILD]
    starts = [at for at, each in enumerate(lines) if each.endswith(START_OF_BUILD)]
    if starts and ends and starts[0] < ends[0]:
        lines = lines[starts[0] + 1 : ends[0]] or lines
    errors = [each for each in lines if "error" in each.lower() and "note:" not in each.lower()]
    return (errors or lines or [""])[-1]


def by_turns(plan: BenchPlan, pythons: tuple[str, str]) -> BenchPlan:
    """Return a plan with each measure for both environments, one right behind the other."""
    measures = tuple(
        replace(measure, name=side_of(side, measure.name), python=python)
        for measure in plan.measures
        for side, python in zip(SIDES, pythons)
    )
    return BenchPlan(plan.name, plan.repeat, measures)


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
