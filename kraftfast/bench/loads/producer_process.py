"""Several producers at once, a process each.

``python -m kraftfast.bench.loads.producer_process WHERE NUMBER`` is one of them.

Each record begins with its number, in whose upper bits the producer's own stands: what came back is
checked producer by producer, in the order in which each appended.
"""

from __future__ import annotations

import base64
import json
import os
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from typing import Any

import numpy as np

from kraftfast.bench.children import BenchChild, wait_for_line
from kraftfast.bench.loads import callers, load
from kraftfast.bench.loads.inputs import DIFFER, NUMBER_BYTES, Checker, InputRows
from kraftfast.bench.loads.load import Latency, LoadRun, percentiles
from kraftfast.bench.loads.open_loop import of_counts
from kraftfast.bench.loads.sustained import Cost, cost_of
from kraftfast.link.stats import bucket_tops

NUMBER_BITS = 40
TIMEOUT_S = 180.0
"""For the end of what was under way, behind the time for the load."""


class Together:
    """What several producers have measured, in the form in which one tells it."""

    def __init__(self, told: list[dict[str, Any]]) -> None:
        buckets = [np.frombuffer(base64.b64decode(each["buckets"]), np.uint64) for each in told]
        self.counts = sum(each.astype(np.int64) for each in buckets)
        self.latencies = self

    def commit_buckets(self) -> bytes:
        """Return the counts by bucket, 8 bytes each."""
        return bytes(np.asarray(self.counts, np.uint64).tobytes())

    def commit_latency(self) -> dict[str, float]:
        """Return count, mean_us, p50_us, p99_us, p999_us, max_us."""
        count = int(np.sum(self.counts))
        mean_us = float(np.dot(self.counts, bucket_tops())) / max(count, 1) / 1000
        measured = {key: value or 0.0 for key, value in of_counts(self.counts).items()}
        return {"count": count, "mean_us": mean_us} | measured

    def callback_latency(self) -> dict[str, float]:
        """Return that nothing is known of it."""
        return dict.fromkeys(("count", "mean_us", "p50_us", "p99_us", "p999_us", "max_us"), 0.0)


def append_together(
    where: str, producers: int, settings: dict[str, Any]
) -> tuple[LoadRun, Together, list[Cost], dict[int, int]]:
    """Have so many processes append at once to what ``kraftfast.connect(where)`` reaches.

    Returns the run, what was measured, what each process used, and how many records each handed
    over. ``settings``: as :func:`main` takes them; ``waits``: each record is waited for. The clock
    runs from when all of them are warm.
    Raises KraftfastError where one fails, TimedOut.
    """
    seconds = settings["seconds"] or 0.0
    with ExitStack() as stack:
        children = [
            BenchChild(
                stack,
                "kraftfast.bench.loads.producer_process",
                where,
                str(number),
                json.dumps(settings),
            )
            for number in range(producers)
        ]
        for child in children:
            child.wait_ready()
        for child in children:
            child.say("go")
        told = [child.told(seconds + TIMEOUT_S) for child in children]
    records = sum(each["records"] for each in told)
    seconds = max(each["ended"] for each in told) - min(each["began"] for each in told)
    handed_over = {number: each["handed_over"] for number, each in enumerate(told)}
    together = Together(told)
    measured = together.commit_latency()
    latency = Latency(
        **percentiles(measured), max_us=measured["max_us"], samples=int(measured["count"])
    )
    size = settings["record_size"]
    run = LoadRun(records, records * size, seconds, latency, sum(handed_over.values()))
    return run, together, [Cost(**each["cost"]) for each in told], handed_over


class TogetherChecker(Checker):
    """Checks what several producers appended: each record of each, once, in its order."""

    # done: records taken of each producer. problem: the first one met.

    def __init__(self, size: int, json: bool, handed_over: dict[int, int]) -> None:
        self.rows, self.handed_over = InputRows(None, size, json=json), handed_over
        self.done, self.problem = dict.fromkeys(handed_over, 0), ""

    def take(self, columns: Any) -> None:
        """Take the next records."""
        count, size, offsets = len(columns), self.rows.size, columns.values.offsets
        if self.problem:
            return
        fits = columns.values.null_count == 0 and bool((np.diff(offsets) == size).all())
        if fits:
            data = np.asarray(columns.values.data)[offsets[0] : offsets[-1]].reshape(count, size)
            fits = self._are_next(data)
        if not fits:
            at = sum(self.done.values())
            self.problem = DIFFER.format(at, at + count - 1)

    def _are_next(self, data: Any) -> bool:
        numbers = np.ascontiguousarray(data[:, :NUMBER_BYTES]).view(">u8").ravel().astype(np.int64)
        owners, indexes = numbers >> NUMBER_BITS, numbers & ((1 << NUMBER_BITS) - 1)
        for owner in np.unique(owners).tolist():
            own = indexes[owners == owner]
            first = self.done.get(owner)
            if first is None or not np.array_equal(own, np.arange(first, first + len(own))):
                return False
            self.done[owner] = first + len(own)
        cycle = self.rows.rows
        expected = cycle[indexes % len(cycle), NUMBER_BYTES:]
        return bool(np.array_equal(data[:, NUMBER_BYTES:], expected))

    def finish(self) -> str:
        """Return what is wrong, "" if nothing."""
        if not self.problem and self.done != self.handed_over:
            came, wanted = sum(self.done.values()), sum(self.handed_over.values())
            return f"{came} records came back of {wanted}"
        return self.problem


def main(where: str, number: int, settings: dict[str, Any]) -> None:
    """Append to a quorum once stdin says so; print what was measured."""
    import kraftfast

    rows = InputRows(
        None,
        settings["record_size"],
        numbered=True,
        first_number=number << NUMBER_BITS,
        json=settings["json"],
    )
    options = {key: settings[key] for key in ("batch_bytes", "window")}
    options |= {key: settings[key] for key in ("compression", "compression_level")}
    with (
        kraftfast.connect(where) as quorum,
        quorum.producer(record_bytes_max=rows.size, **options) as producer,
    ):
        began: list[float] = []
        spent: list[Cost] = []

        def warm() -> None:
            wait_for_line(sys.stdin)
            spent.append(cost_of("producer", os.getpid()))
            began.append(time.monotonic())

        bounds = settings["count"], settings["seconds"]
        if settings["waits"]:
            (caller,) = callers.callers(rows, [number << NUMBER_BITS])
            warm_up = callers.warm_up_of(settings["producers"])
            run = callers.alone(producer, caller, warm_up, *bounds, warm)
        else:
            run = load.throughput(producer, rows, *bounds, warm=warm)
        told = {
            "began": began[0],
            "ended": time.monotonic(),
            "records": run.records,
            "handed_over": run.handed_over,
            "cost": asdict(cost_of(f"producer {number}", os.getpid()) - spent[0]),
            "buckets": base64.b64encode(producer.latencies.commit_buckets()).decode(),
        }
    print(json.dumps(told))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]))
