"""A short endurance run, and that its observer sees what is wrong."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kraftfast.record.shapes import Record
from kraftfast.testing import QuorumUnderTest
from tests.endurance.__main__ import RECORD_BYTES, Run
from tests.endurance.observer import Observer, value_of

SECONDS = 12.0


@pytest.mark.processes
def test_some_seconds(tmp_path: Path) -> None:
    with QuorumUnderTest(tmp_path / "q", 3, kraft_version=1) as quorum:
        run = Run(quorum, random.randrange(1 << 32))
        run.go(SECONDS, 0.0)
        assert run.wrong == []
        assert run.observer.records > 100 and sum(run.faults.counts.values()) >= 1


def read(observer: Observer, *numbers: int, first_offset: int = 0) -> None:
    observer._note(
        Record(offset, 0, None, value_of("w", number, RECORD_BYTES))
        for offset, number in enumerate(numbers, first_offset)
    )


@pytest.mark.parametrize(
    "numbers, told, complaint",
    [
        ((0, 2), (), "1 was next"),
        ((0, 1, 1), (), "2 was next"),
        ((0, 1), ((0, (0, 5)),), "told 5, read at 1"),
        ((0,), ((0, (0, 1)),), "acknowledged, and not read"),
        ((0, 1), ((0, (0,)),), "not told"),
    ],
)
def test_what_is_wrong_is_told(
    numbers: tuple[int, ...], told: tuple[Any, ...], complaint: str
) -> None:
    for late in (False, True):
        quorum: Any = None
        observer = Observer(quorum, RECORD_BYTES)
        if late:
            read(observer, *numbers)
        for first, offsets in told:
            observer.acknowledged("w", first, offsets)
        if not late:
            read(observer, *numbers)
        observer.compare()
        assert any(complaint in each for each in observer.wrong), observer.wrong


def test_other_bytes_and_falling_offsets_are_told() -> None:
    quorum: Any = None
    observer = Observer(quorum, RECORD_BYTES)
    value = value_of("w", 0, RECORD_BYTES)
    observer._note([Record(7, 0, None, value[:-1] + b"~")])
    read(observer, 1, first_offset=7)
    assert any("other bytes" in each for each in observer.wrong)
    assert any("offset 7 came after 7" in each for each in observer.wrong)
