"""Every example in README.md, run as it stands there."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraftfast.spark.session import why_not
from tests.cli.kit import ROOT, environment

README = (ROOT / "README.md").read_text()
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TIMEOUT_S = 240


def blocks(language: str) -> list[str]:
    return [text for name, text in BLOCK.findall(README) if name == language]


def titles(language: str) -> list[str]:
    return [text.splitlines()[0][:40] for text in blocks(language)]


def skip_without_spark(text: str) -> None:
    if "spark" in text and why_not():
        pytest.skip(why_not())


@pytest.fixture
def tools(tmp_path: Path) -> Iterator[dict[str, str]]:
    """An environment in which ``kraftfast`` is this very program."""
    program = tmp_path / "bin" / "kraftfast"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -P -m kraftfast "$@"\n')
    program.chmod(0o755)
    yield environment() | {"PATH": f"{program.parent}:{os.environ['PATH']}"}


@pytest.mark.processes
@pytest.mark.parametrize("text", blocks("python"), ids=titles("python"))
def test_python(text: str, tmp_path: Path, tools: dict[str, str]) -> None:
    skip_without_spark(text)
    (tmp_path / "example.py").write_text(text)
    done = subprocess.run(
        [sys.executable, "example.py"],
        cwd=tmp_path, env=tools, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.processes
@pytest.mark.parametrize("text", blocks("console"), ids=titles("console"))
def test_console(text: str, tmp_path: Path, tools: dict[str, str]) -> None:
    """One shell runs the commands; lines that are no command are output that must appear."""
    skip_without_spark(text)
    for number, file in enumerate(blocks("properties"), 1):
        (tmp_path / f"{number}.properties").write_text(file)
    script, expected = ["set -em"], []
    for line in text.splitlines():
        if line.startswith("$ "):
            script.append(line[2:])
        else:
            expected.append(line)
    done = subprocess.run(
        ["bash", "-c", "\n".join(script)],
        cwd=tmp_path, env=tools, capture_output=True, text=True, timeout=TIMEOUT_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    printed = iter(done.stdout.splitlines())
    for line in expected:
        assert line in printed, f"{line!r} is missing, or out of order, in:\n{done.stdout}"


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
