"""The program itself: help, failures, what is loaded."""

from __future__ import annotations

import importlib
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from kraftfast import errors
from kraftfast.cli import root
from kraftfast.cli.profile import group as profile
from kraftfast.cli.quorum import group as quorum
from kraftfast.cli.storage import group as storage
from tests.cli.kit import TIMEOUT_S, command, environment, fails, run

NAMES = root.cli.list_commands(click.Context(root.cli))


TABLES = (root.COMMANDS, quorum.COMMANDS, storage.COMMANDS, profile.COMMANDS)


@pytest.mark.parametrize("name, place", [each for table in TABLES for each in table.items()])
def test_the_table_says_what_the_command_says(name: str, place: tuple[str, str]) -> None:
    module, _, attribute = place[0].partition(":")
    command = getattr(importlib.import_module(f"kraftfast.cli.{module}"), attribute)
    assert command.name == name
    assert " ".join(command.help.split()).startswith(place[1].rstrip("."))


def test_help_loads_no_command() -> None:
    program = (
        "import sys\nfrom kraftfast.cli import root\ncode = root.run(['--help'])\n"
        "heavy = {'numpy', 'rich', 'msgspec', 'asyncio', 'kraftfast.quorum'}\n"
        "print(code, sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert done.stdout.splitlines()[-1] == "0 []", done.stderr


@pytest.mark.parametrize("name", NAMES)
def test_every_command_has_help(name: str) -> None:
    done = CliRunner().invoke(root.cli, [name, "--help"], obj={})
    assert done.exit_code == 0 and "Usage:" in done.output


def test_no_command_is_help() -> None:
    for args in ((), ("bench",), ("storage",)):
        done = run(*args)
        assert done.returncode == 0 and b"Commands:" in done.stdout, done


def test_the_sentence_of_each_command_is_whole() -> None:
    """Lists of commands cut it, and said "rates, stages,..."."""
    for args in ([], ["bench"], ["log"], ["profile"], ["quorum"], ["spark"], ["storage"]):
        out = CliRunner().invoke(root.cli, [*args, "--help"], obj={}).output
        assert "..." not in out.partition("Commands:")[2], out
    listed = " ".join(CliRunner().invoke(root.cli, ["log", "--help"], obj={}).output.split())
    assert "dump Print what a file holds, as kafka-dump-log does: batches, index" in listed


def test_unknown_options_and_commands() -> None:
    text = fails(run("demo", "--recrods", 1), 2)
    assert "--recrods" in text and "--records" in text and text.startswith("kraftfast demo: ")
    assert "frobnicate" in fails(run("frobnicate"), 2)
    assert "8" in fails(run("demo", "--voters", 8), 2)
    assert "8XB" in fails(run("demo", "--record-size", "8XB"), 2)


def failing(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    @click.command()
    def broken() -> None:
        raise error

    monkeypatch.setattr(root.cli, "get_command", lambda _ctx, _name: broken)


@pytest.mark.parametrize(
    "kind",
    [
        kind
        for kind in vars(errors).values()
        if isinstance(kind, type) and issubclass(kind, errors.KraftfastError)
    ],
)
def test_each_error_ends_with_its_exit_code(
    kind: type[errors.KraftfastError],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    error = kind("what\nhappened", 1) if kind is errors.RequestRefused else kind("what\nhappened")
    failing(monkeypatch, error)
    assert root.run(["broken"]) == kind.exit_code != 0
    assert capsys.readouterr().err == "kraftfast: what happened\n"


def test_what_nobody_foresaw(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    failing(monkeypatch, ZeroDivisionError("a bug"))
    assert root.run(["broken"]) == 70
    assert (
        capsys.readouterr().err
        == "kraftfast: unexpected failure, please report it: ZeroDivisionError: a bug\n"
    )
    assert root.run(["--debug", "broken"]) == 70
    assert "Traceback" in capsys.readouterr().err


def test_a_host_without_memory_is_no_defect(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "kraftfast: there is no memory left: raise its limit (ulimit -v, or the container's)\n"
    text = "Importing the numpy C-extensions failed: x.so: failed to map segment from shared object"
    for error in (MemoryError(), ImportError(text)):
        failing(monkeypatch, error)
        assert root.run(["broken"]) == 37
        assert capsys.readouterr().err == said
    failing(monkeypatch, ImportError("no module named x"))
    assert root.run(["broken"]) == 70


def test_status_needs_little_memory(quorum_dir: Path) -> None:
    """It loaded numpy, for the tables of another command."""
    limited = f"ulimit -v 60000; exec {shlex.join(command('status', '--dir', quorum_dir))}"
    done = subprocess.run(
        ["sh", "-c", limited], capture_output=True, env=environment(), timeout=TIMEOUT_S
    )
    assert done.returncode == 0 and b"leader" in done.stdout, done.stderr


def test_python_without_assertions_is_refused_as_it_was_asked_for() -> None:
    """It is no defect to report: whoever set the variable can take it back."""
    for variable in ("1", "2"):
        done = subprocess.run(
            command("status", "--dir", "."),
            capture_output=True,
            timeout=TIMEOUT_S,
            env=environment() | {"PYTHONOPTIMIZE": variable},
        )
        said = fails(done, errors.InvalidOption.exit_code)
        assert "PYTHONOPTIMIZE" in said and "report" not in said


@pytest.mark.processes
def test_a_server_that_the_system_refuses_something_says_what(tmp_path: Path) -> None:
    """Not that stdout cannot be written, which has the same errors."""
    config = tmp_path / "server.properties"
    config.write_text(
        f"node.id=1\nprocess.roles=controller\nlog.dirs={tmp_path / 'data'}\n"
        "listeners=CONTROLLER://127.0.0.1:9\ncontroller.listener.names=CONTROLLER\n"
        "controller.quorum.voters=1@127.0.0.1:9\n"
    )
    cluster = "cAxBn5mxfqNyxQIcC5smKA"
    assert run("storage", "format", "-c", config, "--cluster-id", cluster).returncode == 0
    limited = f"ulimit -f 100; exec {shlex.join(command('serve', '-c', config))}"
    done = subprocess.run(
        ["bash", "-c", limited], capture_output=True, timeout=TIMEOUT_S, env=environment()
    )
    said = "replica 1 cannot start: File too large; kraftfast doctor shows what this host lacks"
    assert fails(done, 6) == f"kraftfast: {said}\n"


@pytest.mark.parametrize(
    "error, code",
    [
        (KeyboardInterrupt(), 130),
        (click.Abort(), 130),
        (root.Terminated(), 143),
        (root.Terminated(signal.SIGHUP), 129),
        (BrokenPipeError(), 141),
    ],
)
def test_interruptions_are_silent(
    error: BaseException,
    code: int,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    failing(monkeypatch, error)
    assert root.run(["broken"]) == code
    assert capfd.readouterr().err.strip() == ""


def test_an_interruption_while_the_program_is_loaded_is_silent() -> None:
    """Ctrl-C within the first tenth of a second, before any command is there."""
    program = (
        "import sys\nfrom kraftfast.cli import main\nsys.argv = ['kraftfast', '--help']\n"
        "class Interrupted:\n"
        "    def find_spec(self, name, path=None, target=None):\n"
        "        if name == 'click': raise KeyboardInterrupt\n"
        "sys.meta_path.insert(0, Interrupted())\nmain()"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment()
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


@pytest.mark.processes
def test_a_terminal_that_is_closed_leaves_nothing_behind(tmp_path: Path) -> None:
    """SIGHUP unwinds a command as SIGTERM does, unless nohup has it ignored."""
    command = [sys.executable, "-P", "-m", "kraftfast", "demo", "--records", "5000000"]
    scratch = {"TMPDIR": str(tmp_path)}
    process = subprocess.Popen(
        command,
        env=environment() | scratch,
        stderr=subprocess.PIPE,
        # These tests may run under nohup themselves.
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    deadline = time.monotonic() + 30
    while not list(tmp_path.glob("*/*")) and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGHUP)
    assert process.communicate(timeout=30)[1] == b""
    assert process.returncode == 129 and not list(tmp_path.iterdir())


def test_a_full_disk_behind_stdout() -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-P", "-m", "kraftfast", "--help"],
            stdout=full,
            stderr=subprocess.PIPE,
            env=environment(),
        )
    assert done.returncode == 74
    assert done.stderr == b"kraftfast: cannot write to stdout: No space left on device\n"
