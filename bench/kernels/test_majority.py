"""The high watermark of a voter set, beside sorting in Python and numpy's partition.

    python -m pytest bench/kernels/test_majority.py --benchmark-sort=mean

A round is what one acknowledgement costs: an offset stored, and the majority's offset found.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from kraftfast.core.replication.majority import Acknowledged

VOTERS = (1, 3, 5, 7, 64)
BASE = 1_000_000


def kernel(voters: int) -> Callable[[int], int]:
    held = Acknowledged(range(voters))
    for slot in range(voters):
        held.put(slot, BASE + slot)

    def acknowledge(offset: int) -> int:
        held.put(0, offset)
        return held.by_majority()

    return acknowledge


def in_python(voters: int) -> Callable[[int], int]:
    held = [BASE + slot for slot in range(voters)]

    def acknowledge(offset: int) -> int:
        held[0] = offset
        return sorted(held, reverse=True)[voters // 2]

    return acknowledge


def by_numpy(voters: int) -> Callable[[int], int]:
    held = np.arange(BASE, BASE + voters)
    place = voters - 1 - voters // 2

    def acknowledge(offset: int) -> int:
        held[0] = offset
        return int(np.partition(held, place)[place])

    return acknowledge


WAYS = {"kernel": kernel, "sorted": in_python, "numpy partition": by_numpy}


@pytest.mark.parametrize("voters", VOTERS)
@pytest.mark.parametrize("way", WAYS)
def test_majority(benchmark: Any, way: str, voters: int) -> None:
    benchmark.group = f"majority of {voters}"
    acknowledge = WAYS[way](voters)
    offsets = [BASE - 1, BASE + voters // 2, BASE + 100]
    assert [acknowledge(offset) for offset in offsets] == [in_python(voters)(n) for n in offsets]
    benchmark(acknowledge, BASE + voters // 2)
