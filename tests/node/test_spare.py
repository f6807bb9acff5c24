"""Processes that the test kit keeps ready: taken by the next quorum, or ended."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kraftfast.node.processes.launching import spare
from kraftfast.testing import QuorumUnderTest
from tests.node.kit import TIMEOUT_S
from tests.node.test_supervisor import children


def test_the_next_quorum_of_a_test_takes_the_processes_that_are_ready(tmp_path: Path) -> None:
    before = children()
    with QuorumUnderTest(tmp_path / "1", 1):
        assert spare._launch is not None
    ready = spare._launch.first.process.pid
    with QuorumUnderTest(tmp_path / "2", 1) as quorum:
        assert quorum.supervisor.pid(1) == ready
    spare.end()
    assert children() <= before


@pytest.mark.parametrize("change", ["environment", "count", "killed"])
def test_processes_that_were_made_ready_for_something_else_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    before = children()
    spare.make(1)
    assert spare._launch is not None
    process = spare._launch.first.process
    if change == "environment":
        monkeypatch.setenv("KRAFTFAST_TEST", "another")
    if change == "killed":
        process.kill()
        process.wait()
    with QuorumUnderTest(tmp_path / "q", 3 if change == "count" else 1) as quorum:
        assert quorum.supervisor.pid(1) != process.pid
        assert process.poll() is not None
        assert quorum.wait_leader(TIMEOUT_S)
    spare.end()
    assert children() <= before


def test_a_forked_child_leaves_the_processes_that_are_ready_to_its_parent() -> None:
    spare.make(2)
    assert spare._launch is not None
    process = spare._launch.first.process
    if (pid := os.fork()) == 0:
        code = 1
        with contextlib.suppress(BaseException):
            spare.end()
            code = spare._launch is not None
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    assert process.poll() is None
    spare.end()


def test_a_program_whose_working_directory_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    before = children()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    spare.make(1)  # while it was there
    (tmp_path / "here").rmdir()
    for number in range(2):
        with QuorumUnderTest(tmp_path / str(number), 1) as quorum:
            assert quorum.wait_leader(TIMEOUT_S)
    spare.end()  # one is ready for the next quorum there, too
    assert children() <= before
    assert "Traceback" not in capfd.readouterr().err


IN_PYTEST = """
import os
import subprocess
import sys
import pytest
from kraftfast.node.processes.launching import spare

ready = [spare]


@pytest.fixture(autouse=True)
def noted():
    ready.append(spare._launch.first.process.pid)


@pytest.mark.parametrize("quorum", [{"voters": 1}], indirect=True)
@pytest.mark.parametrize("number", [1, 2])
def test_it(noted, quorum, number):
    assert len(ready) == number + 1 and quorum.supervisor.pid(1) == ready[-1]
"""


def test_tests_take_what_was_ready_before_them_the_first_too(tmp_path: Path) -> None:
    """pytest changes a variable of the environment for each test: nothing was ever ready."""
    (tmp_path / "conftest.py").write_text('pytest_plugins = ["kraftfast.testing"]\n')
    (tmp_path / "test_it.py").write_text(IN_PYTEST)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--basetemp=t"],
        cwd=tmp_path, env=os.environ | {"PYTEST_ADDOPTS": ""}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout
