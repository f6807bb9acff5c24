"""The epoch trail against an oracle in plain Python."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast.core.trail import EpochTrail
from kraftfast.types import OffsetAndEpoch


class Oracle:
    """A log as a list of epochs, one per record; slow and obvious."""

    def __init__(self) -> None:
        self.epochs: list[int] = []
        self.empty_epoch: int | None = None  # assigned, without records so far

    def append(self, epoch: int, count: int) -> None:
        self.epochs += [epoch] * count
        self.empty_epoch = None if count else epoch

    def truncate(self, end: int) -> None:
        del self.epochs[end:]
        self.empty_epoch = None

    def entries(self) -> list[tuple[int, int]]:
        found: list[tuple[int, int]] = []
        for offset, epoch in enumerate(self.epochs):
            if not found or found[-1][0] != epoch:
                found.append((epoch, offset))
        if self.empty_epoch is not None and (not found or found[-1][0] != self.empty_epoch):
            found.append((self.empty_epoch, len(self.epochs)))
        return found

    def end_offset_for(self, epoch: int) -> OffsetAndEpoch:
        entries = self.entries()
        if not entries:
            return OffsetAndEpoch(len(self.epochs), 0)
        below = [each for each in entries if each[0] <= epoch]
        above = [each for each in entries if each[0] > epoch]
        if not above:
            return OffsetAndEpoch(len(self.epochs), entries[-1][0])
        if not below:
            return OffsetAndEpoch(entries[0][1], epoch)
        return OffsetAndEpoch(above[0][1], below[-1][0])


steps = st.lists(
    st.one_of(
        st.tuples(st.just("append"), st.integers(0, 3), st.integers(0, 4)),
        st.tuples(st.just("truncate"), st.integers(0, 30), st.just(0)),
    ),
    max_size=25,
)


@given(steps)
def test_against_the_oracle(moves: list[tuple[str, int, int]]) -> None:
    trail, oracle = EpochTrail(), Oracle()
    for move, number, count in moves:
        if move == "append":
            epoch = max(trail.last_epoch, oracle.epochs[-1] if oracle.epochs else 0) + number
            trail.assign(epoch, len(oracle.epochs))
            oracle.append(epoch, count)
        elif number < len(oracle.epochs):
            trail.truncate_to(number)
            oracle.truncate(number)
        end = len(oracle.epochs)
        assert list(trail.entries) == oracle.entries()
        assert len(trail) == len(oracle.entries())
        assert trail.last_epoch == (oracle.entries()[-1][0] if oracle.entries() else 0)
        for epoch in range(trail.last_epoch + 3):
            assert trail.end_offset_for(epoch, end) == oracle.end_offset_for(epoch)
        for offset in range(end):
            assert trail.epoch_at(offset) == oracle.epochs[offset]


def test_the_four_answers_of_kafka() -> None:
    trail = EpochTrail([(2, 3), (4, 7), (9, 20)])
    assert trail.end_offset_for(9, 30) == (30, 9), "the latest epoch ends with the log"
    assert trail.end_offset_for(12, 30) == (30, 9), "one above all is answered by the latest"
    assert trail.end_offset_for(1, 30) == (3, 1), "one below all ends where the first begins"
    assert trail.end_offset_for(6, 30) == (20, 4), "one in a gap by the largest below it"
    assert EpochTrail().end_offset_for(5, 0) == (0, 0)


def test_an_epoch_without_records_gives_way() -> None:
    trail = EpochTrail([(1, 0), (5, 10)])
    assert trail.assign(6, 10)
    assert trail.entries == ((1, 0), (6, 10))
    assert not trail.assign(6, 12), "an epoch keeps its start"
    assert trail.entries == ((1, 0), (6, 10))


# covers: testMonotonicEpochStartOffset
@pytest.mark.parametrize(("epoch", "start"), [(1, 12), (-1, 12), (2**31, 12), (7, -1)])
def test_what_cannot_be_is_refused(epoch: int, start: int) -> None:
    trail = EpochTrail([(1, 0), (5, 10)])
    with pytest.raises(ValueError):
        trail.assign(epoch, start)
    assert trail.entries == ((1, 0), (5, 10))


@pytest.mark.parametrize("entries", [[(5, 0), (5, 9)], [(5, 3), (6, 3)], [(5, 3), (4, 9)]])
def test_entries_ascend(entries: list[tuple[int, int]]) -> None:
    with pytest.raises(ValueError):
        EpochTrail(entries)


def test_cut_at_either_end() -> None:
    trail = EpochTrail([(1, 0), (5, 10), (7, 20)])
    trail.truncate_from_start(12)
    assert trail.entries == ((5, 12), (7, 20))
    assert trail.epoch_at(11) == -1
    trail.truncate_from_start(3)
    assert trail.entries == ((5, 12), (7, 20))
    trail.truncate_to(20)
    assert trail.entries == ((5, 12),)
    trail.truncate_to(0)
    assert trail.entries == ()


def test_many_epochs() -> None:
    trail = EpochTrail((epoch, epoch * 10) for epoch in range(100_000))
    assert trail.end_offset_for(70_000, 10**6) == (700_010, 70_000)
    assert trail.epoch_at(700_009) == 70_000
