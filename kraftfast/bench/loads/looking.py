"""Look at something that changes, again and again, beside what is measured."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def looking(look: Callable[[], object], every_s: float, name: str) -> Iterator[None]:
    """Call ``look`` every so many seconds, in a thread of that name, while the block runs.

    Call it once more after the block, in the caller's thread, unless the block raised.
    """
    done = threading.Event()

    def look_on() -> None:
        due = time.monotonic() + every_s
        while not done.wait(max(0.0, due - time.monotonic())):
            due = time.monotonic() + every_s
            look()

    thread = threading.Thread(target=look_on, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    look()
