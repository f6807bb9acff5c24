"""Every example in README.md, run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from kraftfast.spark.session import why_not
from tests.ahead import in_threads
from tests.cli.kit import ROOT, environment

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S, SPARK_TIMEOUT_S = 240, 500


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == language]


def cases(*languages: str, spark: bool) -> list[Any]:
    """(language, text) of every example that runs Spark, or that does not."""
    return [
        pytest.param(language, text, id=f"{language} {text.splitlines()[0][:40]}")
        for language in languages
        for text in blocks(language)
        if ("spark" in text) == spark
    ]


def run(language: str, text: str, timeout: float = TIMEOUT_S) -> None:
    """Run an example in a folder of its own."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        expected: list[str] = []
        if language == "python":
            (place / "example.py").write_text(text)
            command = [sys.executable, "example.py"]
        else:
            script, expected = commands(text, place)
            command = ["bash", "-c", script]
        done = subprocess.run(
            command, cwd=place, env=tools(place), capture_output=True, text=True, timeout=timeout
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    printed = iter(done.stdout.splitlines())
    for line in expected:
        assert line in printed, f"{line!r} is missing, or out of order, in:\n{done.stdout}"


def tools(place: Path) -> dict[str, str]:
    """An environment in which ``kraftfast`` is this very program."""
    program = place / "bin" / "kraftfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m kraftfast "$@"\n')
    program.chmod(0o755)
    return environment() | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


def commands(text: str, place: Path) -> tuple[str, list[str]]:
    """One shell runs the commands; lines that are no command are output that must appear."""
    for number, file in enumerate(blocks("properties"), 1):
        (place / f"{number}.properties").write_text(file)
    script, expected = ["set -em"], []
    for line in text.splitlines():
        if line.startswith("$ "):
            script.append(line[2:])
        else:
            expected.append(line)
    return "\n".join(script), expected


@pytest.fixture(scope="module", autouse=True)
def beside(request: pytest.FixtureRequest) -> Iterator[Callable[[str, str], None]]:
    """Examples of Spark run one by one beside the others: each takes half a minute."""
    patient = partial(run, timeout=SPARK_TIMEOUT_S)
    with in_threads(request, ("spark_language", "text"), patient, workers=1) as wait:
        yield wait


@pytest.mark.processes
@pytest.mark.parametrize("language, text", cases("python", "console", spark=False))
def test_an_example(language: str, text: str) -> None:
    run(language, text)


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(SPARK_TIMEOUT_S + 20)
@pytest.mark.parametrize("spark_language, text", cases("python", "console", spark=True))
def test_an_example_of_spark(
    spark_language: str, text: str, beside: Callable[[str, str], None]
) -> None:
    if why_not():
        pytest.skip(why_not())
    beside(spark_language, text)


def test_the_two_commands_are_those_of_ci() -> None:
    demo, tests = (text.strip() for text in blocks("sh"))
    script = (ROOT / ".ci" / "run").read_text()
    assert "-m pytest" in tests and "readme 2" in script
    assert "kraftfast demo" in demo and "readme 1" in script
    for command in (demo, tests):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_what_it_names_exists() -> None:
    for path in re.findall(r"`((?:kraftfast|bench|tests)/[\w./]+)`", README):
        assert (ROOT / path).exists(), path
    for command in set(re.findall(r"kraftfast ([a-z]+)", README)):
        from kraftfast.cli.root import COMMANDS

        assert command in COMMANDS or command in ("commit", "and", "into", "against"), command
