"""How long a state machine kept the loop of its replica from running.

Both share one interpreter. A call of the machine that does not let go of it (one long call into C:
``json.dumps`` of all the state) stops the loop. The replica's clock stands still for that time:
what could not be heard meanwhile is no silence, for which a leader would resign or a follower
campaign. No safety condition rests on a clock. Time that the loop slept or waited for its flush
counts (D13).
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from typing import TYPE_CHECKING, Any, NoReturn

from kraftfast import forks
from kraftfast.errors import OffsetOutOfRange, StorageError
from kraftfast.node.event_log import entry_now
from kraftfast.node.processes.line import show_as_text

if TYPE_CHECKING:
    from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
    from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter

APART_NS = 5_000_000
"""Calls closer to each other than this are looked at as one: the loop may not have run between."""


class Calls:
    """Notes when the machine is called, for the loop's thread to look at."""

    # began_ns, ended_ns: of the last call and those just before it. inside: it goes on.
    # generation: of the process whose machine it is.

    def __init__(self, monotonic_ns: Callable[[], int] = time.monotonic_ns) -> None:
        self.generation = forks.generation
        self._monotonic_ns = monotonic_ns
        self.began_ns = self.ended_ns = 0
        self.inside = False

    def make(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return ``call(*args)``; a child that was forked there never returns from here (R11)."""
        now_ns = self._monotonic_ns()
        if now_ns - self.ended_ns > APART_NS:
            self.began_ns = now_ns
        self.inside = True
        try:
            return call(*args)
        finally:
            if self.generation != forks.generation:
                _end_child()
            self.ended_ns = self._monotonic_ns()
            self.inside = False

    def run(
        self,
        method: Callable[..., object],
        *args: object,
        lent: SnapshotReader | SnapshotWriter | None = None,
    ) -> None:
        """Run a method that returns nothing; no error of its own is one of the replica's storage.

        What ``lent`` itself has raised is. Raises TypeError for a method that nothing has run.
        """
        try:
            found = self.make(method, *args)
        except (StorageError, OffsetOutOfRange) as error:
            if lent is not None and error is lent.failed:
                raise
            raise RuntimeError(f"the state machine raised {error!r}") from error
        if isinstance(found, Generator | AsyncGenerator | Awaitable):
            name, kind = getattr(method, "__name__", "a method"), type(found).__name__
            raise TypeError(
                f"{name}() returned a {kind}, which nothing runs: use no yield or async"
            )

    def between(self, since_ns: int, now_ns: int) -> int:
        """Return how many nanoseconds from ``since_ns`` to ``now_ns`` were in the last calls."""
        ended_ns = now_ns if self.inside else min(self.ended_ns, now_ns)
        return max(0, ended_ns - max(self.began_ns, since_ns))


def _end_child() -> NoReturn:
    """End a process that a state machine forked; it must not answer or write as the replica does.

    It ends as a program would: by what was raised in it, if anything was.
    """
    error = sys.exc_info()[1]
    status = 1
    if isinstance(error, SystemExit) and isinstance(error.code, int | None):
        status = error.code or 0
    elif error is not None:
        import traceback

        text = "".join(traceback.format_exception(error))
        why = f"{type(error).__name__}: {error}"
        show_as_text(entry_now("child_failed", pid=os.getpid(), why=why, traceback=text))
    else:
        show_as_text(entry_now("child_returned", pid=os.getpid()))
    os._exit(status)
