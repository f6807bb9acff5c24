"""Results with figures that are made up, for the tests of what is told of results."""

from __future__ import annotations

from typing import Any

from kraftfast.bench.results.result import Result, Run

COMMON = {"peer": "kraftfast", "sync": True, "voters": 3, "window": 32, "value_bytes": 100}
LOAD = [(1000.0, 100.0, True), (2000.0, 110.0, True), (3000.0, 900.0, True), (4000.0, 0.0, False)]
"""Records a second, microseconds of p99, and whether it was held."""
REPETITIONS = 6


def histogram(us: float, samples: int = 2000) -> str:
    """Return the text of a histogram of times about so many microseconds."""
    from kraftfast.bench.profiling.histograms import empty, encode

    made = empty()
    for number in range(samples):
        made.record_value(int(us * 1000 * (1 + number / samples)))
    return encode(made)


def line(mode: str, rate: float, **more: Any) -> dict[str, Any]:
    """Return a line of a command."""
    return COMMON | {"mode": mode, "records_per_s": rate, "p50_us": 100.0, "p99_us": 300.0} | more


def result(lines: dict[str, list[list[dict[str, Any]]]], **more: Any) -> Result:
    """Return a result: for each measure, for each repetition, the lines."""
    runs = [
        Run(name, number, "2026-01-01T00:00:01Z", 0.5, 0.0, found)
        for name, each in lines.items()
        for number, found in enumerate(each)
    ]
    settings: dict[str, Any] = {"plan": {}, "machine": {"cpu": "a cpu", "governor": None}}
    settings |= {"name": "made up", "began_at": "2026-01-01T00:00:00Z", "complete": True} | more
    return Result(runs=runs, **settings)


def repeated(mode: str, rate: float, **more: Any) -> list[list[dict[str, Any]]]:
    """Return repetitions of one line, each a little faster than the one before."""
    return [[line(mode, rate * (1 + turn / 100), **more)] for turn in range(REPETITIONS)]


def stages(**p50_us: float) -> list[dict[str, Any]]:
    """Return the stages of a line, of two replicas: the second takes twice as long."""
    return [
        {"name": name, "replica": replica, "count": 9, "p50_us": us * replica, "p99_us": None}
        for name, us in p50_us.items()
        for replica in (1, 2)
    ]


def timeline() -> list[dict[str, Any]]:
    """Return seconds with an election and flushes; the last one is too short to count."""
    return [
        {
            "at_s": at,
            "records_per_s": rate,
            "p999_us": 50.0,
            "elections": int(at == 2),
            "flushes": 7,
        }
        for at, rate in ((1.0, 10.0), (2.0, 20.0), (3.0, 30.0), (3.05, 9000.0))
    ]


def full(slower: float = 1.0, name: str = "throughput") -> Result:
    """Return a result with something of each kind."""
    found = {
        "floor": repeated("floor", 2e5, peer="floor"),
        name: repeated(
            "throughput", 1e5 / slower,
            stages=stages(queue=5, append=2, commit=90, callback=3, travel=20, follower_flush=60,
                          leader_flush=70),
            histograms={"commit": histogram(100), "stage queue": histogram(5)},
        ),
        "long": repeated("sustained", 9e4, window=16, timeline=timeline()),
        "load": [
            [line("load", rate, rate_wanted=rate, held=held, p50_us=p99 / 2 if held else None,
                  p99_us=p99 if held else None,
                  histograms={"response": histogram(p99), "service": histogram(50)} if held else {})
             for rate, p99, held in LOAD]
        ] * 2,
    }  # fmt: skip
    for window in (1, 2, 4, 8, 16):
        rate = 1000.0 * min(window, 4)
        found[f"window {window}"] = repeated("matrix", rate, window=window, value_bytes=7)
    measures = [{"name": name, "command": "throughput", "record-size": 100, "stages": True}]
    return result(found, plan={"measure": measures})
