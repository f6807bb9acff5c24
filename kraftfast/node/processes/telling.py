"""Events of replicas on their way into ``logging``, in the program that supervises them.

It gets them by the logger ``kraftfast.PART``, from a thread of its own: a handler that waits holds
up no replica and no supervisor. A program that has set up no handler sees warnings and errors on
stderr.
"""

from __future__ import annotations

import queue
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from kraftfast import forks
from kraftfast.node.event_log import NO_REPLICA, WARNING, Entry, entry_now
from kraftfast.node.processes.line import show_as_text

if TYPE_CHECKING:
    import logging

WAITING_MAX = 1000
LOGGER = "kraftfast"


class Telling:
    """Where the events of this process and its workers go. :meth:`tell` never waits.

    ``show`` takes them instead of ``logging``, and must not wait: the command line sets it.
    """

    # _queue: what the thread has to log, and events to set. _left_out: no room was left there.
    # _told, _logged: how many events were told, and how many of them are logged or left out.
    # _failed: types of errors of the program's handlers, each of which is told once.

    def __init__(self) -> None:
        self.show: Callable[[Entry], None] | None = None
        self._begin()

    def _begin(self) -> None:
        self._queue: queue.Queue[Entry | threading.Event] = queue.Queue(WAITING_MAX)
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._left_out = self._told = self._logged = 0
        self._failed: set[type[BaseException]] = set()
        forks.own(self)

    def disown(self) -> None:
        """Begin without a thread, in a forked child."""
        self._begin()

    def __call__(self, event: str, node_id: int = -1, **fields: Any) -> None:
        """Report an event of this process (``event_log.KINDS``)."""
        self.tell(entry_now(event, node_id, **fields))

    def tell(self, told: Entry) -> None:
        """Pass an event on."""
        if self.show is not None:
            self.show(told)
        elif "logging" in sys.modules:
            self._put(told)
        elif told.level >= WARNING:  # no handler can be set up
            show_as_text(told)

    def _put(self, told: Entry) -> None:
        with self._lock:
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="kraftfast-log", daemon=True)
                self._thread.start()
            self._told += 1
            try:
                self._put_left_out()
                self._queue.put_nowait(told)
            except queue.Full:
                self._left_out += 1

    def _put_left_out(self) -> None:
        """Tell how many were left out. Raises queue.Full. The lock must be held."""
        if self._left_out:
            self._queue.put_nowait(entry_now("left_out", count=self._left_out, of="events"))
            self._left_out = 0

    def _run(self) -> None:
        while True:
            told = self._queue.get()
            if isinstance(told, threading.Event):
                told.set()
                continue
            try:
                log(told)
            except BaseException as error:  # noqa: BLE001 - the program's: no reason to log no more
                with suppress(BaseException):  # so may be its stderr
                    self._show(told, error)
            self._logged += _stands_for(told)

    def _show(self, told: Entry, error: BaseException) -> None:
        """Write an event to stderr that a handler or filter did not take, and why: that once."""
        show_as_text(told)
        if type(error) not in self._failed:
            self._failed.add(type(error))
            why = f"{type(error).__name__}: {error}"
            show_as_text(entry_now("logging_failed", why=why))

    def flush(self, timeout: float) -> None:
        """Wait until what was told so far is logged, ``timeout`` seconds at most.

        One line on stderr counts what is not logged then.
        """
        if self._thread is None or threading.current_thread() is self._thread:
            return
        deadline = time.monotonic() + timeout
        with suppress(queue.Full):
            logged = self._logged_by(deadline)
            if logged and self._left_out:
                with self._lock:
                    self._put_left_out()
                logged = self._logged_by(deadline)
            if logged:
                return
        if count := self._told - self._logged:
            show_as_text(entry_now("logging_behind", count=count))

    def _logged_by(self, deadline: float) -> bool:
        """Wait until what is queued is logged, in time. Raises queue.Full."""
        logged = threading.Event()
        self._queue.put(logged, timeout=max(deadline - time.monotonic(), 0))
        return logged.wait(max(deadline - time.monotonic(), 0))


def _stands_for(told: Entry) -> int:
    """Return how many events an entry is: one that counts what this process left out is those."""
    left_out = told.event == "left_out" and told.node_id == NO_REPLICA
    return int(told.fields["count"]) if left_out else 1


tell = Telling()
_own: list[logging.Handler] = []
"""The handler that does nothing, as of any library: without one ``logging`` prints by itself."""


def log(told: Entry) -> None:
    """Hand an event to ``logging``; it is a line on stderr where the program has no handler."""
    import logging

    logger, level = logging.getLogger(f"{LOGGER}.{told.kind.part}"), told.level
    if not logger.isEnabledFor(level):
        return
    if not _has_handler(logger):
        if level >= WARNING:
            show_as_text(told)
        return
    extra = told.fields | {"event": told.event, "node_id": told.node_id}
    made = logger.makeRecord(logger.name, level, "", 0, told.message, (), None, None, extra)
    made.created, made.msecs = told.time_ms / 1000, float(told.time_ms % 1000)
    logger.handle(made)


def _has_handler(logger: logging.Logger) -> bool:
    """Return whether the program has set up a handler that this logger reaches."""
    import logging

    if not _own:
        _own.append(logging.NullHandler())
        logging.getLogger(LOGGER).addHandler(_own[0])
    at: logging.Logger | None = logger
    while at is not None:
        if any(each not in _own for each in at.handlers):
            return True
        at = at.parent if at.propagate else None
    return False
