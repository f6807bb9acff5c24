"""The wall clock, as far as it was steady: what a wrong one deletes would not come back."""

from __future__ import annotations

from collections.abc import Callable

DRIFT_MS = 60_000
"""What a clock may gain on the monotonic one at once: it is set right by so much, mostly."""
STEADY_MS = 3_600_000
"""A clock is believed for as far ahead as it was for so long: after a start, and after a jump."""


class SteadyClock:
    """Unix time. A clock that was wrong and is set right is believed after ``steady_ms``, too."""

    # _ahead_ms: how far the wall clock is ahead of the monotonic one, as far as it is believed;
    # None before it was steady since the start, whose clock may be wrong.
    # _watched: the least that it was ahead while it was not believed, and the monotonic time since
    # when; None while it is.

    def __init__(
        self, wall_ms: Callable[[], int], monotonic_ns: Callable[[], int], steady_ms: int
    ) -> None:
        self._wall_ms, self._monotonic_ns, self._steady_ms = wall_ms, monotonic_ns, steady_ms
        monotonic_ms = monotonic_ns() // 1_000_000
        self._ahead_ms: int | None = None
        self._watched: tuple[int, int] | None = wall_ms() - monotonic_ms, monotonic_ms

    def unix_ms(self) -> int | None:
        """Return the time in ms since 1970, None while it is not known."""
        monotonic_ms = self._monotonic_ns() // 1_000_000
        ahead_ms = self._wall_ms() - monotonic_ms
        if self._ahead_ms is not None and ahead_ms <= self._ahead_ms + DRIFT_MS:
            self._ahead_ms, self._watched = ahead_ms, None
        else:
            self._watch(ahead_ms, monotonic_ms)
        return None if self._ahead_ms is None else monotonic_ms + self._ahead_ms

    def _watch(self, ahead_ms: int, monotonic_ms: int) -> None:
        """Believe the least that the clock was ahead, once that was so for long enough.

        A machine that is suspended jumps each time: a further jump does not begin anew.
        """
        least_ms, since_ms = self._watched or (ahead_ms, monotonic_ms)
        self._watched = min(least_ms, ahead_ms), since_ms
        if monotonic_ms - since_ms >= self._steady_ms:
            self._ahead_ms, self._watched = self._watched[0], None
