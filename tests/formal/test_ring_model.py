"""The ring and its doorbells as a model (``ring.pml``), searched whole by Spin; and its mutants.

Every patch under ``mutants/`` breaks one rule of the protocol in a copy of the model; Spin must
find a run that loses a wake-up, a message or a cursor.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.ahead import in_threads

HERE = Path(__file__).resolve().parent
MUTANTS = sorted((HERE / "mutants").glob("*.patch"))
DEPTH_MAX = 1_000_000
SECONDS_MAX = 120

pytestmark = [
    pytest.mark.skipif(shutil.which(tool) is None, reason=f"{tool} is not installed")
    for tool in ("spin", "gcc")
]


def run(command: list[str | Path], directory: Path) -> str:
    result = subprocess.run(
        [str(part) for part in command],
        cwd=directory,
        capture_output=True,
        text=True,
        timeout=SECONDS_MAX,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def search(model: Path) -> str:
    """Spin's report on all reachable states of the model."""
    run(["spin", "-a", model.name], model.parent)
    run(["gcc", "-O2", "-w", "-DSAFETY", "-o", "pan", "pan.c"], model.parent)
    report = run(["./pan", f"-m{DEPTH_MAX}", "-w20"], model.parent)
    assert "max search depth too small" not in report, "part of the states was left out"
    return report


def report_on(patch: Path | None) -> str:
    """Spin's report on the model, or on a mutant of it."""
    with tempfile.TemporaryDirectory() as place:
        model = Path(shutil.copy(HERE / "ring.pml", place))
        if patch is not None:
            run(["patch", "-p1", "-i", patch], model.parent)
        return search(model)


@pytest.fixture(scope="module")
def report_of(request: pytest.FixtureRequest) -> Iterator[Callable[[Path | None], str]]:
    """Wait for a report."""
    with in_threads(request, ("patch",), report_on) as wait:
        yield wait


@pytest.mark.parametrize("patch", [None], ids=["none"])
def test_no_run_loses_a_wake_up_or_a_message(
    patch: None, report_of: Callable[[Path | None], str]
) -> None:
    report = report_of(patch)
    assert "errors: 0" in report, report
    unreached = re.findall(r"unreached in proctype (\w+)\n((?:\t.*\n)+)", report)
    assert {name for name, _ in unreached} == {"producer", "loop", "flusher"}
    for name, states in unreached:  # the model does all that it can: nothing holds for want of it
        missed = [line for line in states.splitlines() if "state" in line and '"' in line]
        assert all('"-end-"' in line and name == "flusher" for line in missed), report


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
@pytest.mark.parametrize("patch", MUTANTS, ids=lambda path: path.stem)
def test_spin_catches_the_mutant(patch: Path, report_of: Callable[[Path | None], str]) -> None:
    report = report_of(patch)
    assert "errors: 1" in report, f"Spin does not see: {patch.read_text()}"
    assert re.search(r"invalid end state|assertion violated", report)
