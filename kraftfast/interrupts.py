"""Have Ctrl-C, SIGTERM and SIGHUP end a command even where Python drops a handler's exception.

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
"""How long to wait before a signal is sent again, seconds."""


class LastSignal:
    """The last signal that was to end the command; ``signo`` 0 if none came."""

    signo = 0


last_signal = LastSignal()


def interrupt(signo: int, _frame: FrameType | None) -> None:
    """Note the signal and raise KeyboardInterrupt: the handler of SIGINT."""
    last_signal.signo = signo
    raise KeyboardInterrupt


def send_dropped_again() -> None:
    """Handle SIGINT by :func:`interrupt`, and send a signal again if its exception is dropped."""
    main, before = threading.get_ident(), sys.unraisablehook

    def dropped(unraisable: Any) -> None:
        if isinstance(unraisable.exc_value, Exception) or not last_signal.signo:
            before(unraisable)
            return
        again = threading.Timer(AGAIN_S, signal.pthread_kill, (main, last_signal.signo))
        again.daemon = True
        again.start()

    sys.unraisablehook = dropped
    if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:
        signal.signal(signal.SIGINT, interrupt)
