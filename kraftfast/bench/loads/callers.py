"""Callers that append a record each and wait for its commit, again and again, all at the same time.

Processes with a producer each, threads that share a producer, or asyncio tasks that share one.
"""

from __future__ import annotations

import asyncio
import base64
import threading
import time
from collections.abc import Callable
from typing import Any

from kraftfast.bench.loads.inputs import NUMBER_BYTES, InputRows
from kraftfast.bench.loads.load import TIMEOUT_S, WARM_UP_RECORDS, Latency, LoadRun

KINDS = ("processes", "threads", "tasks")
WINDOW = 64
"""Batches under way of a producer that callers share: as many as a program has by default."""


class Caller:
    """The records of one caller, which begin with their numbers. ``done``: so many were appended.

    ``tails``: the rest of each record, in a cycle.
    """

    def __init__(self, first_number: int, tails: list[bytes]) -> None:
        self.first_number, self.tails, self.done = first_number, tails, 0

    def next(self) -> bytes:
        """Return the next record."""
        at, self.done = self.done, self.done + 1
        return (self.first_number + at).to_bytes(NUMBER_BYTES, "big") + self.tails[
            at % len(self.tails)
        ]

    def is_at_end(self, end: int | None, deadline: float) -> bool:
        """Return whether ``end`` records were appended, or the time is over."""
        return self.done == end or time.perf_counter() >= deadline


def callers(rows: InputRows, first_numbers: list[int]) -> list[Caller]:
    """Return a caller for each first number; all have the same values."""
    tails = [row[NUMBER_BYTES:].tobytes() for row in rows.rows]
    return [Caller(first, tails) for first in first_numbers]


def warm_up_of(count: int) -> int:
    """Return how many records each of so many callers appends before the clock starts."""
    return max(1, WARM_UP_RECORDS // count)


def bounds_of(each: Caller, count: int | None, seconds: float | None) -> tuple[int | None, float]:
    """Return the number of records at which a caller ends, and the time: one of them is bounded."""
    end = None if count is None else each.done + count
    return end, float("inf") if seconds is None else time.perf_counter() + seconds


def alone(
    producer: Any,
    caller: Caller,
    warm_up: int,
    count: int | None,
    seconds: float | None,
    warm: Callable[[], object],
) -> LoadRun:
    """Append and wait, for ``count`` records or ``seconds``; ``warm``: called when the clock
    starts."""
    for _ in range(warm_up):
        producer.append_wait(caller.next(), timeout=TIMEOUT_S)
    producer.latencies.reset_latency()
    warm()
    began, first = time.perf_counter(), caller.done
    end, deadline = bounds_of(caller, count, seconds)
    while not caller.is_at_end(end, deadline):
        producer.append_wait(caller.next(), timeout=TIMEOUT_S)
    took, done = time.perf_counter() - began, caller.done - first
    size = NUMBER_BYTES + len(caller.tails[0])
    return LoadRun(done, done * size, took, Latency.of(producer), caller.done)


def with_threads(
    producer: Any, all_of_them: list[Caller], count: int | None, seconds: float | None
) -> LoadRun:
    """Have a thread for each caller, all on one producer; ``count``: of each."""
    for each in all_of_them:
        for _ in range(warm_up_of(len(all_of_them))):
            producer.append_wait(each.next(), timeout=TIMEOUT_S)
    producer.latencies.reset_latency()
    failures: list[BaseException] = []

    def call(each: Caller) -> None:
        try:
            end, deadline = bounds_of(each, count, seconds)
            while not each.is_at_end(end, deadline) and not failures:
                producer.append_wait(each.next(), timeout=TIMEOUT_S)
        except BaseException as error:  # noqa: BLE001 - raised below
            failures.append(error)

    threads = [threading.Thread(target=call, args=(each,), daemon=True) for each in all_of_them]
    first, began = sum(each.done for each in all_of_them), time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()  # an append ends by itself, within TIMEOUT_S
    took = time.perf_counter() - began
    if failures:
        raise failures[0]
    return _run_of(all_of_them, first, took, Latency.of(producer))


def with_tasks(
    quorum: Any,
    settings: dict[str, Any],
    all_of_them: list[Caller],
    count: int | None,
    seconds: float | None,
) -> tuple[LoadRun, dict[str, str]]:
    """Have an asyncio task for each caller, all on one producer; ``count``: of each.

    Returns the run, and what the producer has measured, as a process tells it.
    """
    return asyncio.run(_tasks(quorum, settings, all_of_them, count, seconds))


async def _tasks(
    quorum: Any,
    settings: dict[str, Any],
    all_of_them: list[Caller],
    count: int | None,
    seconds: float | None,
) -> tuple[LoadRun, dict[str, str]]:
    async with quorum.async_producer(**settings) as producer:
        for each in all_of_them:
            for _ in range(warm_up_of(len(all_of_them))):
                await producer.append_wait(each.next(), timeout=TIMEOUT_S)
        latencies = producer.producer.latencies
        latencies.reset_latency()

        async def call(each: Caller) -> None:
            end, deadline = bounds_of(each, count, seconds)
            while not each.is_at_end(end, deadline):
                await producer.append_wait(each.next(), timeout=TIMEOUT_S)

        first, began = sum(each.done for each in all_of_them), time.perf_counter()
        await asyncio.gather(*(call(each) for each in all_of_them))
        took = time.perf_counter() - began
        run = _run_of(all_of_them, first, took, Latency.of(producer.producer))
        return run, {"buckets": base64.b64encode(latencies.commit_buckets()).decode()}


def _run_of(all_of_them: list[Caller], first: int, took: float, latency: Latency) -> LoadRun:
    handed_over = sum(each.done for each in all_of_them)
    size = NUMBER_BYTES + len(all_of_them[0].tails[0])
    return LoadRun(handed_over - first, (handed_over - first) * size, took, latency, handed_over)
