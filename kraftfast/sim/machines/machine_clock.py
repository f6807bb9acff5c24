"""Clocks of machines: monotonic, but neither equal nor steady (fault 18)."""

from __future__ import annotations


class MachineClock:
    """Maps the world's time to a machine's own.

    Invariants: what it shows never falls; ``rate`` 0 is a clock that stands still.
    """

    rate: float
    _from_us: int  # the world's time at the last change of rate
    _shown_us: float  # what the clock showed then

    def __init__(self, shown_us: int) -> None:
        self.rate = 1.0
        self._from_us = 0
        self._shown_us = float(shown_us)

    def us(self, world_us: int) -> int:
        """Return what the clock shows at this moment of the world, microseconds."""
        return int(self._shown_us + (world_us - self._from_us) * self.rate)

    def ms(self, world_us: int) -> int:
        """Return the same in milliseconds: the ``now_ms`` of the core."""
        return self.us(world_us) // 1000

    def set_rate(self, rate: float, world_us: int) -> None:
        """Run faster or slower from now on."""
        self._shown_us += (world_us - self._from_us) * self.rate
        self._from_us, self.rate = world_us, rate

    def delay_us(self, shown_ms: int, world_us: int) -> int:
        """Return how long from now until it shows this; a second where it stands still."""
        left_us = shown_ms * 1000 - self.us(world_us)
        if left_us <= 0:
            return 0
        return min(1_000_000, int(left_us / self.rate) + 1 if self.rate > 0 else 1_000_000)
