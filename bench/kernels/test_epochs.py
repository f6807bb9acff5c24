"""Where an epoch ends, which every Fetch asks: beside bisect over lists and a walk in Python.

python -m pytest bench/kernels/test_epochs.py --benchmark-sort=mean
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import Any

import pytest

from kraftfast.core.trail import EpochTrail
from kraftfast.types import OffsetAndEpoch

EPOCHS = (1, 10, 1_000)
STEP = 100
Find = Callable[[int], OffsetAndEpoch]


def kernel(epochs: list[int], starts: list[int], end: int) -> Find:
    trail = EpochTrail(list(zip(epochs, starts, strict=True)))
    return lambda epoch: trail.end_offset_for(epoch, end)


def by_bisect(epochs: list[int], starts: list[int], end: int) -> Find:
    def find(epoch: int) -> OffsetAndEpoch:
        place = bisect_right(epochs, epoch)
        if place == len(epochs):
            return OffsetAndEpoch(end, epochs[-1])
        if place == 0:
            return OffsetAndEpoch(starts[0], epoch)
        return OffsetAndEpoch(starts[place], epochs[place - 1])

    return find


def by_walking(epochs: list[int], starts: list[int], end: int) -> Find:
    def find(epoch: int) -> OffsetAndEpoch:
        for place in range(len(epochs) - 1, -1, -1):
            if epochs[place] <= epoch:
                after = starts[place + 1] if place + 1 < len(epochs) else end
                return OffsetAndEpoch(after, epochs[place])
        return OffsetAndEpoch(starts[0], epoch)

    return find


WAYS = {"kernel": kernel, "bisect": by_bisect, "a walk from the end": by_walking}


@pytest.mark.parametrize("count", EPOCHS)
@pytest.mark.parametrize("way", WAYS)
def test_epoch_search(benchmark: Any, way: str, count: int) -> None:
    benchmark.group = f"end of an epoch among {count}"
    epochs = [2 * number + 1 for number in range(count)]
    starts = [STEP * number for number in range(count)]
    end = STEP * count
    find, plain = (made(epochs, starts, end) for made in (WAYS[way], by_walking))
    for epoch in (0, 1, count, 2 * count - 1, 2 * count, 5 * count):
        assert find(epoch) == plain(epoch)
    benchmark(find, count | 1)
