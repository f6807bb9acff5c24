"""Signals that end a replica: noted where they are handled, read by the loop between two steps."""

from __future__ import annotations

import contextlib
import signal
import socket

from kraftfast import forks

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class ProcessSignals:
    """The signals of this process. A descriptor of the loop tells when one came."""

    def __init__(self) -> None:
        self._reader, self._writer = socket.socketpair()
        self._reader.setblocking(False)
        self._writer.setblocking(False)

    def fileno(self) -> int:
        """Return the descriptor, readable when a signal came."""
        return self._reader.fileno()

    def handle(self) -> None:
        """Record SIGTERM, SIGINT and SIGHUP from now on; called in the main thread."""
        forks.own(self)
        signal.set_wakeup_fd(self._writer.fileno(), warn_on_full_buffer=False)
        for signo in stop_signals():
            signal.signal(signo, lambda _signo, _frame: None)  # the wake-up descriptor tells

    def take(self) -> bool:
        """Forget the signals that came; True if one of them stops the replica."""
        came = b""
        with contextlib.suppress(BlockingIOError):
            while data := self._reader.recv(64):
                came += data
        return any(signo in came for signo in STOP_SIGNALS)

    def disown(self) -> None:
        """Let signals end a child that a state machine forked, and not stop its parent."""
        signal.set_wakeup_fd(-1)  # the parent reads what is written there
        for signo in stop_signals():
            signal.signal(signo, signal.SIG_DFL)


def stop_signals() -> list[signal.Signals]:
    """Return all of them, without a SIGHUP that this process was started to ignore (nohup)."""
    hangup = signal.getsignal(signal.SIGHUP) != signal.SIG_IGN
    return [signo for signo in STOP_SIGNALS if hangup or signo != signal.SIGHUP]
