"""How long a state machine kept the loop of its replica from running.

Both share one interpreter. A call of the machine that does not let go of it (one long call into C:
``json.dumps`` of all the state) stops the loop. The replica's clock stands still for that time:
what could not be heard meanwhile is no silence, for which a leader would resign or a follower
campaign. No safety condition rests on a clock. Time that the loop slept or waited for its flush
counts (D13).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

HELD_NS_MIN = 20_000_000
"""A shorter pause of the loop is not looked at."""


class Calls:
    """Notes when the machine is called, for the loop's thread to look at."""

    # began_ns, ended_ns: of the last call; it goes on while it began after the last end.

    def __init__(self) -> None:
        self.began_ns = self.ended_ns = 0

    def make(self, call: Callable[..., Any], *args: Any) -> Any:
        """Return ``call(*args)``."""
        self.began_ns = time.monotonic_ns()
        try:
            return call(*args)
        finally:
            self.ended_ns = time.monotonic_ns()

    def between(self, since_ns: int, now_ns: int) -> int:
        """Return how many nanoseconds from ``since_ns`` to ``now_ns`` were in the last call."""
        began_ns, ended_ns = self.began_ns, self.ended_ns
        if ended_ns < began_ns:
            ended_ns = now_ns
        return max(0, min(ended_ns, now_ns) - max(began_ns, since_ns))
