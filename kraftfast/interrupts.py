"""Ctrl-C, SIGTERM and SIGHUP at moments at which Python loses what a signal handler raises.

A handler runs between two bytecodes of the main thread, wherever that is. In a callback of a weak
reference (each import ends with one) or in ``__del__`` its exception is dropped with a traceback,
and the command would go on; in ``__set_name__`` it becomes a RuntimeError.
"""

from __future__ import annotations

import signal
import sys
import threading
from types import FrameType
from typing import Any

AGAIN_S = 0.01
"""After so long a signal is sent again whose exception was dropped."""


class Told:
    """``signo``: of the last signal that was to end the command, 0 if none was."""

    signo = 0


told = Told()


def interrupt(signo: int, _frame: FrameType | None) -> None:
    """Raise KeyboardInterrupt, for SIGINT."""
    told.signo = signo
    raise KeyboardInterrupt


def send_dropped_again() -> None:
    """Have SIGINT noted, and any signal sent again whose exception Python drops."""
    main, before = threading.get_ident(), sys.unraisablehook

    def dropped(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Exception) or not told.signo:
            before(unraisable)
            return
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, told.signo))
        again.daemon = True
        again.start()

    sys.unraisablehook = dropped
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
