"""Many seeds, on all processors: what tests of a sweep share."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable
from typing import Any

from kraftfast.sim.pool import results


def sweep(seeds: Iterable[int], short: bool) -> list[dict[str, Any]]:
    """Run seeds; return their results in the order of the seeds.

    Where tests run on several processes already, this one is enough.
    """
    workers = 1 if "PYTEST_XDIST_WORKER" in os.environ else os.cpu_count() or 1
    found = results(iter(seeds), float("inf"), workers, False, short)
    return sorted(found, key=lambda result: result["seed"])


def check_none_failed(found: list[dict[str, Any]], options: str = "") -> None:
    """Name the command that shows each failure again."""
    failed = [
        f"python -m kraftfast.sim --seed {each['seed']}{options} --trace  # {each['violation']}"
        for each in found
        if not each["ok"]
    ]
    assert not failed


def check_not_idle(
    found: list[dict[str, Any]], at_least: dict[str, int], strikes: Iterable[str]
) -> None:
    """Check that enough happened, and that each of these faults struck."""
    total: Counter[str] = Counter()
    for each in found:
        total.update(each["counts"])
    idle = {what: total[what] for what, least in at_least.items() if total[what] < least}
    assert not idle, f"too little of these; all there was: {total}"
    never = [each for each in strikes if not total[each]]
    assert not never, f"faults that never strike: {never}"
