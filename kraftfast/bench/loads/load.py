"""Appends an input through a producer and watches the clock: all at once, or one after another."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

from kraftfast.bench.loads.inputs import Chunk, InputRows
from kraftfast.errors import KraftfastError, UnknownOutcome

WARM_UP_RECORDS = 200
CHECK_CLOCK_EVERY = 16
TIMEOUT_S = 60.0
SPANS_MAX = 8  # are told one by one


SAMPLES_MIN = {"p50_us": 2, "p99_us": 100, "p999_us": 1000}
"""Of so few samples a percentile is no other than the maximum: it is not reported below."""


def percentiles(measured: dict[str, float]) -> dict[str, float | None]:
    """Return the percentiles of a histogram that have enough samples, the others None.

    >>> percentiles({"count": 3, "p50_us": 1.0, "p99_us": 2.0, "p999_us": 2.0, "max_us": 2.0})
    {'p50_us': 1.0, 'p99_us': None, 'p999_us': None}
    """
    count = measured["count"]
    return {name: measured[name] if count >= n else None for name, n in SAMPLES_MIN.items()}


@dataclass(frozen=True, slots=True)
class Latency:
    """From handing over the first record of a batch to its commit, microseconds.

    A percentile is None if there were too few samples for it.
    """

    p50_us: float | None
    p99_us: float | None
    p999_us: float | None
    max_us: float
    samples: int

    @classmethod
    def of(cls, producer: Any) -> Latency:
        """Return what the producer has measured since its last reset, under any leader."""
        measured = producer.latencies.commit_latency()
        return cls(
            **percentiles(measured), max_us=measured["max_us"], samples=int(measured["count"])
        )


@dataclass(frozen=True, slots=True)
class LoadRun:
    """Records committed while the clock ran, and how long that took.

    ``handed_over`` counts those of the warm-up too.
    """

    records: int
    value_bytes: int
    seconds: float
    latency: Latency
    handed_over: int

    @property
    def records_per_s(self) -> float:
        return self.records / self.seconds if self.seconds else 0.0

    @property
    def megabytes_per_s(self) -> float:
        """Of values, 10^6 bytes."""
        return self.value_bytes / self.seconds / 1e6 if self.seconds else 0.0


class Spans:
    """Runs of numbers, in order: ``count`` of them, the first ``runs`` each by itself."""

    def __init__(self) -> None:
        self.count = 0
        self.runs: list[range] = []

    def add(self, run: range) -> None:
        """Add numbers behind all that are there."""
        self.count += len(run)
        if run and self.runs and self.runs[-1].stop == run.start:
            self.runs[-1] = range(self.runs[-1].start, run.stop)
        elif run and len(self.runs) < SPANS_MAX:
            self.runs.append(run)


class LoadSettling:
    """What becomes of the records that a producer is handed from now on.

    A producer remembers a bounded number of stretches of offsets, and beside other producers each
    batch may be one: :meth:`look` now and then, before the first ones are forgotten.

    ``committed``: so many are. ``first_offset``, ``last_offset``: of the first and the last of
    them, -1 until then. ``failure``: of the first record that failed, None if none has.
    ``refused``, ``in_doubt``: the failed ones that are in no log, and those that may be in it.
    """

    # _outcomes: the producer's. _seen: tickets below were looked at. _begin: of the first record.

    def __init__(self, producer: Any) -> None:
        self._producer, self._outcomes = producer, producer.outcomes
        self._begin = self._seen = int(producer.outcomes.next_ticket)
        self.committed, self.first_offset, self.last_offset = 0, -1, -1
        self.failure: KraftfastError | None = None
        self.refused, self.in_doubt = Spans(), Spans()

    @property
    def handed_over(self) -> int:
        """How many records the producer has taken."""
        return int(self._outcomes.next_ticket) - self._begin

    @property
    def unresolved(self) -> range:
        """The records, from 0, of which nothing was learnt yet."""
        return range(self._seen - self._begin, self.handed_over)

    def look(self) -> None:
        """Record what was resolved since the last look."""
        resolved = self._outcomes.resolved
        if resolved <= self._seen:
            return
        for first, end, base_offset, failure in self._outcomes.runs(self._seen, resolved):
            if failure is None:
                self.committed += end - first
                self.last_offset = base_offset + end - first - 1
                if self.first_offset < 0:
                    self.first_offset = base_offset
                continue
            spans = self.in_doubt if isinstance(failure, UnknownOutcome) else self.refused
            spans.add(range(first - self._begin, end - self._begin))
            self.failure = self.failure or failure
        self._seen = resolved

    def check(self) -> None:
        """Look, and raise the failure of the first record that has one."""
        self.look()
        if self.failure is not None:
            raise self.failure

    def finish(self, timeout: float = TIMEOUT_S) -> None:
        """Wait for everything handed over; raises the failure of the first record that has one."""
        self._producer.flush(timeout=timeout)
        self.check()


def append_all(
    producer: Any,
    chunks: Iterable[Chunk],
    progress: Callable[[int], None] | None = None,
    timeout: float = TIMEOUT_S,
    settling: LoadSettling | None = None,
) -> LoadRun:
    """Append everything and wait until it is committed; stop once a record is known to have failed.

    ``progress`` is called now and then with the number of records handed over; ``settling`` learns
    what becomes of them. Raises what
    :meth:`Producer.wait <kraftfast.client.producer.producer.Producer.wait>` would for a record that
    failed.
    """
    settling = settling or LoadSettling(producer)
    records = value_bytes = 0
    began = time.perf_counter()
    for chunk in chunks:
        producer.append_many_nowait(chunk.source, chunk.offsets, timeout=timeout)
        records += chunk.count
        value_bytes += chunk.value_bytes
        settling.check()
        if progress is not None:
            progress(records)
    settling.finish(timeout)
    seconds = time.perf_counter() - began
    return LoadRun(records, value_bytes, seconds, Latency.of(producer), records)


def throughput(
    producer: Any,
    rows: InputRows,
    count: int | None,
    seconds: float | None,
    meanwhile: AbstractContextManager[Any] | None = None,
    warm: Callable[[], object] | None = None,
    warm_up: int = 0,
) -> LoadRun:
    """Append as much as the window takes, for ``count`` records or ``seconds``.

    Whole chunks of at least ``warm_up`` records go before. ``meanwhile``: entered while the clock
    runs. ``warm``: called between the warm-up and that.
    """
    chunks = rows.chunks()
    before = append_all(producer, _at_least(chunks, warm_up))
    producer.latencies.reset_latency()
    if warm is not None:
        warm()
    with meanwhile or nullcontext():
        run = append_all(producer, _until(chunks, count, seconds))
    handed_over = before.records + run.records
    return LoadRun(run.records, run.value_bytes, run.seconds, run.latency, handed_over)


def append_count(producer: Any, rows: InputRows, count: int) -> None:
    """Append so many records as fast as the window takes them, and wait until all are committed."""
    append_all(producer, _until(rows.chunks(), count, None))


def _at_least(chunks: Iterable[Chunk], count: int) -> Iterable[Chunk]:
    for chunk in chunks:
        yield chunk
        count -= chunk.count
        if count <= 0:
            return


def _until(chunks: Iterable[Chunk], count: int | None, seconds: float | None) -> Iterable[Chunk]:
    deadline = None if seconds is None else time.perf_counter() + seconds
    left = count
    for chunk in chunks:
        if left is not None and chunk.count > left:
            rows = chunk.source[:left]
            chunk = Chunk(rows, None, left, rows.size)
        yield chunk
        if left is not None:
            left -= chunk.count
        if left == 0 or (deadline is not None and time.perf_counter() >= deadline):
            return


def one_outstanding(
    producer: Any,
    rows: InputRows,
    count: int | None,
    seconds: float | None,
    after: Callable[[int, float], None] | None = None,
) -> LoadRun:
    """Append one record after another, each committed before the next, for ``count`` or
    ``seconds``.

    ``after``: called with the number of each commit and the microseconds that it took.
    """
    values = [row.tobytes() for row in rows.rows[:4096]]
    cycle = len(rows.rows)
    append_wait, done = producer.append_wait, 0
    while done < WARM_UP_RECORDS:
        append_wait(_value(values, rows, done % cycle), timeout=TIMEOUT_S)
        done += 1
    producer.latencies.reset_latency()
    end = None if count is None else done + count
    began = time.perf_counter()
    deadline = None if seconds is None else began + seconds
    while done != end:
        value = _value(values, rows, done % cycle)
        handed_over = time.perf_counter() if after is not None else 0.0
        append_wait(value, timeout=TIMEOUT_S)
        done += 1
        if after is not None:
            after(done, (time.perf_counter() - handed_over) * 1e6)
        if (
            deadline is not None
            and done % CHECK_CLOCK_EVERY == 0
            and time.perf_counter() >= deadline
        ):
            break
    took = time.perf_counter() - began
    records = done - WARM_UP_RECORDS
    return LoadRun(records, records * rows.size, took, Latency.of(producer), done)


def _value(values: list[bytes], rows: InputRows, index: int) -> bytes:
    return values[index] if index < len(values) else rows.rows[index].tobytes()
