"""Whether two results differ: ratios with an interval, and a verdict where it allows one."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from kraftfast.bench.results.result import KEYS, Held, Result

RESAMPLES, CONFIDENCE = 10_000, 0.95
TOO_FEW, NOTHING = "too few repetitions", "nothing to divide by"
REPETITIONS_MIN = 5
"""Of fewer, an interval says nothing: the spread itself is not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One key of one measure. ``ratio``: the second median over the first, with its interval; None
    where there is nothing to divide by.

    ``verdict``: "better", "worse", "no difference shown", or why there is none.
    """

    measure: str
    key: str
    first: float
    second: float
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str

    def is_worse_by(self, percent: float) -> bool:
        """Return whether it is worse by more than that, and shown to be worse at all."""
        if self.ratio is None or self.verdict != "worse":
            return False
        times = 1 / max(self.ratio, 1e-12) if self.key == "records_per_s" else self.ratio
        return times > 1 + percent / 100

    @property
    def is_open(self) -> bool:
        """Return whether there is no verdict."""
        return self.verdict in (TOO_FEW, NOTHING)


def interval(first: list[float], second: list[float]) -> tuple[float, float]:
    """Return the bootstrap interval (percentile method) of the ratio of medians, second to first.

    The same values give the same interval. Efron and Tibshirani, An Introduction to the Bootstrap,
    chapter 13.
    """
    random = np.random.default_rng(2026)
    a, b = (
        np.median(random.choice(np.array(each, float), (RESAMPLES, len(each))), axis=1)
        for each in (first, second)
    )
    tail = (1 - CONFIDENCE) / 2
    low, high = np.quantile(b / a, (tail, 1 - tail))
    return float(low), float(high)


def verdict(key: str, low: float, high: float, repetitions: int) -> str:
    """Return what an interval says, of so many repetitions on the smaller side."""
    if repetitions < REPETITIONS_MIN:
        return TOO_FEW
    if low <= 1 <= high:
        return "no difference shown"
    return "better" if (low > 1) == (key == "records_per_s") else "worse"


def compare(
    first: Result, second: Result, pairs: list[tuple[str, str]] | None = None
) -> list[Comparison]:
    """Compare each measure that both have, or these pairs of names, by each key that both have."""
    found = []
    for one, other in _shared(first, second) if pairs is None else pairs:
        for key in KEYS:
            a, b = first.values(one, key), second.values(other, key)
            if a and b:
                found.append(_comparison(_name(one, other), key, a, b))
    return found


@dataclass(frozen=True, slots=True)
class Holding:
    """How often the two sides of a measure held its rate, where they differ in it."""

    measure: str
    first: Held
    second: Held

    def __str__(self) -> str:
        counts = (f"{held} of {tried}" for held, tried in (self.first, self.second))
        return f"{self.measure!r} was held in {' and '.join(counts)} repetitions"

    @property
    def is_worse(self) -> bool:
        """Return whether the second side held it less often."""
        return self.second[0] * self.first[1] < self.first[0] * self.second[1]


def holdings(
    first: Result, second: Result, pairs: list[tuple[str, str]] | None = None
) -> list[Holding]:
    """Return where the two sides differ in how often a rate was held.

    Times are those of the repetitions that held it, so a side that held it less often looks better
    than it is.
    """
    found = []
    for one, other in _shared(first, second) if pairs is None else pairs:
        a, b = first.held(one), second.held(other)
        if a is not None and b is not None and a[0] * b[1] != b[0] * a[1]:
            found.append(Holding(_name(one, other), a, b))
    return found


def _name(one: str, other: str) -> str:
    return one if one == other else f"{one} / {other}"


def _shared(first: Result, second: Result) -> list[tuple[str, str]]:
    return [(name, name) for name in first.measures if name in second.measures]


def missing(first: Result, second: Result, pairs: list[tuple[str, str]] | None = None) -> list[str]:
    """Return a line for each measure, and each key of one, that only one of the two has."""
    lines = []
    if pairs is None:
        for name in sorted({*first.measures} ^ {*second.measures}):
            lines.append(f"only the {_whose(name in first.measures)} has {name!r}")
    for one, other in _shared(first, second) if pairs is None else pairs:
        for key in KEYS:
            a, b = first.values(one, key), second.values(other, key)
            if bool(a) != bool(b):
                lines.append(f"only the {_whose(bool(a))} has {key} of {one!r}")
    return lines


def differences(first: Result, second: Result) -> list[str]:
    """Return what else differs between the two: the machine's facts, options, completeness."""
    lines = [
        f"{key}: {first.machine.get(key)!r} and {second.machine.get(key)!r}"
        for key in sorted({*first.machine} | {*second.machine})
        if first.machine.get(key) != second.machine.get(key)
    ]
    one, other = (_options(each) for each in (first, second))
    for name in sorted(one.keys() & other.keys()):
        if one[name] != other[name]:
            lines.append(f"options of {name!r}: {one[name]} and {other[name]}")
    for whose, each in (("first", first), ("second", second)):
        if not each.complete:
            lines.append(f"the {whose} was cut short")
    return lines


def _whose(of_first: bool) -> str:
    return "first" if of_first else "second"


def _options(result: Result) -> dict[str, Any]:
    found = result.plan.get("measure")
    tables = [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
    return {str(each.get("name", each.get("command"))): each for each in tables}


def _comparison(name: str, key: str, a: list[float], b: list[float]) -> Comparison:
    if not median(a) or not min(a):
        return Comparison(name, key, median(a), median(b), None, None, None, NOTHING)
    low, high = interval(a, b)
    told = verdict(key, low, high, min(len(a), len(b)))
    ratio = median(b) / median(a)
    return Comparison(name, key, median(a), median(b), ratio, low, high, told)
