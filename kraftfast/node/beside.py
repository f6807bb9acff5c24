"""A thread beside the loop, for what has to wait for the disk and is not in a hurry.

Jobs run one after the other; results are delivered on the loop thread, which this thread wakes.
"""

from __future__ import annotations

import os
import queue
import select
import threading
from collections import deque
from collections.abc import Callable
from typing import Any

JOIN_S = 2.0


class Beside:
    """Runs jobs outside the loop's thread, and calls inside it."""

    # fd: an eventfd that the loop watches, -1 once closed; _lock guards it. _calls: for the loop,
    # in order. _jobs: (job, what is to be done with its result); None ends the thread, which begins
    # with the first job.

    def __init__(self) -> None:
        self.fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._jobs: queue.SimpleQueue[tuple[Callable[[], Any], Callable[[Any], None]] | None]
        self._jobs = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._calls: deque[Callable[[], None]] = deque()
        self._thread: threading.Thread | None = None

    def attach(self, loop: Any) -> None:
        """Have the loop look at what comes back."""
        loop.watch(self.fd, select.EPOLLIN, lambda _events: self.take())

    def ask(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """Have ``job()`` run beside the loop, then ``done(result)`` in it.

        What it raises is raised in the loop: a failed fsync there is final (D9).
        """
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="kraftfast-beside", daemon=True)
            self._thread.start()
        self._jobs.put((job, done))

    def tell(self, call: Callable[[], None]) -> None:
        """Have ``call()`` run in the loop; from any thread."""
        with self._lock:
            if self.fd >= 0:  # else nobody looks any more
                self._calls.append(call)
                os.eventfd_write(self.fd, 1)

    def take(self) -> None:
        """Run what is to run in the loop."""
        try:
            os.eventfd_read(self.fd)
        except BlockingIOError:
            pass
        while self._calls:
            self._calls.popleft()()

    def _run(self) -> None:
        while (asked := self._jobs.get()) is not None:
            self.tell(_outcome(*asked))

    def close(self) -> None:
        """No more jobs; one that runs may go on without anybody to tell."""
        if self._thread is not None:
            self._jobs.put(None)
            self._thread.join(JOIN_S)
            self._thread = None
        with self._lock:
            fd, self.fd = self.fd, -1
        if fd >= 0:
            os.close(fd)


def _outcome(job: Callable[[], Any], done: Callable[[Any], None]) -> Callable[[], None]:
    try:
        result = job()
    except BaseException as error:
        failure = error

        def fail() -> None:
            raise failure

        return fail
    return lambda: done(result)
