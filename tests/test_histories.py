"""The checkers themselves: good histories pass, and each planted fault is found by its checker."""

from __future__ import annotations

import random
from collections.abc import Callable
from copy import deepcopy
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests import histories
from tests.histories import COMMITTED, FAILED, UNKNOWN, Append, Poll

History = tuple[list[Append], list[tuple[int, bytes]], list[Poll]]


def good_history(seed: int, producers: int = 3, records: int = 40) -> History:
    """A history that an honest log may produce, with failures and unknown outcomes among it."""
    random_ = random.Random(seed)
    appends: list[Append] = []
    log: list[tuple[int, bytes]] = []
    waiting: list[Append] = []
    sequences = dict.fromkeys((f"p{i}" for i in range(producers)), 0)
    now, offset = 0.0, 0
    for _ in range(records):
        now += random_.random()
        producer = random_.choice(sorted(sequences))
        sequence = sequences[producer]
        sequences[producer] += 1
        append = Append(producer, sequence, f"{producer}-{sequence}".encode(), now)
        appends.append(append)
        fate = random_.random()
        if fate < 0.1:
            append.outcome = FAILED
            continue
        if fate < 0.2:
            continue  # unknown, and not there
        log.append((offset, append.value))
        append.offset = offset
        offset += random_.choice((1, 1, 1, 2))  # control records have offsets too
        waiting.append(append)
        while waiting and random_.random() < 0.6:
            first = waiting.pop(0)
            now += 0.01
            first.acked = now
            first.outcome = COMMITTED if random_.random() < 0.9 else UNKNOWN
    polls, at = [], 0
    while at < len(log):
        size = random_.randint(1, 5)
        polls.append(Poll("c", now + at, now + at + 0.5, log[at : at + size]))
        at += size
    return appends, log, polls


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_good_histories_pass(seed: int) -> None:
    assert histories.check(*good_history(seed)) == []


def committed(history: History) -> list[Append]:
    return [append for append in history[0] if append.outcome == COMMITTED]


def lose(history: History) -> None:
    victim = committed(history)[3]
    history[1][:] = [record for record in history[1] if record[1] != victim.value]


def move(history: History) -> None:
    victim = committed(history)[3]
    victim.offset += 100


def change(history: History) -> None:
    offset, value = history[1][4]
    history[1][4] = (offset, value + b"!")


def invent(history: History) -> None:
    history[1].append((history[1][-1][0] + 1, b"nobody-1"))


def double(history: History) -> None:
    history[1].append((history[1][-1][0] + 1, history[1][2][1]))


def raise_the_dead(history: History) -> None:
    victim = next(append for append in history[0] if append.outcome == FAILED)
    history[1].append((history[1][-1][0] + 1, victim.value))


def swap_in_the_log(history: History) -> None:
    values = [value for _, value in history[1] if value.startswith(b"p0-")]
    places = [index for index, (_, value) in enumerate(history[1]) if value.startswith(b"p0-")]
    for index, value in zip(places, reversed(values), strict=True):
        history[1][index] = (history[1][index][0], value)


def acknowledge_before_its_time(history: History) -> None:
    late = committed(history)[-1]
    late.acked = 0.0  # and all the others were handed over after that


def slip_in_before_its_time(history: History) -> None:
    """Nobody was told of it; it stands below what was acknowledged before it was handed over."""
    late = committed(history)[2]
    late.outcome, late.acked, late.offset, late.invoked = UNKNOWN, -1.0, -1, 1e6


def share_an_offset(history: History) -> None:
    """Two records whose producers were told nothing."""
    offset = history[1][-1][0]
    for name in ("p8", "p9"):
        history[0].append(Append(name, 0, name.encode(), 1e6))
        offset += name == "p8"
        history[1].append((offset, name.encode()))


def say_the_same_twice(history: History) -> None:
    history[0].append(Append("p9", 0, history[0][-1].value, 1e6))


def read_what_is_cut(history: History) -> None:
    history[2][1].records[0] = (history[2][1].records[0][0], b"p9-9")


def read_twice(history: History) -> None:
    history[2].append(replace(history[2][-1], invoked=1e9, returned=1e9))


def read_over_one(history: History) -> None:
    del history[2][1].records[0]


def read_the_future(history: History) -> None:
    history[2].insert(0, Poll("early", -2.0, -1.0, [history[1][0]]))


PLANTED: list[tuple[Callable[[History], None], str]] = [
    (lose, "lost"),
    (move, "lost"),
    (change, "from nowhere"),
    (invent, "from nowhere"),
    (double, "twice"),
    (raise_the_dead, "after failure"),
    (swap_in_the_log, "reordered"),
    (acknowledge_before_its_time, "out of time"),
    (slip_in_before_its_time, "out of time"),
    (share_an_offset, "falling"),
    (say_the_same_twice, "alike"),
    (read_what_is_cut, "read and gone"),
    (read_twice, "went back"),
    (read_over_one, "skipped"),
    (read_the_future, "too early"),
]


@pytest.mark.parametrize(("plant", "kind"), PLANTED, ids=[plant.__name__ for plant, _ in PLANTED])
def test_planted_faults_are_found(plant: Callable[[History], None], kind: str) -> None:
    history = deepcopy(good_history(7))
    assert histories.check(*history) == []
    plant(history)
    assert any(text.startswith(kind) for text in histories.check(*history))


def test_equal_times_prove_nothing() -> None:
    """Acknowledged and handed over at the same instant: no order follows."""
    appends = [
        Append("a", 0, b"x", 0.0, COMMITTED, 1.0, 5),
        Append("b", 0, b"y", 1.0, COMMITTED, 2.0, 4),
    ]
    assert histories.unreal_time(appends) == []
    appends[1].invoked = 1.1
    assert len(histories.unreal_time(appends)) == 1
