"""Fixtures of running commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kraftfast.cli import root
from tests.cli.kit import Program
from tests.cli.logs import Done
from tests.log.kit import Home


@pytest.fixture
def program() -> Iterator[Callable[..., Program]]:
    """Start a command; it is killed at the end if it still runs."""
    started: list[Program] = []

    def start(*args: object) -> Program:
        started.append(Program(*args))
        return started[-1]

    yield start
    for each in started:
        if each.process.poll() is None:
            each.process.kill()
            each.process.communicate()


@pytest.fixture(scope="module")
def quorum_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A quorum that runs while the tests of a file do."""
    path = tmp_path_factory.mktemp("quorum")
    running = Program("start", "--voters", 3, "--dir", path)
    try:
        running.wait_for("leads")
        yield path
    finally:
        assert running.stop() == 0, running.log


@pytest.fixture
def kraftfast(capsys: pytest.CaptureFixture[str]) -> Callable[..., Done]:
    """Run a command in this process."""

    def run(*args: object) -> Done:
        code = root.run([str(arg) for arg in args])
        done = Done(code, *capsys.readouterr())
        if code:
            assert done.err.startswith("kraftfast") and done.err.count("\n") == 1, done
        return done

    return run


@pytest.fixture
def home(tmp_path: Path) -> Home:
    """A formatted replica's directory."""
    return Home(tmp_path / "replica")
