"""The generator that a run draws from."""

from __future__ import annotations

from random import Random


class Chance(Random):
    """A :class:`random.Random` with the same draws, of which whole numbers take half the time."""

    def randint(self, a: int, b: int) -> int:
        count = b - a + 1
        if count <= 0:
            raise ValueError(f"no number from {a} to {b}")
        bits, draw = count.bit_length(), self.getrandbits
        drawn = draw(bits)
        while drawn >= count:
            drawn = draw(bits)
        return a + drawn
