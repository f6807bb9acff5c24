"""Appends at a rate that does not wait for what came before: what users who do not wait see.

Each record has a moment at which it is due, whatever became of those before it, and its response
time runs from that moment: a stall is paid by all the records that fell into it. (A closed loop
sends nothing meanwhile and counts one slow record: "coordinated omission".)
"""

from __future__ import annotations

import time
from array import array
from dataclasses import dataclass
from typing import Any

import numpy as np

from kraftfast.bench.loads.load import TIMEOUT_S, Latency, LoadRun, LoadSettling, percentiles
from kraftfast.errors import TimedOut
from kraftfast.link.percentiles import QUANTILES, quantile_us
from kraftfast.link.stats import bucket_tops

HELD = 0.97
"""Of the wanted rate: what commits less did not hold it,"""
GRACE_S = 0.1
"""unless all was committed so soon after its time: the last commit takes a while at any rate."""
SLEEP_LEAST_S = 50e-6
LOOK_S = 0.001
LATE_MAX = 1.2
"""Of the time for a rate: what was not handed over by then is not, the rate was not held."""
CHUNK_RECORDS = 1 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """What a rate came to.

    ``response``: the counts of the records by time, nanoseconds, from when each was due until the
    producer was told of its commit (of :func:`bucket_tops <kraftfast.link.stats.bucket_tops>`).
    ``late_us``: the 99th percentile of how late records were handed over, microseconds.
    ``seconds``: that it was asked for. ``sent_all``: they sufficed to hand all records over.
    """

    run: LoadRun
    wanted: float
    response: Any
    late_us: float
    seconds: float
    sent_all: bool

    @property
    def held(self) -> bool:
        """Return whether the rate was held."""
        in_time = self.run.seconds <= max(self.seconds / HELD, self.seconds + GRACE_S)
        return self.sent_all and in_time

    def line(self) -> dict[str, Any]:
        """Return the keys for the line of a result: no times for a rate that was not held."""
        times: dict[str, Any] = of_counts(self.response) if self.held else {}
        behind = 100 * (1 - self.run.records_per_s / self.wanted)
        service = {f"service_{key}": times and value for key, value in _service(self.run).items()}
        return {
            "rate_wanted": round(self.wanted, 1),
            "held": self.held,
            "behind_percent": 0.0 if self.held else round(behind, 1),
            **{key: times.get(key) for key in ("p50_us", "p99_us", "p999_us", "max_us")},
            **{key: value if self.held else None for key, value in service.items()},
            "late_p99_us": round(self.late_us, 1),
        }


def _service(run: LoadRun) -> dict[str, float | None]:
    latency = run.latency
    return {"p50_us": latency.p50_us, "p99_us": latency.p99_us, "p999_us": latency.p999_us}


def of_counts(counts: Any) -> dict[str, float | None]:
    """Return the percentiles of counts by bucket, microseconds."""
    measured: dict[str, Any] = {name: quantile_us(counts, q) for name, q in QUANTILES.items()}
    return {**percentiles({"count": int(counts.sum())} | measured), "max_us": measured["max_us"]}


class Commits:
    """When batches were told to be committed; ``note`` is given to ``Producer.on_commit``."""

    # at_ns: of each batch, in order. ends: the ticket behind its last record.

    def __init__(self) -> None:
        self.at_ns, self.ends = array("q"), array("q")

    def note(self, batch: Any) -> None:
        """Keep the moment of a batch; one that failed is left to ``LoadSettling``."""
        if batch.error is None:
            self.at_ns.append(time.perf_counter_ns())
            self.ends.append(batch.end_ticket)

    def clear(self) -> None:
        """Forget those so far."""
        del self.at_ns[:], self.ends[:]

    def wait(self, end: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until the commits of all tickets below ``end`` were told. Raises TimedOut."""
        deadline = time.monotonic() + timeout_s
        while not self.ends or self.ends[-1] < end:
            if time.monotonic() >= deadline:
                raise TimedOut(f"the producer was not told of all commits within {timeout_s:.0f} s")
            time.sleep(LOOK_S)

    def responses(self, first: int, count: int, began_ns: int, rate: float) -> Any:
        """Return how many of the records from ticket ``first`` on took how long since they were
        due, by bucket."""
        at, ends = np.array(self.at_ns, np.int64), np.array(self.ends, np.int64)
        tops = np.array(bucket_tops(), np.int64)
        counts = np.zeros(len(tops), np.int64)
        for start in range(0, count, CHUNK_RECORDS):
            numbers = np.arange(start, min(count, start + CHUNK_RECORDS))
            told_ns = at[np.searchsorted(ends, first + numbers, side="right")]
            took_ns = told_ns - (began_ns + (numbers / rate * 1e9).astype(np.int64))
            buckets = np.minimum(np.searchsorted(tops, took_ns), len(tops) - 1)
            counts += np.bincount(buckets, minlength=len(tops))
        return counts


def at_rate(
    producer: Any, commits: Commits, rows: Any, first_row: int, rate: float, seconds: float
) -> Step:
    """Append ``rate`` records a second for ``seconds``; raises what a failed record would.

    Records that have not been handed over a while after that time are left out.
    ``first_row``: of the cycle of ``rows``. ``commits``: notes what the producer is told.
    """
    cycle, count = rows.rows, max(1, round(rate * seconds))
    first, settling = producer.outcomes.next_ticket, LoadSettling(producer)
    commits.clear()
    producer.latencies.reset_latency()
    late, sent = array("q"), 0
    began_ns = time.perf_counter_ns()
    while sent < count:
        passed_ns = time.perf_counter_ns() - began_ns
        if passed_ns > LATE_MAX * seconds * 1e9:
            break
        due = min(count, int(passed_ns * rate / 1e9) + 1)
        if due <= sent:
            time.sleep(max(SLEEP_LEAST_S, sent / rate - passed_ns / 1e9))
            continue
        late.append(passed_ns - int(sent / rate * 1e9))
        at = (first_row + sent) % len(cycle)
        taken = min(due - sent, len(cycle) - at)
        producer.append_many_nowait(cycle[at : at + taken], timeout=TIMEOUT_S)
        sent += taken
    settling.finish()
    commits.wait(first + sent)
    took_s = max((commits.at_ns[-1] - began_ns) / 1e9, sent / rate)
    run = LoadRun(sent, sent * rows.size, took_s, Latency.of(producer), sent)
    response = commits.responses(first, sent, began_ns, rate)
    late_us = float(np.percentile(late, 99)) / 1000
    return Step(run, rate, response, late_us, seconds, sent == count)
