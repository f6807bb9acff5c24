"""How long a quorum takes to open a log that is there: after a clean stop, after a kill, and from a
snapshot; and how long a consumer takes to find a record in it."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from kraftfast.bench import same_logs
from kraftfast.bench.loads import load, retained
from kraftfast.bench.loads.inputs import InputRows
from kraftfast.bench.loads.kept import Kept
from kraftfast.bench.loads.load import percentiles
from kraftfast.bench.loads.measurement import MIB, end_of
from kraftfast.errors import CorruptLog, TimedOut
from kraftfast.log.snapshots.snapshot_files import id_of

TIMEOUT_S = 600.0
SEEKS, SEED = 200, 2026
KEPT_RECORD_BYTES = 64 * 1024
SNAPSHOT_INTERVAL_MS = 1000
"""Short, so that every replica soon has a snapshot of all records."""
SNAPSHOT_TIMEOUT_S, PAUSE_S = 120.0, 0.05


def measure(
    start: Callable[..., Any], rows: InputRows, count: int, remembered: int = 0
) -> tuple[list[dict[str, Any]], str]:
    """Return (a line for each way to end, and one for seeks, what the verification found wrong or
    "").

    ``start``: starts a quorum in one and the same directory. Each time runs until a read barrier
    has passed: until then it is not known what is committed. That of the log without records is
    what processes and an election take. ``remembered``: so many producers append before.
    """
    with start():
        pass
    began = time.monotonic()
    with start() as quorum:
        lines = [_line("a clean stop without records", quorum, 0, began)]
        retained.append_once_each(quorum, remembered)
        first_offset = end_of(quorum)
        with quorum.producer(record_bytes_max=rows.size) as producer:
            load.append_count(producer, rows, count)
    size = count * rows.size

    def check(quorum: Any) -> str:
        checker = partial(rows.checker, count)
        return same_logs.verify(quorum, first_offset, end_of(quorum), checker)[1]

    began = time.monotonic()
    with start() as quorum:
        lines.append(_line("a clean stop", quorum, size, began))
        problem = check(quorum)
        if not problem:
            began = time.monotonic()
            for id in quorum.directories:
                quorum.kill(id)
            lines.append(_line("kill -9 of all replicas", quorum, size, began))
            problem = check(quorum)
        if not problem:
            lines.append(seek(quorum, first_offset, first_offset + count) | _log(size))
    return [line | {"verified": not problem} for line in lines], problem


def _line(after: str, quorum: Any, size: int, began: float) -> dict[str, Any]:
    quorum.read_barrier(timeout=TIMEOUT_S)
    took_s = time.monotonic() - began
    return {"part": f"after {after}", **_log(size), "took_s": round(took_s, 3)}


def _log(size: int) -> dict[str, float]:
    return {"log_mib": round(size / MIB, 1)}


def seek(quorum: Any, first_offset: int, end_offset: int) -> dict[str, Any]:
    """Return the time from asking for a consumer at a random offset to the record in hand.

    Raises CorruptLog where it is another one.
    """
    random, times_us = Random(SEED), []
    for _ in range(SEEKS):
        offset = random.randrange(first_offset, end_offset)
        began = time.perf_counter()
        with quorum.consumer(from_offset=offset, timeout=TIMEOUT_S) as consumer:
            record = next(iter(consumer), None)
            times_us.append((time.perf_counter() - began) * 1e6)
        if record is None or record.offset != offset:
            raise CorruptLog(f"a consumer that began at {offset} got another record first")
    found = dict(zip(("p50_us", "p99_us", "p999_us"), np.percentile(times_us, (50, 99, 99.9))))
    told = percentiles({"count": SEEKS, "max_us": max(times_us), **found})
    return {
        "part": "first record at a random offset",
        **{name: None if us is None else round(float(us), 1) for name, us in told.items()},
        "max_us": round(max(times_us), 1),
        "seeks": SEEKS,
    }


def from_snapshot(start: Callable[..., Any], mib: float) -> dict[str, Any]:
    """Return the time until every replica has loaded a state of so many MiB, after a clean stop.

    ``start``: takes settings of a quorum. Raises TimedOut where no snapshot is made in time.
    """
    rows = InputRows(None, KEPT_RECORD_BYTES)
    count = max(2, int(mib * MIB) // rows.size)
    with start(state_machine=Kept, snapshot_interval_ms=SNAPSHOT_INTERVAL_MS) as quorum:
        with quorum.producer(record_bytes_max=rows.size) as producer:
            load.append_count(producer, rows, count)
        _wait_snapshots(quorum, end_of(quorum))
    began = time.monotonic()
    with start(state_machine=Kept) as quorum:
        end = quorum.read_barrier(timeout=TIMEOUT_S)
        known = [quorum.query(id, at_least=end, timeout=TIMEOUT_S) for id in quorum.directories]
        took_s = time.monotonic() - began
    return {
        "part": "after a clean stop, from a snapshot",
        "snapshot_mib": round(count * rows.size / MIB, 1),
        "took_s": round(took_s, 3),
        "verified": known == [count] * len(known),
    }


def _wait_snapshots(quorum: Any, end_offset: int) -> None:
    """Wait until every replica has a snapshot of all below ``end_offset``. Raises TimedOut."""
    until = time.monotonic() + SNAPSHOT_TIMEOUT_S
    while not all(_snapshot_end(each) >= end_offset for each in quorum.directories.values()):
        if time.monotonic() >= until:
            raise TimedOut(f"no snapshot on every replica within {SNAPSHOT_TIMEOUT_S:.0f} s")
        time.sleep(PAUSE_S)


def _snapshot_end(directory: str) -> int:
    found = (id_of(path.name) for path in Path(directory).rglob("*.checkpoint"))
    return max((each.offset for each in found if each is not None), default=0)
