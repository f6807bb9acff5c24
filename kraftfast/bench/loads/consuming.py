"""How fast committed records are read, and how soon after their append they arrive.

The records of the second measurement hold the moment of their append (``CLOCK_MONOTONIC``, 8
bytes); a consumer in a process of its own, ``python -m kraftfast.bench.loads.consuming DIRECTORY
COUNT``, takes the time when it has each in its hands.
"""

from __future__ import annotations

import json
import queue
import sys
import threading
import time
from array import array
from contextlib import ExitStack
from functools import partial
from typing import Any

import numpy as np

import kraftfast
from kraftfast.bench import same_logs
from kraftfast.bench.children import BenchChild, wait_for_line
from kraftfast.bench.loads import load
from kraftfast.bench.loads.inputs import InputRows
from kraftfast.bench.loads.load import percentiles
from kraftfast.bench.loads.measurement import end_of
from kraftfast.bench.profiling import histograms
from kraftfast.errors import CorruptLog, KraftfastError

TIMEOUT_S = 120.0
STAMP_BYTES = 8
WARM_UP = 50
PAUSE_S = 0.001
"""Between a commit and the next append."""


def catch_up(quorum: Any, rows: InputRows, count: int) -> tuple[list[dict[str, Any]], str]:
    """Commit ``count`` records; return (a line for each way to read all of them, what is wrong).

    The ways only count what they read; whether all of it is what was appended is verified after.
    """
    first = end_of(quorum)
    with quorum.producer(record_bytes_max=rows.size) as producer:
        load.append_count(producer, rows, count)
    lines = [_read(quorum, first, count, rows.size, way) for way in ("batches", "records")]
    checker = partial(rows.checker, count)
    _, problem = same_logs.verify(quorum, first, end_of(quorum), checker)
    return [line | {"verified": not problem} for line in lines], problem


def _read(quorum: Any, first: int, records: int, size: int, way: str) -> dict[str, Any]:
    began, found = time.monotonic(), 0
    with quorum.consumer(from_offset=first, timeout=TIMEOUT_S) as consumer:
        if way == "batches":
            for batch in consumer.batches():
                if not batch.is_control:
                    if not batch.crc_ok():
                        raise CorruptLog(f"the batch at offset {batch.base_offset} is damaged")
                    found += batch.record_count
        else:
            for _ in consumer:
                found += 1
    took_s = time.monotonic() - began
    if found != records:
        raise KraftfastError(f"{found} records came back of {records}")
    return {
        "part": way,
        "records": found,
        "seconds": round(took_s, 3),
        "records_per_s": round(found / took_s, 1),
        "mb_per_s": round(found * size / took_s / 1e6, 1),
    }


def arrival(quorum: Any, where: str, seconds: float) -> dict[str, Any]:
    """Append a record now and then; return how long after its append each arrived, as a line.

    ``where``: what ``kraftfast.connect`` takes for this quorum. Raises KraftfastError where the
    consumer fails, TimedOut.
    """
    first = end_of(quorum)
    with ExitStack() as stack:
        child = BenchChild(stack, "kraftfast.bench.loads.consuming", where, str(first))
        child.wait_ready()
        with quorum.producer() as producer:
            count = _append_stamps(producer, seconds)
        child.say(str(count))
        told = child.told(TIMEOUT_S)
    return _arrival_line(np.array(told, np.int64)[WARM_UP:])


def _append_stamps(producer: Any, seconds: float) -> int:
    """Append records that hold the moment; return how many."""
    count, until = 0, time.monotonic() + seconds
    while count < WARM_UP + 2 or time.monotonic() < until:
        stamp = time.monotonic_ns().to_bytes(STAMP_BYTES, "big")
        producer.append_wait(stamp, timeout=TIMEOUT_S)
        count += 1
        time.sleep(PAUSE_S)
    return count


def _arrival_line(times_ns: Any) -> dict[str, Any]:
    us = times_ns / 1000
    quantiles = {"p50_us": 0.5, "p99_us": 0.99, "p999_us": 0.999, "max_us": 1.0}
    measured = {name: round(float(np.quantile(us, q)), 1) for name, q in quantiles.items()}
    histogram = histograms.encode(histograms.of_times(times_ns)) if histograms.installed() else None
    return {
        "part": "append to consumer",
        "records": len(us),
        **percentiles({"count": len(us)} | measured),
        "max_us": measured["max_us"],
        "histograms": histogram and {"arrival": histogram},
    }


def main(where: str, from_offset: int) -> None:
    """Consume, noting when each record comes; print the times once stdin says how many there were.

    A thread waits for that: this process ends with the one that started it.
    """
    took, counts = array("q"), queue.Queue[int]()
    with kraftfast.connect(where) as quorum:
        with quorum.consumer(from_offset=from_offset, follow=True) as consumer:
            threading.Thread(
                target=lambda: counts.put(int(wait_for_line(sys.stdin))), daemon=True
            ).start()
            while counts.empty() or len(took) < counts.queue[0]:
                if consumer.wait(0.2):
                    for record in consumer.read(1):
                        stamp = int.from_bytes(record.value or b"", "big")
                        took.append(time.monotonic_ns() - stamp)
    print(json.dumps(list(took)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
