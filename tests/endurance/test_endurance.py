"""A short endurance run, and that its observer sees what is wrong."""

from __future__ import annotations

import random
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import NoQuorum
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


def test_a_silence_that_lasts_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was shown as 0 s until a record came."""
    now = 1000.0
    monkeypatch.setattr("tests.endurance.observer.time.monotonic", lambda: now)
    quorum: Any = None
    observer = Observer(quorum, RECORD_BYTES)
    now += 70
    assert observer.silence() == 70.0
    now += 40
    observer.check_silence()
    assert observer.silence() == 110.0 and not observer.wrong
    read(observer, 0)
    now += 5
    read(observer, 1, first_offset=1)
    assert observer.silence() == 110.0, "the longest"
    assert observer.silence() == 0.0
    now += 130
    observer.check_silence()
    assert any("nothing for 130 s" in each for each in observer.wrong)


def test_a_silence_that_is_over_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody looks while a fault heals."""
    now = 1000.0
    monkeypatch.setattr("tests.endurance.observer.time.monotonic", lambda: now)
    quorum: Any = None
    observer = Observer(quorum, RECORD_BYTES)
    now += 125
    read(observer, 0)
    assert any("nothing for 125 s" in each for each in observer.wrong)


@pytest.mark.parametrize("failure", [AssertionError("not all came back"), NoQuorum("none leads")])
def test_a_fault_that_does_not_heal_is_a_finding(failure: Exception) -> None:
    """It ended the run, and what was found before was not said."""

    def unhealed() -> None:
        raise failure

    def no_leader(**_: Any) -> None:
        raise NoQuorum("none leads")

    quorum: Any = SimpleNamespace(directories={}, read_barrier=no_leader, verify=no_leader)
    run = Run(quorum, 1)
    run.faults.one = unhealed  # type: ignore[method-assign, assignment]
    quiet: Any = SimpleNamespace(
        start=lambda: None, is_alive=lambda: True, check_silence=lambda: None,
        finish=lambda *_: None, wrong=[], records=0,
    )  # fmt: skip
    run.observer, run.writers = quiet, []
    run.go(SECONDS, 0.0)
    assert str(failure) in run.wrong[0] and "none leads" in run.wrong[-1]
