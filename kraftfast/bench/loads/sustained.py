"""A long run by the second: how steady it is, and what it costs each process."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from kraftfast.bench.loads.looking import looking
from kraftfast.link.percentiles import quantile_us

LOOK_S = 1.0
RECORDS_PER_MILLION = 1e6
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
USER_AT, SYSTEM_AT, MINOR_FAULTS_AT, MAJOR_FAULTS_AT = 11, 12, 7, 9
"""Fields of ``/proc/PID/stat`` behind the command's name (proc(5): 14, 15, 10 and 12)."""
STEAL_AT = 8
"""Field of the first line of ``/proc/stat``, its name counted."""


@dataclass(frozen=True, slots=True)
class Second:
    """What was committed in one second. ``p999_us`` and ``max_us`` are those of its batches.

    ``elections``: epochs that began. ``flushes``: fdatasyncs of all logs.
    """

    at_s: float
    records_per_s: float
    batches: int
    p999_us: float | None
    max_us: float | None
    elections: int = 0
    flushes: int | None = None


@dataclass(frozen=True, slots=True)
class Cost:
    """What one process used while the clock ran. ``flushes``: fdatasyncs of the log."""

    name: str
    pid: int
    user_s: float
    system_s: float
    minor_faults: int
    major_faults: int
    switches: int
    """Context switches, of its own accord or not."""
    written_mb: float
    """Handed to the block layer, 10^6 bytes."""
    flushes: int = 0
    other_flushes: int = 0
    """Of prepared files, indexes, checkpoints and names."""

    def __sub__(self, before: Cost) -> Cost:
        pairs = [(getattr(self, name), getattr(before, name)) for name in COUNTED]
        return Cost(self.name, self.pid, *(round(now - then, 6) for now, then in pairs))


COUNTED = (
    "user_s",
    "system_s",
    "minor_faults",
    "major_faults",
    "switches",
    "written_mb",
    "flushes",
    "other_flushes",
)


def cost_of(name: str, pid: int, flushes: int = 0, other_flushes: int = 0) -> Cost:
    """Return what a process has used since its start. Raises OSError if it is gone."""
    with open(f"/proc/{pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    user_s, system_s = (int(fields[at]) / TICKS_PER_S for at in (USER_AT, SYSTEM_AT))
    with open(f"/proc/{pid}/io") as file:
        io = dict(line.split(": ") for line in file.read().splitlines())
    switches = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{thread}/status") as file:
                lines = [line for line in file if "ctxt_switches" in line]
        except OSError:
            continue  # the thread has ended
        switches += sum(int(line.split()[1]) for line in lines)
    return Cost(
        name,
        pid,
        user_s,
        system_s,
        int(fields[MINOR_FAULTS_AT]),
        int(fields[MAJOR_FAULTS_AT]),
        switches,
        int(io["write_bytes"]) / 1e6,
        flushes,
        other_flushes,
    )


def costs(quorum: Any) -> list[Cost]:
    """Return what each replica has used, by id, and this process last."""
    found = [
        cost_of(f"{status['role']} {id}", status["pid"], status["flushes"], status["other_flushes"])
        for id, status in sorted(quorum.statuses().items())
    ]
    return [*found, cost_of("producer", os.getpid())]


def costs_since(before: list[Cost], after: list[Cost]) -> list[Cost]:
    """Return what each process used meanwhile; one that was started again counts from 0."""
    earlier = {each.pid: each for each in before}
    nothing = [0.0] * len(COUNTED)
    return [
        each - earlier.get(each.pid, Cost(each.name, each.pid, *nothing))  # type: ignore[arg-type]
        for each in after
    ]


def cpu_s_per_million(used: list[Cost], records: int) -> float:
    """Return the seconds of CPU, of all processes, for each million records."""
    cpu_s = sum(each.user_s + each.system_s for each in used)
    return round(cpu_s / records * RECORDS_PER_MILLION, 4)


class SustainedTimeline:
    """Looks at a producer's latencies and at the high watermark once a second."""

    # producer: whose batches are timed. views: counters of every replica. seconds: what was seen.
    # _buckets, _watermark, _at: as of the last look.

    def __init__(self, producer: Any, views: list[Any]) -> None:
        self.producer, self.views = producer, views
        self.seconds: list[Second] = []

    @contextmanager
    def looking(self) -> Iterator[SustainedTimeline]:
        """Look while the ``with`` block runs."""
        self._began = self._at = time.perf_counter()
        self._buckets, self._watermark = self._counted(), self._committed()
        self._epoch, self._flushes = self._word("epoch"), self._all_flushes()
        with looking(self._look, LOOK_S, "kraftfast-timeline"):
            yield self

    def _look(self) -> None:
        now, buckets, watermark = time.perf_counter(), self._counted(), self._committed()
        epoch, flushes = max(self._epoch, self._word("epoch")), self._all_flushes()
        came = buckets - self._buckets
        rate = (watermark - self._watermark) / max(now - self._at, 1e-9)
        batches = int(came.sum())
        self.seconds.append(
            Second(
                round(now - self._began, 3),
                round(rate, 1),
                batches,
                quantile_us(came, 0.999),
                quantile_us(came, 1.0),
                epoch - self._epoch,
                max(0, flushes - self._flushes),
            )
        )
        self._buckets, self._watermark, self._at = buckets, watermark, now
        self._epoch, self._flushes = epoch, flushes

    def _counted(self) -> Any:
        return np.frombuffer(self.producer.latencies.commit_buckets(), np.uint64).astype(np.int64)

    def _committed(self) -> int:
        return self._word("high_watermark")

    def _word(self, name: str) -> int:
        """Return the highest of all replicas; a page is that of a process: one that was started
        again has another, which is not looked at."""
        return max(int(view[name]) for view in self.views)

    def _all_flushes(self) -> int:
        return sum(int(view["flushes"]) for view in self.views)


def machine_stolen_s() -> float:
    """Return how long the machine's processors were taken by the host of a guest, seconds."""
    with open("/proc/stat") as file:
        return int(file.readline().split()[STEAL_AT]) / TICKS_PER_S
