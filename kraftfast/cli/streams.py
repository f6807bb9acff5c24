"""Standard input, output and error of the program: closed, full, or of an encoding without é."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import sys
from typing import Any

CLOSED = errno.EBADF
LOOK_MS = 60_000
OUTPUT_ERRORS = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, CLOSED}


def prepare() -> None:
    """Make file descriptors 0, 1 and 2 exist, and texts of any character printable.

    A descriptor that the caller closed must not become a file of the log: a line for stdout or
    stderr, ours or a worker's, would be written into it. The place is held by /dev/null, opened so
    that a use of stdin and stdout still fails with EBADF.
    """
    for fd, flags in ((0, os.O_WRONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        if not _is_open(fd):
            found = os.open(os.devnull, flags)
            assert found == fd, "the lowest free descriptor: those below are open"
            os.set_inheritable(fd, True)  # workers write their lines to the same stderr
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - for as long as the program runs
    if sys.stdout is None:
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115
    if sys.stderr is None:
        sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
    for stream in (sys.stdout, sys.stderr):
        utf8 = getattr(stream, "encoding", "").lower().replace("-", "") == "utf8"
        if getattr(stream, "errors", "") == "strict" or not utf8:
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def is_output(error: BaseException) -> bool:
    """Return whether stdout could not be written.

    Errors of files name them, and those of the log are StorageErrors.
    """
    return isinstance(error, OSError) and error.errno in OUTPUT_ERRORS and error.filename is None


def wait_unread(stream: Any) -> bool:
    """Wait until what is written to a pipe, socket or terminal has no reader.

    False if that cannot be known, of a stream without a descriptor.
    """
    poll = select.poll()
    try:
        poll.register(stream.fileno(), 0)  # errors and hang-ups are always told
    except (OSError, ValueError):
        return False
    while not poll.poll(LOOK_MS):
        pass
    return True


def drop(stream: Any) -> None:
    """Send what is left in a stream, and what follows, to /dev/null: nothing fails at exit."""
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())
        os.close(null)


def complain(text: str) -> None:
    """Print a line on stderr. If stderr cannot be written the exit code alone tells."""
    try:
        print(text, file=sys.stderr, flush=True)
    except (OSError, ValueError):
        drop(sys.stderr)
