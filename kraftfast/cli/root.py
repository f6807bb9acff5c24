"""The ``kraftfast`` program: its commands, and what happens when one of them fails.

A failure is one line on stderr and an exit code of its own (``errors.py`` has the table); a
traceback is shown only with ``--debug``.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import traceback
import warnings
from collections.abc import Sequence
from types import FrameType

import click

from kraftfast import __version__, interrupts
from kraftfast.cli import EXIT_INTERRUPTED, streams
from kraftfast.cli.hints import did_you_mean
from kraftfast.cli.lazy import lazy_group
from kraftfast.errors import (
    KraftfastError,
    LocalError,
    OutOfResources,
    StorageError,
    lack_of_memory,
)

COMMANDS = {
    "demo": ("demo:demo", "Append an input to a quorum, show how it went, verify it."),
    "start": ("start:start", "Run a quorum on this host until it is told to stop."),
    "append": ("append:append", "Append the lines of a file to a running quorum."),
    "consume": ("consume:consume", "Print the committed records of a running quorum."),
    "status": ("status:status", "Show each replica of a running quorum."),
    "top": ("top:top", "Show a running quorum as it works: rates, latencies, lag, disks."),
    "quorum": ("quorum.group:quorum", "Show who votes and leads, and change it."),
    "storage": (
        "storage.group:storage",
        "Format, inspect, recover and replace directories of replicas.",
    ),
    "serve": ("serve:serve", "Run one replica as a server, with Kafka's config names."),
    "log": ("log.group:log", "Look at the files of a log: dump, verify, trim."),
    "spark": ("spark:spark", "Jobs over whole logs on Apache Spark: audit, convert, compact."),
    "doctor": (
        "doctor:doctor",
        "Look at this host: say what kraftfast needs, and what to do where it is missing.",
    ),
    "bench": (
        "bench.group:bench",
        "Measure throughput, latency, the disk and the floor; compare results.",
    ),
    "profile": ("profile.group:profile", "Show where time goes: in each process, and in a commit."),
}

COMPLETE = "_KRAFTFAST_COMPLETE"
"""In the environment of a shell's question what may stand next on the command line."""
LINE_MAX = 1000
"""Characters of an error; texts that a user passed may be of any length."""

EXIT_INTERNAL = 70
EXIT_OUTPUT = 74
EXIT_PIPE = 128 + signal.SIGPIPE


class Terminated(BaseException):
    """SIGTERM came, or SIGHUP as a terminal was closed, or SIGPIPE: unwind as for Ctrl-C."""

    def __init__(self, signo: int = signal.SIGTERM) -> None:
        super().__init__()
        self.exit_code = 128 + signo


@lazy_group(COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="kraftfast")
@click.option("--debug", is_flag=True, help="Show the traceback of a failure.")
@click.pass_obj
def cli(settings: dict[str, bool], debug: bool) -> None:
    """KRaft, Kafka's Raft dialect, as a fast replicated log for Python."""
    settings["debug"] = debug


def run(args: Sequence[str]) -> int:
    """Run one command; returns its exit code. Says what failed in one line."""
    streams.prepare()
    warnings.showwarning = say_warning  # type: ignore[assignment]
    signal.signal(signal.SIGTERM, _terminate)
    if signal.getsignal(signal.SIGHUP) == signal.SIG_DFL:  # nohup has it ignored
        signal.signal(signal.SIGHUP, _terminate)
    settings = {"debug": False}
    interrupts.last_signal.signo = 0
    try:
        if COMPLETE in os.environ:
            return complete(os.environ[COMPLETE])
        with cli.make_context("kraftfast", list(args), obj=settings) as context:
            cli.invoke(context)
        sys.stdout.flush()
        return 0
    except BaseException as error:  # noqa: BLE001 - whatever it is, it ends here, in one line
        return ended_by(error, settings["debug"])


def end_with_reader() -> None:
    """End the command once stdout has no reader any longer, also while there is nothing to write.

    For the main thread, of commands that wait for ever. As ``tail -f`` does.
    """
    signal.signal(signal.SIGPIPE, _terminate)
    main = threading.get_ident()

    def watch() -> None:
        if streams.wait_unread(sys.stdout):
            signal.pthread_kill(main, signal.SIGPIPE)  # also ends its sleep

    threading.Thread(target=watch, name="kraftfast-stdout", daemon=True).start()


def say_warning(message: Warning | str, *_where: object) -> None:
    """Say a warning in one line, as everything else on stderr."""
    click.echo(" ".join(f"kraftfast: WARNING: {message}".split()), err=True)


def ended_by(error: BaseException, debug: bool) -> int:
    """Say what ended a command, unless it was asked to end; returns the exit code."""
    if isinstance(error, click.exceptions.Exit):
        return error.exit_code
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        click.echo(error.format_message())
        return 0
    if isinstance(error, BrokenPipeError):
        streams.drop(sys.stdout)
        return EXIT_PIPE
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return EXIT_INTERRUPTED
    if isinstance(error, Terminated):
        if error.exit_code == EXIT_PIPE:
            streams.drop(sys.stdout)
        return error.exit_code
    # An unforeseen error after a signal is what Python made of the handler's exception.
    if interrupts.last_signal.signo and exit_code(error) == EXIT_INTERNAL:
        return 128 + interrupts.last_signal.signo
    if debug:
        streams.complain("".join(traceback.format_exception(error)).rstrip())
    else:
        streams.complain(one_line(error))
    if streams.is_output(error):
        streams.drop(sys.stdout)
    return exit_code(error)


def complete(instruction: str) -> int:
    """Answer the shell: its script, or the words that may stand next."""
    from click.shell_completion import shell_complete

    done = shell_complete(cli, {"obj": {"debug": False}}, "kraftfast", COMPLETE, instruction)
    sys.stdout.flush()
    return done


def exit_code(error: BaseException) -> int:
    """Return the exit code for a failure; 70 for an unforeseen one."""
    if isinstance(error, KraftfastError):
        return error.exit_code
    if isinstance(error, click.ClickException):
        return LocalError.exit_code
    if streams.is_output(error):
        return EXIT_OUTPUT
    if lack_of_memory(error):
        return OutOfResources.exit_code
    return StorageError.exit_code if isinstance(error, OSError) else EXIT_INTERNAL


def one_line(error: BaseException) -> str:
    """Return which command failed and why, in one line of bounded length."""
    context = getattr(error, "ctx", None)
    name = context.command_path if context is not None else "kraftfast"
    if isinstance(error, click.exceptions.NoSuchOption):
        params = () if context is None else context.command.get_params(context)
        known = [name for each in params for name in (*each.opts, *each.secondary_opts)]
        near = did_you_mean(error.option_name, known)
        if not near and context is not None and isinstance(context.command, click.Group):
            near = " here: the options of a command stand behind its name"
        text = f"there is no option {error.option_name}{near}"
    elif isinstance(error, click.ClickException):
        text = error.format_message()
    elif isinstance(error, KraftfastError):
        text = str(error)
    elif streams.is_output(error):
        text = f"cannot write to stdout: {os.strerror(getattr(error, 'errno', 0))}"
    elif lack_of_memory(error):
        text = lack_of_memory(error)
    elif isinstance(error, OSError):
        text = f"{error.filename or 'the system'}: {error.strerror or error}"
    else:
        text = f"unexpected failure, please report it: {type(error).__name__}: {error}"
    line = " ".join(f"{name}: {text}".split())
    if len(line) > LINE_MAX:
        line = f"{line[: LINE_MAX // 2]} ... {line[-LINE_MAX // 4 :]}"
    return line


def _terminate(signo: int, _frame: FrameType | None) -> None:
    interrupts.last_signal.signo = signo
    raise Terminated(signo)
