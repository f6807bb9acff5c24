"""The workflows parse, and call scripts, commands and Pythons of this repository that exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.style.sources import ROOT
from tests.style.test_makefile import TARGETS

yaml = pytest.importorskip("yaml", reason="PyYAML comes with the dev extra, by mkdocs")
WORKFLOWS = sorted(ROOT.glob(".github/workflows/*.yml"))
SCRIPT = re.compile(r"(?<![\w/.])\.ci/[\w-]+")
MAKE = re.compile(r"\bmake((?: [a-z]+)+)")
PINNED = re.compile(r"[\w-]+/[\w-]+@v[0-9][\w.]*")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def read(path: Path) -> dict[Any, Any]:
    parsed = yaml.safe_load(path.read_text())
    assert isinstance(parsed, dict)
    return parsed


def steps(path: Path) -> Iterator[dict[str, Any]]:
    for job in read(path)["jobs"].values():
        yield from job["steps"]


def called(text: str) -> tuple[list[str], list[str]]:
    """Return the scripts of .ci and the targets of make that a text calls."""
    return SCRIPT.findall(text), [each for words in MAKE.findall(text) for each in words.split()]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.name)
def test_what_a_workflow_calls_is_there(path: Path) -> None:
    workflow = read(path)
    assert set(workflow) >= {"name", True, "permissions", "jobs"}  # YAML 1.1 reads `on` as True
    for job in workflow["jobs"].values():
        assert job["timeout-minutes"] <= 120 and job["runs-on"]
    for step in steps(path):
        assert ("run" in step) != ("uses" in step), step
        assert PINNED.fullmatch(step.get("uses", "some/action@v1")), step
        scripts, targets = called(step.get("run", ""))
        assert set(targets) <= set(TARGETS), step
        assert all(os.access(ROOT / script, os.X_OK) for script in scripts), step


def test_workflows_call_what_a_developer_calls() -> None:
    """`.ci/run`, and each script and command of make that is in it or that it stands for."""
    runs = [step["run"] for step in steps(ROOT / ".github/workflows/ci.yml") if "run" in step]
    scripts, targets = called("\n".join(runs))
    assert ".ci/run" in scripts
    assert {"build", "lint", "quick", "packages", "docs", "sanitizers"} <= set(targets)
    of_run, _ = called((ROOT / ".ci/run").read_text())
    assert of_run and all(os.access(ROOT / script, os.X_OK) for script in of_run)


def test_every_supported_python_is_tried() -> None:
    name = "Programming Language :: Python :: 3."
    told = {each.rpartition(" ")[2] for each in PROJECT["project"]["classifiers"] if name in each}
    jobs = read(ROOT / ".github/workflows/ci.yml")["jobs"]
    assert set(jobs["quick"]["strategy"]["matrix"]["python"]) == told
    wheels = PROJECT["tool"]["cibuildwheel"]["build"]
    assert {f"cp{each.replace('.', '')}-*" for each in told} == set(wheels)


def test_actionlint_finds_nothing() -> None:
    found = shutil.which("actionlint")
    if found is None:
        pytest.skip("no actionlint: go install github.com/rhysd/actionlint/cmd/actionlint@latest")
    done = subprocess.run([found, *WORKFLOWS], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
