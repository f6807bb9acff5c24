"""Blocking callers: each appends one record and waits until it is committed, again and again.

    python bench/callers.py --dir DIR [--seconds N] [--rounds N] [--record-size 100] [--callers 32]

Three voters, durable on a majority, everything prepared. By turns: one caller, so many processes
with a producer each, so many threads on one producer, so many asyncio tasks on one. Prints a JSON
line: records a second of each, and of the others over the one caller's, medians with their range.
Bars of 32 callers: 12 times for processes and threads, 20 times for tasks. Exit code 1: one missed.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import multiprocessing
import os
import shutil
import sys
import threading
import time
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Barrier
from statistics import median

import kraftfast
from kraftfast import LocalQuorum
from kraftfast.client.producer.producer import Producer

WAIT_S = 60.0
BARS = {"processes": 12.0, "threads": 12.0, "tasks": 20.0}


def call_for(producer: Producer, value: bytes, seconds: float) -> int:
    """Append and wait for ``seconds``; how many were committed."""
    done, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        producer.append_wait(value, timeout=WAIT_S)
        done += 1
    return done


def one(path: str, value: bytes, seconds: float, _callers: int) -> int:
    with kraftfast.connect(path) as quorum, quorum.producer() as producer:
        return call_for(producer, value, seconds)


def threads(path: str, value: bytes, seconds: float, callers: int) -> int:
    """Many threads on one producer."""
    done: list[int] = []
    with kraftfast.connect(path) as quorum, quorum.producer() as producer:
        running = [
            threading.Thread(target=lambda: done.append(call_for(producer, value, seconds)))
            for _ in range(callers)
        ]
        for each in running:
            each.start()
        for each in running:
            each.join()
    assert len(done) == callers, "a thread has failed"
    return sum(done)


def tasks(path: str, value: bytes, seconds: float, callers: int) -> int:
    """Many tasks on one asyncio producer."""

    async def run() -> int:
        with kraftfast.connect(path) as quorum:
            async with quorum.async_producer() as producer:

                async def call() -> int:
                    done, end = 0, time.monotonic() + seconds
                    while time.monotonic() < end:
                        await producer.append(value)
                        done += 1
                    return done

                return sum(await asyncio.gather(*(call() for _ in range(callers))))

    return asyncio.run(run())


def _process(path: str, value: bytes, seconds: float, begin: Barrier, counts: Queue[int]) -> None:
    with kraftfast.connect(path) as quorum, quorum.producer() as producer:
        begin.wait(WAIT_S)
        counts.put(call_for(producer, value, seconds))


def processes(path: str, value: bytes, seconds: float, callers: int) -> int:
    """Many processes with a producer each, which begin at once."""
    spawn = multiprocessing.get_context("spawn")
    begin, counts = spawn.Barrier(callers), spawn.Queue()
    running = [
        spawn.Process(target=_process, args=(path, value, seconds, begin, counts))
        for _ in range(callers)
    ]
    for each in running:
        each.start()
    done: int = sum(counts.get(timeout=2 * WAIT_S + seconds) for _ in running)
    for each in running:
        each.join(WAIT_S)
    return done


def measure(path: str, asked: argparse.Namespace) -> dict[str, list[float]]:
    """Return records a second of every round, by who calls."""
    value = b"v" * asked.record_size
    one(path, value, 0.5, 1)  # warm
    rates: dict[str, list[float]] = {}
    for _ in range(asked.rounds):
        for run in (one, processes, threads, tasks):
            done = run(path, value, asked.seconds, asked.callers)
            rates.setdefault(run.__name__, []).append(done / asked.seconds)
            print(f"{run.__name__}: {done / asked.seconds:,.0f}/s", file=sys.stderr)
    return rates


def spread(values: list[float], digits: int) -> dict[str, float]:
    """Return the median, the least and the largest."""
    named = {"median": median(values), "min": min(values), "max": max(values)}
    return {name: round(value, digits) for name, value in named.items()}


def main() -> int:
    """Exit code 1 if a bar was missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--dir", default="/var/tmp", help="on the disk to be measured [/var/tmp]")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each turn [3]")
    parser.add_argument("--rounds", type=int, default=3, help="[3]")
    parser.add_argument("--record-size", type=int, default=100, help="bytes of a value [100]")
    parser.add_argument("--callers", type=int, default=32, help="[32]")
    asked = parser.parse_args()
    place = os.path.join(asked.dir, f"kraftfast-callers-{os.getpid()}")
    try:
        with LocalQuorum(place, 3, prepare_bytes=256 << 20, timeout=120.0):
            rates = measure(place, asked)
    finally:
        shutil.rmtree(place, ignore_errors=True)
    ratios = {
        name: [many / alone for many, alone in zip(found, rates["one"])]
        for name, found in rates.items()
        if name != "one"
    }
    line = {
        "record_bytes": asked.record_size,
        "callers": asked.callers,
        "per_s": {name: spread(found, 0) for name, found in rates.items()},
        "of_one": {name: spread(found, 2) for name, found in ratios.items()},
    }
    print(json.dumps(line))
    return int(any(median(ratios[name]) < bar for name, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())
