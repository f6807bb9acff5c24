"""The command line: one file a command, loaded only when it is the one that was asked for."""

from __future__ import annotations

import os
import signal
import sys
from types import FrameType
from typing import NoReturn

EXIT_INTERRUPTED = 130
"""As shells say it of SIGINT."""


def main() -> NoReturn:
    """The ``kraftfast`` program."""
    try:
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as of a shell's background jobs
            signal.signal(signal.SIGINT, _end_at_once)
        from kraftfast.cli.root import run
        from kraftfast.interrupts import send_dropped_again

        send_dropped_again()
        code = run(sys.argv[1:])
    except KeyboardInterrupt:  # while the program is loaded, or again while it ends
        code = EXIT_INTERRUPTED
    sys.exit(code)


def _end_at_once(_signo: int, _frame: FrameType | None) -> None:
    """End the process: while the program is loaded there is nothing to unwind."""
    os._exit(EXIT_INTERRUPTED)
