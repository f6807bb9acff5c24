"""Several producers at once: what came back of each is checked, in its order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from kraftfast.bench.loads.inputs import InputRows
from kraftfast.bench.loads.producer_process import NUMBER_BITS, TogetherChecker

SIZE = 20


class Columns:
    """Records of one size as a reader hands them out."""

    def __init__(self, rows: Any) -> None:
        self.rows, self.values, self.null_count = rows, self, 0
        self.data = np.ascontiguousarray(rows).ravel()
        self.offsets = np.arange(len(rows) + 1) * SIZE

    def __len__(self) -> int:
        return len(self.rows)


def records(producer: int, start: int, count: int) -> Any:
    """What a producer appends."""
    rows = InputRows(None, SIZE, numbered=True, first_number=producer << NUMBER_BITS)
    found = [next(rows.chunks()).source.copy()[start : start + count]]
    return np.concatenate(found)


def check(*parts: Any) -> str:
    checker = TogetherChecker(SIZE, False, {0: 4, 1: 3})
    for part in parts:
        checker.take(Columns(part))
    return checker.finish()


WHOLE = np.concatenate([records(0, 0, 2), records(1, 0, 3), records(0, 2, 2)])


def test_in_any_order_of_producers() -> None:
    assert check(WHOLE) == check(WHOLE[:3], WHOLE[3:]) == ""


@pytest.mark.parametrize(
    "order",
    [
        [0, 1, 2, 3, 4, 5],  # the last one is missing
        [0, 1, 2, 3, 4, 6, 5],  # two of one producer have changed places
        [0, 1, 2, 3, 4, 5, 5, 6],  # one came twice
        [1, 2, 3, 4, 5, 6],  # the first one is missing
    ],
)
def test_what_is_lost_doubled_or_moved_is_found(order: list[int]) -> None:
    assert check(WHOLE[order])


def test_a_value_that_changed_and_an_unknown_producer_are_found() -> None:
    changed = WHOLE.copy()
    changed[3, -1] ^= 1
    assert check(changed)
    assert check(np.concatenate([WHOLE, records(2, 0, 1)]))
