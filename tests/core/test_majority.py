"""The high watermark's arithmetic against an oracle in plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast import limits
from kraftfast.core.replication.majority import Acknowledged

offsets = st.lists(st.integers(-1, 30), min_size=1, max_size=limits.VOTERS_MAX)


def table(values: list[int]) -> Acknowledged:
    acknowledged = Acknowledged(range(len(values)))
    for voter_id, value in enumerate(values):
        acknowledged.put(acknowledged.slot(voter_id), value)
    return acknowledged


def reached_by(values: list[int], needed: int) -> int:
    """The largest offset that at least so many have reached, by trying them all."""
    if needed <= 0:
        return 2**63 - 1
    fits = [v for v in values if sum(1 for other in values if other >= v) >= needed]
    return max(fits, default=-1) if needed <= len(values) else -1


@given(offsets)
def test_majority_and_all(values: list[int]) -> None:
    it = table(values)
    assert it.by_majority() == reached_by(values, len(values) // 2 + 1)
    assert it.by_majority() == sorted(values, reverse=True)[len(values) // 2]  # Kafka's way
    assert it.by_all() == min(values)


@given(offsets, st.integers(-1, 70), st.data())
def test_others(values: list[int], needed: int, data: st.DataObject) -> None:
    slot = data.draw(st.integers(-1, len(values) - 1))
    others = [value for i, value in enumerate(values) if i != slot]
    assert table(values).by_others(slot, needed) == reached_by(others, needed)


def test_slots_are_the_order_of_ids() -> None:
    it = Acknowledged([7, 3, 5])
    assert it.voter_ids == (3, 5, 7) and len(it) == 3
    assert [it.slot(id) for id in (3, 5, 7, 4)] == [0, 1, 2, -1]
    it.put(1, 9)
    assert it.get(1) == 9 and it.get(0) == -1
    assert repr(it) == "Acknowledged({3: -1, 5: 9, 7: -1})"


def test_bounds() -> None:
    for slot in (-1, 3):
        with pytest.raises(IndexError):
            Acknowledged([1, 2, 3]).put(slot, 1)
        with pytest.raises(IndexError):
            Acknowledged([1, 2, 3]).get(slot)
    with pytest.raises(ValueError):
        Acknowledged(range(limits.VOTERS_MAX + 1))
    with pytest.raises(ValueError):
        Acknowledged([1, 1])
    assert Acknowledged([]).by_majority() == -1
