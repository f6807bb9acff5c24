"""How the commands of the tests take bad words, signals and files that fail: in one plain line."""

from __future__ import annotations

import argparse
import math
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, NoReturn

REFUSED = 2
VIOLATED = 3
EXIT_PIPE = 128 + signal.SIGPIPE
ASKED: list[int] = []
"""Signals that came: a search stops at the next place from which it can go on another day."""


class Refused(Exception):
    """What was asked for cannot be done; the text says why."""


class Interrupted(KeyboardInterrupt):
    """SIGINT or SIGTERM came.

    ``subprocess`` waits for the process that it kills, however long that takes to end. After a
    plain KeyboardInterrupt it waits for a quarter of a second, and may leave it behind.
    """


def finish(name: str, main: Callable[[], int]) -> NoReturn:
    """Exit as ``main`` returns, or as what it raises says: never with a traceback for the user.

    SIGTERM is taken as Ctrl-C: what runs below ends, and folders that were for a time go.
    """
    signal.signal(signal.SIGINT, interrupt)
    signal.signal(signal.SIGTERM, interrupt)
    try:
        code = main()
        sys.stdout.flush()
    except (Refused, OSError) as error:
        if isinstance(error, BrokenPipeError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(EXIT_PIPE)
        print(f"{name}: error: {in_short(error)}", file=sys.stderr)
        code = REFUSED
    except KeyboardInterrupt:
        code = 128 + (ASKED[0] if ASKED else signal.SIGINT)
    sys.exit(code)


def in_short(error: Exception) -> str:
    """Return what an error says; of a copy of many files, what it says of the first."""
    if isinstance(error, shutil.Error) and isinstance(error.args[0], list):
        return f"{error.args[0][0][2]}; {len(error.args[0])} files were not copied"
    return str(error)


def interrupt(signo: int, _frame: object) -> None:
    ASKED.append(signo)
    raise Interrupted(signo)


@contextmanager
def replaced_by(path: Path) -> Iterator[IO[bytes]]:
    """Write a file that takes the place of another one, or leaves it as it was.

    Raises OSError; another file beside it is left alone, whatever its name.
    """
    number, name = tempfile.mkstemp(prefix=f"{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(number, "wb") as file:
            yield file
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def stop_when_asked() -> None:
    """Note the first SIGINT or SIGTERM in ``ASKED``; the second ends the process as usual."""

    def note(signo: int, _frame: object) -> None:
        ASKED.append(signo)
        signal.signal(signal.SIGINT, interrupt)
        signal.signal(signal.SIGTERM, interrupt)

    signal.signal(signal.SIGINT, note)
    signal.signal(signal.SIGTERM, note)


def from_least(least: int) -> Callable[[str], int]:
    """Return what reads a whole number that is at least this one."""

    def number(text: str) -> int:
        value = int(text)
        if value < least:
            raise argparse.ArgumentTypeError(f"must be at least {least}, not {text}")
        return value

    return number


def duration(text: str) -> float:
    """Return a time in the unit of the option: above 0, and a number."""
    value = float(text)
    if math.isnan(value) or value <= 0:
        raise argparse.ArgumentTypeError(f"must be above 0, not {text}")
    return value
