"""Ctrl-C where Python drops a handler's exception, or makes another error of it."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

import pytest

from tests.cli.kit import TIMEOUT_S, environment

COMMAND = """
import os, signal, sys, time, weakref, click
from kraftfast import cli
from kraftfast.cli import root

def interrupt(*_args):
    os.kill(os.getpid(), signal.{signal})
    for _ in range(1000):
        pass

@click.command()
def broken():
    {body}

root.cli.add_command(broken)
sys.argv = ["kraftfast", "broken"]
cli.main()
"""
DROPPED = """
    class Known:
        pass
    known = Known()
    link = weakref.ref(known, interrupt)
    del known
    while True:
        time.sleep(0.01)
"""
CONVERTED = """
    class Named:
        __set_name__ = interrupt
    type("Owner", (), {"field": Named()})
"""
IN_DEL = """
    class Known:
        __del__ = interrupt
    Known()
    while True:
        time.sleep(0.01)
"""


def ended(body: str, name: str, prelude: str = "") -> tuple[int, str]:
    lines = textwrap.indent(textwrap.dedent(body).strip(), "    ")
    text = COMMAND.replace("{signal}", name).replace("    {body}", lines)
    done = subprocess.run(
        [sys.executable, "-c", prelude + text],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
    )
    return done.returncode, done.stdout + done.stderr


@pytest.mark.parametrize("name, code", [("SIGINT", 130), ("SIGTERM", 143)])
@pytest.mark.parametrize("body", [DROPPED, CONVERTED, IN_DEL])
def test_an_interruption_is_never_lost(body: str, name: str, code: int) -> None:
    """It was dropped with a traceback, and the command went on; or it was an unexpected failure."""
    assert ended(body, name) == (code, "")


def test_a_sweep_of_seeds_is_ended_by_a_signal_whose_exception_is_dropped() -> None:
    """It went on to its last seed, and said nothing."""
    program = """
import os, runpy, signal, sys, time, weakref
from kraftfast.sim import pool

def results(*_asked):
    class Known:
        pass
    def interrupt(_link):
        os.kill(os.getpid(), signal.SIGTERM)
        for _ in range(1000):
            pass
    known = Known()
    link = weakref.ref(known, interrupt)
    del known
    while True:
        time.sleep(0.01)
    yield

pool.results = results
sys.argv = ["sim", "--seed", "1"]
runpy.run_module("kraftfast.sim", run_name="__main__")
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        env=environment(),
    )
    assert done.returncode == 128 + signal.SIGTERM and "Traceback" not in done.stderr, done
    assert "1 of 1 seeds were not run: stopped" in done.stderr


def test_what_else_is_dropped_is_printed_as_ever() -> None:
    code, said = ended("class Known:\n    def __del__(self): 1 / 0\nKnown()", "SIGINT")
    assert code == 0 and "ZeroDivisionError" in said


def test_what_fails_for_another_reason_is_still_reported() -> None:
    code, said = ended("raise RuntimeError('a defect')", "SIGINT")
    assert code == 70 and "a defect" in said


def test_ctrl_c_that_is_ignored_stays_so() -> None:
    """As a shell ignores it for its jobs in the background."""
    ignored = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n"
    assert ended("interrupt()", "SIGINT", ignored) == (0, "")


def test_an_interruption_while_the_program_is_loaded_ends_it_at_once() -> None:
    """Where an import makes another error of it, too."""
    program = textwrap.dedent(
        """
        import os, signal, sys
        from kraftfast.cli import main
        sys.argv = ["kraftfast", "--help"]
        class Interrupted:
            def find_spec(self, name, path=None, target=None):
                if name == "click":
                    try:
                        os.kill(os.getpid(), signal.SIGINT)
                        for _ in range(1000):
                            pass
                    except BaseException as error:
                        raise RuntimeError("of an import") from error
        sys.meta_path.insert(0, Interrupted())
        main()
        """
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
