"""The ``kraftfast`` program: its commands, and what happens when one of them fails.

A failure is one line on stderr and an exit code of its own (``errors.py`` has the table); a
traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
import traceback
from collections.abc import Sequence
from types import FrameType

import click

from kraftfast import __version__
from kraftfast.cli.lazy import lazy_group
from kraftfast.errors import KraftfastError, LocalError

COMMANDS = {
    "demo": ("demo:demo", "Append an input to a quorum, show how it went, verify it."),
    "start": ("start:start", "Run a quorum on this host until it is told to stop."),
    "append": ("append:append", "Append the lines of a file to a running quorum."),
    "consume": ("consume:consume", "Print the committed records of a running quorum."),
    "status": ("status:status", "Show each replica of a running quorum."),
    "quorum": ("quorum:quorum", "Show who votes and leads, and change it."),
    "storage": ("storage:storage", "Format, inspect, recover and replace directories of replicas."),
    "serve": ("serve:serve", "Run one replica as a server, with Kafka's config names."),
    "log": ("log:log", "Look at the files of a log: dump, verify, trim."),
    "spark": ("spark:spark", "Jobs over whole logs on Apache Spark: audit, convert, compact."),
    "bench": ("bench:bench", "Measure throughput, latency, and the disk."),
}

EXIT_INTERNAL = 70
EXIT_OUTPUT = 74
EXIT_INTERRUPTED = 128 + signal.SIGINT
EXIT_TERMINATED = 128 + signal.SIGTERM
EXIT_PIPE = 128 + signal.SIGPIPE


class Terminated(BaseException):
    """SIGTERM came: unwind as for Ctrl-C."""


@lazy_group(COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kraftfast")
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.pass_obj
def cli(settings: dict[str, bool], debug: bool) -> None:
    """KRaft, Kafka's Raft dialect, as a fast replicated log for Python."""
    settings["debug"] = debug


def run(args: Sequence[str]) -> int:
    """Run one command; returns its exit code. Says what failed in one line."""
    signal.signal(signal.SIGTERM, _terminate)
    settings = {"debug": False}
    try:
        with cli.make_context("kraftfast", list(args), obj=settings) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except click.exceptions.Exit as done:
        return done.exit_code
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message())
        return 0
    except BrokenPipeError:
        _drop_stdout()
        return EXIT_PIPE
    except (KeyboardInterrupt, click.Abort):
        return EXIT_INTERRUPTED
    except Terminated:
        return EXIT_TERMINATED
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends here, in one line
        if settings["debug"]:
            traceback.print_exc()
        else:
            print(one_line(error), file=sys.stderr)
        return exit_code(error)


def exit_code(error: BaseException) -> int:
    """The exit code for a failure; 70 for one that nobody foresaw."""
    if isinstance(error, KraftfastError):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return LocalError.exit_code
    return EXIT_OUTPUT if _is_output(error) else EXIT_INTERNAL


def one_line(error: BaseException) -> str:
    """Which command failed and why, in one line."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "kraftfast"
    if isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, KraftfastError):
        text = str(error)
    elif _is_output(error):
        text = f"cannot write to stdout: {os.strerror(errno.ENOSPC)}"
        _drop_stdout()
    else:
        text = f"unexpected failure, please report it: {type(error).__name__}: {error}"
    return " ".join(f"{name}: {text}".split())


def _is_output(error: BaseException) -> bool:
    """A full disk behind stdout: the log's own files raise DiskFull, and name themselves."""
    return isinstance(error, OSError) and error.errno == errno.ENOSPC and error.filename is None


def _drop_stdout() -> None:
    """Nobody takes it: what is left in it goes nowhere, without another error at exit."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _terminate(_signo: int, _frame: FrameType | None) -> None:
    raise Terminated
