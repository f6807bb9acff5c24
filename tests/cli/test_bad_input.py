"""Every option of every command, with values that nobody should type: one plain line each.

A command runs in this process up to the point where it would start a quorum, reach one, measure or
start Spark: bad input must be refused before that, or be a value that may be passed on.
"""

from __future__ import annotations

import errno
import inspect
import io
import os
import shlex
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
import pytest

from kraftfast import limits
from kraftfast.cli import root
from kraftfast.errors import KraftfastError
from kraftfast.node.storage.description import run_lock
from kraftfast.node.storage.local_layout import format_quorum
from tests.cli.logs import Done

BAD = (
    "", " ", "\u00b2", "-1", "nan", "inf", "1e999", "9" * 20, "9" * 5000, "a" * 5000, "\udcff",
    "h:\u00b2", "[h]]:9", "[::1", "h:0", "h:65536", "::1:9", "a..b:9", "a" * 64 + ":9",
    "[red]x[/]", "[/]", "{0}", "%s", "a\nb", "=", "kraft.version=\u00b2", "\u00b2@h:1:x",
    "0:\u00b2", "\u00b2,1", "1,,2", "\u00b2MiB", "1000000000TB", "99999999999999999999MiB",
    "/dev/null", "/proc/self/mem", "file", "file/x", "directory", "absent",
)  # fmt: skip

# What a command needs besides the option that is tried; ``file``, ``server`` are there.
NEEDED = {
    "append": ["--bootstrap-server", "127.0.0.1:1", "file"],
    "consume": ["--bootstrap-server", "127.0.0.1:1"],
    "status": ["--dir", "directory"],
    "top": ["--once", "--bootstrap-server", "127.0.0.1:1"],
    "start": ["--dir", "new"],
    "serve": ["--config", "server"],
    "quorum describe": ["--status", "--bootstrap-server", "127.0.0.1:1"],
    "quorum add-controller": ["--command-config", "server", "--bootstrap-server", "127.0.0.1:1"],
    "quorum remove-controller": ["--controller-id", "1", "--bootstrap-server", "127.0.0.1:1"],
    "quorum reassign": ["--to", "1", "--bootstrap-server", "127.0.0.1:1"],
    "quorum transfer": ["--bootstrap-server", "127.0.0.1:1"],
    "quorum upgrade": ["--feature", "kraft.version=1", "--bootstrap-server", "127.0.0.1:1"],
    "storage format": ["--config", "server", "--cluster-id", "cAxBn5mxfqNyxQIcC5smKA"],
    "storage info": ["--config", "server"],
    "storage inspect": ["directory"],
    "storage recover": ["directory"],
    "storage replace": ["quorum/2"],
    "log dump": ["file"],
    "log verify": ["file"],
    "log trim": ["directory"],
    "bench run": ["file"],
    "bench peer": ["--program", "file"],
    "bench peers": ["--only", "floor"],
    "bench matrix": ["throughput", "--over", "window=1"],
    "bench attach": ["--dir", "directory"],
    "bench compare": ["file", "file"],
    "bench report": ["file"],
    "profile cpu": ["latency"],
    "profile timeline": ["latency"],
    "spark audit": ["directory"],
    "spark convert": ["directory", "new"],
    "spark compact": ["directory", "new"],
    "spark latency": ["file"],
    "spark sweep": ["--seeds", "0:1"],
}
SERVER = """\
process.roles=controller
node.id=1
controller.quorum.voters=1@127.0.0.1:19191
listeners=CONTROLLER://127.0.0.1:19191
controller.listener.names=CONTROLLER
metadata.log.dir=replica
"""


def commands(
    command: click.Command = root.cli, path: tuple[str, ...] = ()
) -> Iterator[tuple[str, click.Command]]:
    """Every command that is no group, with its words."""
    if not isinstance(command, click.Group):
        yield " ".join(path), command
        return
    context = click.Context(command)
    for name in command.list_commands(context):
        found = command.get_command(context, name)
        assert found is not None
        yield from commands(found, (*path, name))


def cases() -> list[Any]:
    """(words, arguments with a hole, the flag or "" for the positional one) of every parameter."""
    found = []
    for words, command in commands():
        for parameter in command.params:
            needed = list(NEEDED.get(words, []))
            if isinstance(parameter, click.Argument):
                found.append(pytest.param(words, needed[:-1], "", id=f"{words} {parameter.name}"))
                continue
            assert isinstance(parameter, click.Option)
            if parameter.is_flag:
                continue
            flag = next(each for each in parameter.opts if each.startswith("--"))
            if flag in needed:
                del needed[needed.index(flag) : needed.index(flag) + 2]
            if flag in ("--dir", "--bootstrap-controller") and "--bootstrap-server" in needed:
                del needed[needed.index("--bootstrap-server") :][:2]
            found.append(pytest.param(words, needed, flag, id=f"{words} {flag}"))
    return found


class Reached(KraftfastError):
    """The command accepted its input and would begin its work now."""

    exit_code = 99


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder to run in, and nothing is started or reached from it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO()))
    (tmp_path / "file").write_text("a\n")
    (tmp_path / "directory").mkdir()
    (tmp_path / "server").write_text(SERVER)

    def reached(*_args: Any, **_settings: Any) -> Any:
        raise Reached("the work begins")

    for place in (
        "kraftfast.quorum.LocalQuorum.__init__",
        "kraftfast.cli.serve.run",
        "kraftfast.cli.spark.session",
        "kraftfast.bench.fdatasync_cost.measure",
        "kraftfast.bench.floor.run_ways",
        "kraftfast.bench.loads.starting.measure",
        "kraftfast.bench.results.plan.run",
        "kraftfast.bench.profiling.spy.find",
        "kraftfast.doctor.examine",
        "kraftfast.spark.jobs.sweeps.sweep",
        "kraftfast.client.cluster.Cluster.__init__",
    ):
        monkeypatch.setattr(place, reached)


@pytest.mark.parametrize("words, needed, flag", cases())
def test_bad_input_is_one_plain_line(
    words: str,
    needed: list[str],
    flag: str,
    work: None,
    capsys: pytest.CaptureFixture[str],
) -> None:
    for value in BAD:
        given = [flag, value] if flag else ["--", value]
        args = [*words.split(), *needed, *given]
        code = root.run(args)
        said = capsys.readouterr().err
        assert code != 70 and "report it" not in said and "Traceback" not in said, (args, said)
        assert (code == 0) == (said == "") or words == "storage info", (args, code, said)
        assert said.count("\n") <= 1 and len(said) < 1200, (args, said)


@pytest.mark.parametrize("words, command", [each for each in commands() if each[0]])
def test_an_empty_path_is_refused_wherever_one_is_taken(words: str, command: click.Command) -> None:
    """An unset variable of a shell, which pathlib takes for the directory here."""
    context = click.Context(command)
    for parameter in command.params:
        if isinstance(parameter.type, click.Path):
            with pytest.raises(click.BadParameter, match="the path is empty|does not exist"):
                parameter.type.convert("", parameter, context)


@pytest.mark.parametrize("words", ["append", "consume", "top --once"])
def test_no_leader_is_told_with_the_time_that_was_given(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Not with what was left of it once something was said."""
    monkeypatch.setattr("kraftfast.cli.reach.QUIET_S", 0.2)
    where = ["--bootstrap-server", "127.0.0.1:1", "--timeout", "0.3"]
    assert root.run([*words.split(), *where]) == 12
    told = capsys.readouterr().err.splitlines()
    assert "no leader within 0.2 s" in told[0] and "no leader within 0.3 s" in told[1]


@pytest.mark.parametrize("words", ["log verify", "log dump", "storage inspect", "storage recover"])
def test_what_belongs_to_another_user_is_not_told_to_be_missing(
    words: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    found = os.stat

    def stat(path: Any, **settings: Any) -> os.stat_result:
        if path == "theirs/1":
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return found(path, **settings)

    monkeypatch.setattr(os, "stat", stat)
    assert root.run([*words.split(), "theirs/1"]) == 2
    assert "'theirs/1' cannot be reached: Permission denied" in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["status", "top --once", "quorum describe --status --timeout 0.2",
              "consume --timeout 0.2", "append --timeout 0.2"],
)  # fmt: skip
def test_a_quorum_of_another_user_is_not_told_not_to_run(
    words: str, work: None, monkeypatch: pytest.MonkeyPatch, kraftfast: Callable[..., Done]
) -> None:
    def refused(path: str, *_how: Any) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    format_quorum("theirs", 1)
    monkeypatch.setattr("kraftfast.link.unix_socket._at", refused)
    with run_lock("theirs"):
        done = kraftfast(*words.split(), "--dir", "theirs")
    assert done.code == 30 and "cannot see whether a replica runs: " in done.err
    assert "replica.sock': Permission denied; ask as its user" in done.err


@pytest.mark.parametrize(
    "words, code",
    [
        ("reassign --to 1,x", 2),
        ("reassign --to 1,1", 2),
        ("reassign --to 1 --cancel", 2),
        ("remove-controller -i 1 -d x", 2),
        ("remove-controller -i 1 -d ''", 2),
        ("add-controller -i 1 -c server", 2),
        ("add-controller -c empty", 2),
        ("upgrade --feature x", 2),
        ("upgrade --release-version x", 2),
        ("describe", 2),
    ],
)
def test_what_is_wrong_is_told_before_the_quorum_is_looked_for(
    words: str, code: int, work: None, kraftfast: Callable[..., Done]
) -> None:
    """A quorum that does not run would hide it, or hundreds of milliseconds would pass."""
    format_quorum("asleep", 1)
    Path("empty").touch()
    done = kraftfast("quorum", *shlex.split(words), "--dir", "asleep")
    assert done.code == code, done
    assert kraftfast("quorum", "describe", "--status", "--dir", "asleep").code == 12


@pytest.mark.parametrize(
    "words, told",
    [
        ("audit absent", "absent does not exist"),
        ("convert absent new", "absent does not exist"),
        ("compact absent new", "absent does not exist"),
        ("latency file --picture server", "cannot write server: it is there, and not a picture"),
        ("latency file --picture absent/x", "cannot write absent/x"),
    ],
)
def test_no_spark_is_started_for_what_is_not_there(
    words: str, told: str, work: None, kraftfast: Callable[..., Done]
) -> None:
    done = kraftfast("spark", *words.split())
    assert done.code != Reached.exit_code and told in done.err


def test_every_command_that_needs_something_is_named() -> None:
    known = dict(commands())
    assert NEEDED.keys() <= known.keys()
    for words, command in known.items():
        for parameter in command.params:
            if parameter.required:
                assert words in NEEDED, words


@pytest.mark.parametrize(
    "args, said",
    [
        (["dmo"], "there is no command 'dmo'; did you mean 'demo'?"),
        (["dump"], "there is no command 'dump'; did you mean 'log dump'?"),
        (["quorum", "desribe"], "there is no command 'desribe'; did you mean 'describe'?"),
        (["storage", "randon-uuid"], "'randon-uuid'; did you mean 'random-uuid'?"),
        (["bench", "latencey"], "there is no command 'latencey'; did you mean 'latency'?"),
        (["log", "dmup"], "there is no command 'dmup'; did you mean 'dump'?"),
        (["spark", "adit"], "there is no command 'adit'; did you mean 'audit'?"),
        (["qqq"], "there is no command 'qqq'\n"),
        (["demo", "--windw", "3"], "there is no option --windw; did you mean '--window'?"),
        (["log", "dump", "--jsn", "x"], "there is no option --jsn; did you mean '--json'?"),
        (["status", "--qqq"], "there is no option --qqq\n"),
        (["--versoin"], "there is no option --versoin; did you mean '--version'?"),
        (["--json", "status"], "there is no option --json here: the options of a command stand "),
        (["log", "--records", "dump"], "no option --records here: the options of a command stand "),
        (["quorum", "remove-controller", "--id", "1"], "did you mean '--controller-id'?"),
    ],
)
def test_the_nearest_name_is_told(
    args: list[str], said: str, kraftfast: Callable[..., Done]
) -> None:
    done = kraftfast(*args)
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize(
    "args, said",
    [
        (["start", "--segment-bytes", "2GiB"], f"to {limits.SEGMENT_BYTES_MAX} bytes"),
        (["start", "--segment-bytes", "2147483647"], f"to {limits.SEGMENT_BYTES_MAX} bytes"),
        (["demo", "--window", "32769"], "1<=x<=32768"),
    ],
)
def test_the_bounds_are_those_of_the_library(
    args: list[str], said: str, kraftfast: Callable[..., Done]
) -> None:
    done = kraftfast(*args)
    assert done.code == 2 and said in done.err


@pytest.mark.parametrize("args", [["bench", "throughput", "--total", "100000000"],
                                  ["bench", "latency", "--prepare", "100000000"],
                                  ["bench", "throughput", "--retention", "100000000"],
                                  ["bench", "throughput", "--warm-up", "100000000"],
                                  ["demo", "--records", "1000000000000"]])  # fmt: skip
def test_what_no_disk_holds_is_refused_before_it_begins(
    args: list[str], work: None, kraftfast: Callable[..., Done]
) -> None:
    done = kraftfast(*args)
    assert done.code == 31 and "MB of free space" in done.err


def test_the_functions_that_are_replaced_are_there() -> None:
    """A name that moved would let the test above run real work."""
    from kraftfast.cli import serve, spark

    assert all(map(inspect.isfunction, (serve.run, spark.session)))
    assert os.path.exists("/proc/self/mem")
