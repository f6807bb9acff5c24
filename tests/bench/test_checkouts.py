"""Checkouts that are compared: what names one, what is refused, and that both are measured."""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
from pathlib import Path

import pytest

from kraftfast.bench.results import checkouts
from kraftfast.bench.results.plan import Measure, MeasurementFailed, of_table, run_once
from kraftfast.errors import InputError, KraftfastError
from tests.cli.kit import fails, run


def checkout(place: Path, version: str = "1") -> Path:
    """A folder that looks like one."""
    (place / "kraftfast").mkdir(parents=True)
    (place / "setup.py").write_text(f"raise SystemExit('setup.py: no compiler {version}')\n")
    (place / "kraftfast" / "__init__.py").touch()
    return place


def test_a_name_is_that_of_the_sources(tmp_path: Path) -> None:
    one, other = checkout(tmp_path / "a"), checkout(tmp_path / "b")
    assert checkouts.digest(one) == checkouts.digest(other)
    (other / "build").mkdir()
    (other / "build" / "x.c").touch()
    (other / "kraftfast" / "x.cpython-311.so").touch()
    assert checkouts.digest(one) == checkouts.digest(other), "what is built is no source"
    (other / "kraftfast" / "x.py").touch()
    assert checkouts.digest(one) != checkouts.digest(other)


def test_what_is_none_and_what_does_not_build_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no checkout of the project: it has no setup.py"):
        checkouts.digest(tmp_path)
    told: list[str] = []
    broken = checkout(tmp_path / "broken")
    with pytest.raises(InputError, match="broken cannot be installed: setup.py: no comp") as why:
        checkouts.python_of(broken, tmp_path / "environments", told.append)
    assert told and not list((tmp_path / "environments").glob("*/installed"))
    (log,) = (tmp_path / "environments").glob("*.log")
    assert str(log) in str(why.value) and "setup.py: no compiler 1" in log.read_text()


@pytest.mark.parametrize(
    "lines, told",
    [
        (
            "╰─> [3 lines of output]|a|x.c:1: error: no ;|b|[end of output]|ERROR: Failed",
            "x.c:1: err",
        ),
        (
            "ERROR: no space|note: This error is no problem with pip.|[notice] a pip",
            "ERROR: no space",
        ),
        ("killed", "killed"),
        ("", ""),
    ],
)
def test_why_a_build_fails(lines: str, told: str) -> None:
    found = checkouts.reason(lines.replace("|", "\n  "))
    assert found.startswith(told) and bool(found) is bool(told)


def test_what_a_comparison_writes_is_no_source(tmp_path: Path) -> None:
    one = checkout(tmp_path / "a")
    before = set(checkouts.sources(one))
    environments = one / "results" / "environments"
    name = checkouts.digest(one, environments)
    environments.mkdir(parents=True)
    (environments / "x").touch()
    (one / "results" / "r.json").touch()
    assert set(checkouts.sources(one, environments)) == before
    assert checkouts.digest(one, environments) == name
    (one / "results" / "kept.py").touch()
    assert checkouts.digest(one, environments) != name
    assert one / "results" / "kept.py" in set(checkouts.sources(one, environments))


def test_only_files_are_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = checkout(tmp_path / "a")
    before = set(checkouts.sources(one))
    os.mkfifo(one / "pipe")
    monkeypatch.chdir(one)  # the address of a socket is short
    with socket.socket(socket.AF_UNIX) as made:
        made.bind("s")
    (one / "zero").symlink_to("/dev/zero")
    assert set(checkouts.sources(one)) == before and checkouts.digest(one)


def test_a_copy_does_not_hold_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = checkout(tmp_path / "a")
    copied: list[Path] = []

    def stop(command: list[str], place: Path, log: Path) -> None:
        copied.extend(each for each in log.parent.rglob("*") if each.is_file())
        raise KraftfastError("enough")

    monkeypatch.setattr(checkouts, "_run", stop)
    with pytest.raises(KraftfastError, match="enough"):
        checkouts.python_of(one, one / "results" / "environments", lambda _: None)
    assert sorted(each.name for each in copied) == ["__init__.py", "setup.py"]


def test_each_measure_is_run_for_both_one_behind_the_other() -> None:
    plan = of_table({"measure": [{"command": "floor"}, {"command": "latency"}]}, "p")
    both = checkouts.by_turns(plan, ("a/python", "b/python"))
    told = [(each.name, each.python) for each in both.measures]
    assert told == [
        ("first, floor", "a/python"), ("second, floor", "b/python"),
        ("first, latency", "a/python"), ("second, latency", "b/python"),
    ]  # fmt: skip
    names = ["first, floor", "second, floor", "first, x: part"]
    assert checkouts.pairs(names) == [("first, floor", "second, floor")]
    assert checkouts.unpaired(names) == ["only the first has 'x: part'"]


def test_a_measurement_that_a_signal_ends_says_so_as_shells_do(tmp_path: Path) -> None:
    """9 and 15 are codes of errors of ours, and 137 is none."""
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\nkill -9 $$\n")
    python.chmod(0o755)
    with pytest.raises(MeasurementFailed) as failed:
        run_once(Measure("floor", "floor", (), str(python)), 1, str(tmp_path))
    assert failed.value.exit_code == 128 + signal.SIGKILL


@pytest.mark.processes
def test_two_checkouts_are_compared(tmp_path: Path) -> None:
    """Their environments are there already: this one, by another name."""
    places, results = [], tmp_path / "results"
    for version in "12":
        places.append(checkout(tmp_path / version, version))
        environment = results / "environments" / checkouts.digest(places[-1])
        (environment / "bin").mkdir(parents=True)
        (environment / checkouts.WHOLE).touch()
        python = environment / "bin" / "python"
        python.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
        python.chmod(0o755)
    plan = tmp_path / "plan.toml"
    plan.write_text('repeat = 1\n[[measure]]\ncommand = "floor"\ntotal = 1\n')
    asked = ("bench", "compare", *places, "--plan", plan, "--results", results, "--dir", tmp_path)
    done = run(*asked, "--json")
    assert done.returncode == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert {line["measure"] for line in lines} == {"first, floor / second, floor"}
    assert b"1 of 2: first, floor" in done.stderr and b"2 of 2: second, floor" in done.stderr
    done = run(*asked, "--fail-if-worse", 5)
    assert done.returncode == 3 and b"--fail-if-worse needs 5 turns" in done.stderr
    assert b"1 of 2" not in done.stderr, "nothing is measured for no verdict"
    fails(run("bench", "compare", places[0], tmp_path, "--results", results), 3)
    fails(run("bench", "compare", plan, plan, "--plan", plan), 2)
