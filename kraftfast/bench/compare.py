"""Whether two results differ: ratios with an interval, and a verdict where it allows one."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

import numpy as np

from kraftfast.bench.result import Result

KEYS = ("records_per_s", "p50_us", "p99_us", "p999_us", "cpu_s_per_million_records")
RESAMPLES, CONFIDENCE = 10_000, 0.95
REPETITIONS_MIN = 5
"""Of fewer, an interval says nothing: the spread itself is not known."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """One key of one measure. ``ratio``: the second median over the first, with its interval.

    ``verdict``: "better", "worse", "no difference shown", or "too few repetitions".
    """

    measure: str
    key: str
    first: float
    second: float
    ratio: float
    low: float
    high: float
    verdict: str

    def is_worse_by(self, percent: float) -> bool:
        """Return whether it is worse by more than that, and shown to be worse at all."""
        share = percent / 100
        beyond = self.ratio < 1 - share if self.key == "records_per_s" else self.ratio > 1 + share
        return self.verdict == "worse" and beyond


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
    low, high = np.quantile(b / np.maximum(a, 1e-12), (tail, 1 - tail))
    return float(low), float(high)


def verdict(key: str, low: float, high: float, repetitions: int) -> str:
    """Return what an interval says, of so many repetitions on the smaller side."""
    if repetitions < REPETITIONS_MIN:
        return "too few repetitions"
    if low <= 1 <= high:
        return "no difference shown"
    return "better" if (low > 1) == (key == "records_per_s") else "worse"


def compare(
    first: Result, second: Result, pairs: list[tuple[str, str]] | None = None
) -> list[Comparison]:
    """Compare each measure that both have, or these pairs of names, by each key that both have."""
    if pairs is None:
        pairs = [(name, name) for name in first.measures if name in second.measures]
    found = []
    for one, other in pairs:
        for key in KEYS:
            a, b = first.values(one, key), second.values(other, key)
            if a and b and median(a) > 0:
                found.append(_comparison(one if one == other else f"{one} / {other}", key, a, b))
    return found


def _comparison(name: str, key: str, a: list[float], b: list[float]) -> Comparison:
    low, high = interval(a, b)
    told = verdict(key, low, high, min(len(a), len(b)))
    ratio = median(b) / median(a)
    return Comparison(name, key, median(a), median(b), ratio, low, high, told)
