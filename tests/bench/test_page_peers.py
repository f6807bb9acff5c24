"""What a page says of other logs beside kraftfast."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.bench.page import Page
from kraftfast.bench.page.drawing import inline, is_installed
from kraftfast.bench.page.parts import Section
from kraftfast.bench.results.result import Result, Run

FLUSHED = {"sync": True, "fsync": "fdatasync, grouped", "survives": "a power cut of all voters"}
NOT_FLUSHED = {"sync": False, "fsync": "none", "survives": "the loss of one voter"}
TURNS = (1.0, 0.5, 2.0)


def line(peer: str, mode: str, rate: float, **more: Any) -> dict[str, Any]:
    """Return a line of a driver: it is the faster, the less a record takes."""
    size = 100 if mode == "latency" else 1024
    shown = {"peer": peer, "version": "v1", "mode": mode, "value_bytes": size, "window": 1}
    return (
        shown | FLUSHED | {"records_per_s": rate, "p50_us": 1e6 / rate, "p99_us": 9e6 / rate} | more
    )


def result(*lines: dict[str, Any], **failures: str) -> Result:
    """Return a result in which each line stands for three repetitions."""
    runs = []
    for each in lines:
        for number, turn in enumerate(TURNS):
            known = {"records_per_s": each["records_per_s"] * turn}
            name = f"{each['peer']}, {each.get('mode', 'latency')}"
            runs.append(Run(name, number, "", 1.0, 0.0, [each | known]))
    return Result("peers", "", {}, {}, runs, True, failures)


def section(*found: Result) -> Section | None:
    """Return the section on others, if the page has one."""
    page = Page([(each.name, each) for each in found])
    return next((each for each in page.sections if each.title == "Beside others"), None)


def test_the_best_of_both_is_told_by_work() -> None:
    found = section(
        result(
            line("kraftfast", "latency", 2000),
            line("etcd", "latency", 1000),
            line("other", "latency", 500),
            line("kraftfast", "throughput", 30000),
            line("etcd", "throughput", 20000),
            line("other", "throughput", 25000),
        )
    )
    assert found is not None
    assert found.texts[1:] == [
        "100 B, one outstanding: kraftfast has 500 µs, 0.5 times that time (p50). Of the others "
        "that flush before they acknowledge, the best is etcd v1 with 1 ms.",
        "1 KiB, many outstanding: kraftfast has 30,000 records/s, 1.2 times that rate. Of the "
        "others that flush before they acknowledge, the best is other v1 with 25,000 records/s.",
    ]
    rows = [(row[0], row[4]) for row in found.tables[0].rows]
    assert rows[:3] == [(name, "100 B, one outstanding") for name in ("kraftfast", "etcd", "other")]
    assert found.tables[0].rows[0][5] == "2,000 (1,000–4,000)"
    assert len(found.pictures) == 2 and len(found.commands) == 6


def test_what_flushes_nothing_is_not_held_against_what_flushes() -> None:
    found = section(
        result(
            line("kraftfast", "latency", 100),
            line("fast", "latency", 9000, **NOT_FLUSHED),
            line("slow", "latency", 50),
        )
    )
    assert found is not None and "the best is slow" in found.texts[1]
    assert [row[2] for row in found.tables[0].rows] == ["none", *["fdatasync, grouped"] * 2]
    alone = section(result(line("kraftfast", "latency", 100),
                           line("fast", "latency", 9000, **NOT_FLUSHED)))  # fmt: skip
    assert alone is not None and len(alone.texts) == 1, "nothing to compare it with"


def test_ours_alone_are_no_section() -> None:
    floor = line("floor", "latency", 100)
    del floor["mode"]
    assert section(result(line("kraftfast", "latency", 5), floor)) is None
    found = section(result(line("kraftfast", "latency", 5), floor, line("x", "latency", 1)))
    assert found is not None and found.tables[0].rows[0][0] == "floor"


def test_what_is_missing_is_noted() -> None:
    found = section(result(line("kraftfast", "latency", 5), **{"etcd, latency": "it needs Go"}))
    assert found is not None and found.notes == ["Not measured: it needs Go"]
    assert not found.tables and not found.pictures


def test_pictures_are_drawn_whatever_a_line_holds() -> None:
    if not is_installed():
        pytest.skip("matplotlib is not installed")
    odd = line("odd", "throughput", 1e12, p99_us=None, fsync=["x"], version=None, **{"window": {}})
    bare = {"peer": "bare", "mode": "latency", "value_bytes": None, "records_per_s": 1.0}
    found = section(
        result(odd, line("kraftfast", "throughput", 1.0), bare | {"p50_us": 0.0}),
        result(line("etcd", "latency", 5, **NOT_FLUSHED)),
    )
    assert found is not None
    drawn = [inline(each) for each in found.pictures]
    assert len(drawn) == 3 and all("<svg" in each for each in drawn)
    assert any("etcd: none [B]" in each for each in drawn)
