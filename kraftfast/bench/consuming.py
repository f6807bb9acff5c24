"""How fast committed records are read, and how soon after their append they arrive.

The records of the second measurement hold the moment of their append (``CLOCK_MONOTONIC``, 8
bytes); a consumer in a process of its own, ``python -m kraftfast.bench.consuming DIRECTORY COUNT``,
takes the time when it has each in its hands.
"""

from __future__ import annotations

import json
import queue
import subprocess
import sys
import threading
import time
from array import array
from typing import Any

import numpy as np

import kraftfast
from kraftfast.bench import histograms, load
from kraftfast.bench.inputs import Rows
from kraftfast.bench.load import percentiles
from kraftfast.bench.measurement import end_of
from kraftfast.errors import KraftfastError, TimedOut

TIMEOUT_S = 120.0
READY = "ready\n"
STAMP_BYTES = 8
WARM_UP = 50
PAUSE_S = 0.001
"""Between a commit and the next append."""


def catch_up(quorum: Any, rows: Rows, count: int) -> list[dict[str, Any]]:
    """Commit ``count`` records; return a line for each way to read all of them, from the first."""
    first = end_of(quorum)
    with quorum.producer(record_bytes_max=rows.size) as producer:
        records = load.throughput(producer, rows, count, None).handed_over
    return [_read(quorum, first, records, rows.size, way) for way in ("batches", "records")]


def _read(quorum: Any, first: int, records: int, size: int, way: str) -> dict[str, Any]:
    began, found = time.monotonic(), 0
    with quorum.consumer(from_offset=first, timeout=TIMEOUT_S) as consumer:
        if way == "batches":
            for batch in consumer.batches():
                if not batch.is_control:
                    assert batch.crc_ok()
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


def arrival(quorum: Any, path: str, seconds: float) -> dict[str, Any]:
    """Append a record now and then; return how long after its append each arrived, as a line.

    ``path``: of the quorum. Raises KraftfastError where the consumer fails, TimedOut.
    """
    first = end_of(quorum)
    command = [sys.executable, "-m", "kraftfast.bench.consuming", path, str(first)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            if process.stdout.readline() != READY:
                raise KraftfastError(f"the consumer failed: {_last_line(process)}")
            with quorum.producer() as producer:
                count = _append_stamps(producer, seconds)
            told, _ = process.communicate(str(count), timeout=TIMEOUT_S)
        except subprocess.TimeoutExpired:
            raise TimedOut(f"the consumer did not end within {TIMEOUT_S:.0f} s") from None
        finally:
            process.kill()
    if process.returncode:
        raise KraftfastError(f"the consumer failed with exit code {process.returncode}")
    return _arrival_line(np.array(json.loads(told), np.int64)[WARM_UP:])


def _last_line(process: subprocess.Popen[str]) -> str:
    process.kill()
    _, told = process.communicate(timeout=TIMEOUT_S)
    return (told.strip().splitlines() or ["it said nothing"])[-1]


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


def main(path: str, from_offset: int) -> None:
    """Consume, noting when each record comes; print the times once stdin says how many there were.

    A thread reads stdin: this process ends with the one that started it.
    """
    took, counts = array("q"), queue.Queue[int]()

    def wait_for_count() -> None:
        told = sys.stdin.readline()
        counts.put(int(told) if told.strip() else 0)

    with kraftfast.connect(path) as quorum:
        with quorum.consumer(from_offset=from_offset, follow=True) as consumer:
            print(READY, end="", flush=True)
            threading.Thread(target=wait_for_count, daemon=True).start()
            while counts.empty() or len(took) < counts.queue[0]:
                if consumer.wait(0.2):
                    for record in consumer.read(1):
                        stamp = int.from_bytes(record.value or b"", "big")
                        took.append(time.monotonic_ns() - stamp)
    print(json.dumps(list(took)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
