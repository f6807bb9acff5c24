"""The wall clock, but for jumps ahead: what they delete would not come back."""

from __future__ import annotations

from collections.abc import Callable

DRIFT_MS = 60_000
"""What a clock may gain on the monotonic one at once: it is set right by so much, mostly."""
STEADY_MS = 3_600_000
"""A clock that jumped ahead is believed once it has gone on from there for so long."""


class SteadyClock:
    """Unix time. A clock that was wrong and is set right is believed after an hour, too."""

    # _ahead_ms: how far the wall clock is ahead of the monotonic one, as far as it is believed.
    # _jumped: how far it is since a jump, and the monotonic time of that; None without one.

    def __init__(self, wall_ms: Callable[[], int], monotonic_ns: Callable[[], int]) -> None:
        self._wall_ms, self._monotonic_ns = wall_ms, monotonic_ns
        self._ahead_ms = wall_ms() - monotonic_ns() // 1_000_000
        self._jumped: tuple[int, int] | None = None

    def unix_ms(self) -> int:
        """Return the time in ms since 1970."""
        monotonic_ms = self._monotonic_ns() // 1_000_000
        ahead_ms = self._wall_ms() - monotonic_ms
        if ahead_ms <= self._ahead_ms + DRIFT_MS:
            self._ahead_ms, self._jumped = ahead_ms, None
        elif self._jumped is None or abs(ahead_ms - self._jumped[0]) > DRIFT_MS:
            self._jumped = ahead_ms, monotonic_ms
        elif monotonic_ms - self._jumped[1] >= STEADY_MS:
            self._ahead_ms, self._jumped = ahead_ms, None
        return monotonic_ms + self._ahead_ms
