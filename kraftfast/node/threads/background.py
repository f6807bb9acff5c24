"""A thread beside the loop, for what has to wait for the disk and is not in a hurry.

Jobs run one after the other; results are delivered on the loop thread, which this thread wakes.
"""

from __future__ import annotations

import select
import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.link.host_ports import Joinable, Queue, Threads, Waker

if TYPE_CHECKING:
    from typing import TypeVar

    from kraftfast.node.loop import Loop

    T = TypeVar("T")

JOIN_S = 2.0


class Background:
    """Runs jobs outside the loop's thread, and calls inside it."""

    # waker: which the loop watches, None once closed; _lock guards it. _calls: for the loop, in
    # order. _jobs: (job, what is to be done with its result); None ends the thread, which begins
    # with the first job.

    def __init__(self, threads: Threads) -> None:
        self.waker: Waker | None = threads.waker()
        self._threads = threads
        self._jobs: Queue = threads.queue()
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._thread: Joinable | None = None

    def attach(self, loop: Loop) -> None:
        """Have the loop look at what comes back."""
        assert self.waker is not None, "a loop begins once"
        loop.watch(self.waker.fileno(), select.EPOLLIN, lambda _events: self.take())

    def ask(self, job: Callable[[], T], done: Callable[[T], None]) -> None:
        """Have ``job()`` run beside the loop, then ``done(result)`` in it.

        What it raises is raised in the loop: a failed fsync there is final (D9).
        """
        if self._thread is None:
            self._thread = self._threads.start(self._run, "kraftfast-background")
        self._jobs.put((job, done))

    def tell(self, call: Callable[[], None]) -> None:
        """Have ``call()`` run in the loop; from any thread."""
        with self._lock:
            if self.waker is not None:  # else the loop has ended
                self._calls.append(call)
                self.waker.ring()

    def take(self) -> None:
        """Run what is to run in the loop."""
        if self.waker is not None:
            self.waker.clear()
        while self._calls:
            self._calls.popleft()()

    def _run(self) -> None:
        while (asked := self._jobs.get()) is not None:
            self.tell(_outcome(*asked))

    def close(self) -> None:
        """Take no more jobs; the result of one that runs is dropped."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(JOIN_S)
            self._thread = None
        with self._lock:
            waker, self.waker = self.waker, None
        if waker is not None:
            waker.close()


def _outcome(job: Callable[[], T], done: Callable[[T], None]) -> Callable[[], None]:
    try:
        result = job()
    except BaseException as error:
        failure = error

        def fail() -> None:
            raise failure

        return fail
    return lambda: done(result)
