"""Which commits were slow, where each spent its time, and what the disks did meanwhile."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from dataclasses import dataclass
from statistics import median
from typing import Any

from kraftfast.bench.profiling.timeline import NS_PER_US, Timeline, TimelineSlice

NS_PER_MS = 1_000_000
SHOWN_MAX = 20


@dataclass(frozen=True, slots=True)
class SlowCommit:
    """A batch from its first record (or where no producer is seen: from its ring) to its commit.

    ``stages``: its own, in the order in which they began. ``flushes``: of all replicas that ran in
    that time, with its records or without. ``usual_us``: the median of a process's flushes.
    """

    offset: int
    records: int
    began_ns: int
    ended_ns: int
    stages: list[TimelineSlice]
    flushes: list[TimelineSlice]
    usual_us: dict[str, float]

    @property
    def ms(self) -> float:
        return (self.ended_ns - self.began_ns) / NS_PER_MS

    def lines(self) -> list[str]:
        """Return what to print."""
        found = [f"offset {self.offset}, {self.records} records: {self.ms:.3f} ms"]
        found += [
            f"{self._at(each)}  {each.process:<10} {each.stage}{_peer(each)}"
            for each in self.stages
            if each.stage not in ("resolve", "flush")
        ]
        found += [
            f"{self._at(each)}  {each.process:<10} flush up to {each.offset}"
            f"{', without it' if self.holds(each) is False else ''}"
            f" (median {self.usual_us[each.process]:.0f} us)"
            for each in self.flushes
        ]
        return [found[0], *sorted(found[1:], key=lambda line: float(line.split()[0]))]

    def holds(self, flush: TimelineSlice) -> bool | None:
        """Return whether a flush had these records in it; None if their way into the log of that
        replica was not noted: it takes them over a socket."""
        noted = {each.process for each in self.stages if each.stage in ("append", "copy")}
        return self.offset in flush.bases if flush.process in noted else None

    def _at(self, each: TimelineSlice) -> str:
        return f"  {(each.began_ns - self.began_ns) / NS_PER_US:>10.1f} +{each.us:>9.1f} us"

    def as_dict(self) -> dict[str, Any]:
        """Return it for JSON; times in microseconds from its begin."""
        return {
            "offset": self.offset,
            "records": self.records,
            "ms": round(self.ms, 6),
            "stages": [self._span(each) for each in self.stages],
            "flushes": [
                self._span(each)
                | {
                    "up_to": each.offset,
                    "holds_it": self.holds(each),
                    "usual_us": round(self.usual_us[each.process], 3),
                }
                for each in self.flushes
            ],
        }

    def _span(self, each: TimelineSlice) -> dict[str, Any]:
        at_us = round((each.began_ns - self.began_ns) / NS_PER_US, 3)
        return {
            "process": each.process,
            "stage": each.stage,
            "at_us": at_us,
            "us": round(each.us, 3),
        }


def _peer(each: TimelineSlice) -> str:
    word = {"send": " to", "acknowledge": " of"}.get(each.stage)
    return f"{word} replica {each.peer}" if word else ""


def slow_commits(made: Timeline, least_ms: float) -> list[SlowCommit]:
    """Return the commits that took longer, the slowest first."""
    flushes: dict[str, list[TimelineSlice]] = defaultdict(list)
    for each in made.slices:
        if each.stage == "flush":
            flushes[each.process].append(each)
    usual_us = {name: median(each.us for each in found) for name, found in flushes.items()}
    for found in flushes.values():
        found.sort(key=lambda each: each.began_ns)
    slow = []
    for offset, stages in made.by_batch().items():
        span = _span(stages)
        if span is None or span[1] - span[0] <= least_ms * NS_PER_MS:
            continue
        meanwhile = [each for found in flushes.values() for each in _overlapping(found, *span)]
        records = next(each.records for each in stages if each.offset == offset)
        slow.append(SlowCommit(offset, records, *span, stages, meanwhile, usual_us))
    return sorted(slow, key=lambda each: (-each.ms, each.offset))


def _span(stages: list[TimelineSlice]) -> tuple[int, int] | None:
    """Return when a commit began and ended, ns; None if that was not seen."""
    for first, last in (("resolve", "resolve"), ("queue", "commit")):
        began = [each.began_ns for each in stages if each.stage == first]
        ended = [each.ended_ns for each in stages if each.stage == last]
        if began and ended:
            return min(began), max(ended)
    return None


def _overlapping(flushes: list[TimelineSlice], began_ns: int, ended_ns: int) -> list[TimelineSlice]:
    """Return those that ran between two times; a replica has one at a time, in this order."""
    first = bisect_right([each.ended_ns for each in flushes], began_ns)
    last = bisect_left([each.began_ns for each in flushes], ended_ns)
    return flushes[first:last]
