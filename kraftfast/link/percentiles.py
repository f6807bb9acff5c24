"""Percentiles of a histogram of :mod:`kraftfast.link.stats`, for who shows or reports them."""

from __future__ import annotations

from typing import Any

import numpy as np

from kraftfast.link.stats import bucket_tops

TOPS_US = np.array(bucket_tops(), np.float64) / 1000
QUANTILES = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}


def quantile_us(counts: Any, quantile: float) -> float | None:
    """Return the time that so large a share of the counts by bucket does not exceed, microseconds.

    None of nothing. A time is that of its bucket's top: at most 1.6 % too long.
    """
    passed = np.cumsum(counts)
    total = int(passed[-1])
    if not total:
        return None
    at = int(np.searchsorted(passed, quantile * total * (1 - 1e-12)))
    return round(float(TOPS_US[min(at, len(TOPS_US) - 1)]), 1)
