"""Every example of README.md and of the pages in docs/, run as it stands there."""

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

import click
import pytest

from kraftfast.bench.profiling.spy import find as find_spy
from kraftfast.cli.root import COMMANDS, cli
from kraftfast.errors import HostUnsupported
from kraftfast.spark.sessions.local_session import why_not
from tests.ahead import in_threads
from tests.cli.kit import ROOT, environment
from tests.docs.pages import BLOCK, PAGES, README, Example, blocks

TIMEOUT_S, SPARK_TIMEOUT_S = 240, 500
RUN = ("python", "console")
FILES = ("properties", "toml")
LANGUAGES = {*RUN, *FILES, "text", "mermaid"}
"""Those of examples that run, and of what is no example."""


def cases(*, spark: bool) -> list[Any]:
    """Every example that runs Spark, or that does not."""
    return [
        pytest.param(example, id=example.name)
        for page in PAGES
        for example in blocks(page, *RUN)
        if example.runs_spark == spark
    ]


OF_THE_DAEMON = re.compile(
    r"Traceback [^\n]*\n(?:  File [^\n]*pyspark/daemon\.py[^\n]*\n(?:    [^\n]*\n)*)+"
    r"(?:BrokenPipe|ConnectionReset)Error[^\n]*\n"
)
"""What PySpark's own daemon prints where a session ended beneath a worker that it had kept."""


def run(example: Example, timeout: float = TIMEOUT_S) -> None:
    """Run an example in a folder of its own."""
    language, text = example.language, example.text
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        place = Path(folder)
        expected: list[str] = []
        if language == "python":
            (place / "example.py").write_text(text)
            command = [sys.executable, "example.py"]
        else:
            script, expected = commands(example, place)
            command = ["bash", "-c", script]
        done = subprocess.run(
            command, cwd=place, env=tools(place), capture_output=True, text=True, timeout=timeout
        )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Traceback" not in OF_THE_DAEMON.sub("", done.stderr), done.stderr
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


def commands(example: Example, place: Path) -> tuple[str, list[str]]:
    """One shell runs the commands; lines that are no command are output that must appear.

    The page's blocks of properties are there as ``1.properties``, ``2.properties`` ..., those of
    TOML as ``1.toml`` ...
    """
    for kind in FILES:
        for number, file in enumerate(blocks(example.page, kind), 1):
            (place / f"{number}.{kind}").write_text(file.text)
    script, expected = ["set -em"], []
    for line in example.text.splitlines():
        if line.startswith("$ "):
            script.append(line[2:])
        else:
            expected.append(line)
    return "\n".join(script), expected


@pytest.fixture(scope="module", autouse=True)
def beside(request: pytest.FixtureRequest) -> Iterator[Callable[[Example], None]]:
    """Examples of Spark run one by one beside the others: each takes half a minute."""
    patient = partial(run, timeout=SPARK_TIMEOUT_S)
    with in_threads(request, ("spark_example",), patient, workers=1) as wait:
        yield wait


@pytest.mark.processes
@pytest.mark.parametrize("example", cases(spark=False))
def test_an_example(example: Example) -> None:
    if "profile cpu" in example.text:
        try:
            find_spy()
        except HostUnsupported as error:
            pytest.skip(str(error))
    run(example)


@pytest.mark.spark
@pytest.mark.processes
@pytest.mark.timeout(SPARK_TIMEOUT_S + 20)
@pytest.mark.parametrize("spark_example", cases(spark=True))
def test_an_example_of_spark(spark_example: Example, beside: Callable[[Example], None]) -> None:
    if why_not():
        pytest.skip(why_not())
    beside(spark_example)


def test_a_type_checker_finds_nothing_in_the_examples(tmp_path: Path) -> None:
    pytest.importorskip("mypy")
    for page in PAGES:
        for number, example in enumerate(blocks(page, "python")):
            name = re.sub(r"\W", "_", str(page.relative_to(ROOT)))
            (tmp_path / f"{name}_{number}.py").write_text(example.text)
    files = sorted(map(str, tmp_path.iterdir()))
    assert len(files) >= 10
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", *files],
        cwd=ROOT, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_block_runs_or_is_no_example(page: Path) -> None:
    allowed = LANGUAGES | {"sh"} if page == README else LANGUAGES
    assert {example.language for example in blocks(page)} <= allowed


def test_the_two_commands_are_those_of_ci() -> None:
    demo, tests = (example.text.strip() for example in blocks(README, "sh"))
    script = (ROOT / ".ci" / "run").read_text()
    assert "-m pytest" in tests and "readme 2" in script
    assert "kraftfast demo" in demo and "readme 1" in script
    for command in (demo, tests):
        assert command.startswith("python3 -m venv .venv && .venv/bin/pip install ")


def test_the_readme_is_one_screen() -> None:
    assert len(README.read_text().splitlines()) <= 130


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_what_it_names_exists(page: Path) -> None:
    text = page.read_text()
    for path in re.findall(r"`((?:kraftfast|bench|tests|examples)/[\w./]+)`", text):
        assert (ROOT / path).exists(), path
    examples = [example.text for example in blocks(page, "console", "sh")]
    for code in examples + re.findall(r"`([^`]+)`", BLOCK.sub("", text)):
        for arguments in re.findall(r"(?:^|[ /(])kraftfast((?: [^|;&)\n]+)+)", code, re.MULTILINE):
            assert unknown(arguments.split()) == [], f"kraftfast{arguments}"


def unknown(words: list[str]) -> list[str]:
    """Return the commands and options among these words that ``kraftfast`` does not have."""
    command: click.Command = cli
    context = click.Context(cli, info_name="kraftfast")
    missing, options = [], option_names(cli, context)
    for word in words:
        if isinstance(command, click.Group) and not word.startswith("-"):
            if word.isupper() or not word.replace("-", "").isalpha():
                break  # of SQL, or of zip: here kraftfast is no command
            below = command.get_command(context, word)
            if below is None:
                return [*missing, word]
            command, context = below, click.Context(below, context, info_name=word)
            options |= option_names(command, context)
        elif word.startswith("--") and word.partition("=")[0] not in options:
            missing.append(word)
    return missing


def option_names(command: click.Command, context: click.Context) -> set[str]:
    """Return the options of a command, as they are written."""
    found = {"--help"}
    for parameter in command.get_params(context):
        found |= {*parameter.opts, *parameter.secondary_opts}
    return found


def test_a_wrong_name_is_found() -> None:
    assert "demo" in COMMANDS
    assert unknown(["demo", "--records", "5", "--frob=1"]) == ["--frob=1"]
    assert unknown(["storage", "inspekt", "--json"]) == ["inspekt"]
