"""The page on results: what it says, and what it says only where the results have it."""

from __future__ import annotations

import doctest
import sys
from typing import Any

import pytest

from kraftfast.bench.page import Page, of_scaling, of_stages, texts
from kraftfast.bench.page.drawing import MISSING
from kraftfast.bench.page.of_load import LoadStep, Lost, Steps
from kraftfast.bench.page.parts import Section, entries
from kraftfast.bench.page.result_lines import number, timeline
from kraftfast.bench.results.result import Result
from tests.bench import results
from tests.bench.results import full, line, repeated, result

pytest.importorskip("hdrh")


def sections(*found: Result) -> dict[str, Section]:
    """Return the sections of a page, by title."""
    return {each.title: each for each in Page([(each.name, each) for each in found]).sections}


def test_the_examples_of_docstrings() -> None:
    for module in (texts, of_scaling):
        done = doctest.testmod(module)
        assert done.attempted and not done.failed


def test_every_kind_of_result_has_its_section() -> None:
    assert list(sections(full(), full(2.0))) == [
        "Summary", "Records a second", "From A to B", "Share of the floor",
        "Latency by percentile", "Stages by percentile", "Throughput against latency",
        "Stages of a commit", "By the second", "By window", "Machine",
    ]  # fmt: skip


def test_what_a_result_lacks_has_none() -> None:
    assert list(sections(result({"a": repeated("throughput", 5.0)}))) == [
        "Summary", "Records a second", "Machine",
    ]  # fmt: skip
    nothing = sections(result({}))
    assert list(nothing) == ["Summary", "Machine"]
    assert nothing["Summary"].texts == ["Nothing has been measured yet."]


def test_a_section_names_its_commands() -> None:
    found = sections(full())
    assert found["Stages of a commit"].commands == [
        "kraftfast bench throughput --json --record-size 100 --stages"
    ]
    assert found["By the second"].commands == [
        "long: the plan in the result does not name its command"
    ]
    both = sections(full(), full())
    assert both["From A to B"].commands[0] == "kraftfast bench compare 'made up' 'made up'"


def test_medians_and_ranges() -> None:
    (table,) = sections(result({"a": repeated("throughput", 100.0)}))["Summary"].tables
    assert table.rows == [["a", "102 (100–105)", "100", "300", "-", "-", "6"]]


def rate(held: list[bool]) -> list[list[dict[str, Any]]]:
    """Return repetitions of a rate: held or not."""
    lost = {"p50_us": None, "p99_us": None}
    return [[line("load", 5.0, held=each) | ({} if each else lost)] for each in held]


def test_a_rate_that_was_not_always_held_is_told() -> None:
    found = {"a": rate([True] * 3 + [False]), "b": rate([True, False]), "c": rate([True])}
    (table,) = sections(result(found))["Summary"].tables
    assert [[row[2], row[-1]] for row in table.rows] == [
        ["100", "held in 3 of 4"], ["-", "held in 1 of 2"], ["100", "1"],
    ]  # fmt: skip
    assert "where most did not, there are none" in sections(result(found))["Summary"].texts[0]
    one, other = result({"a": rate([True] * 10)}), result({"a": rate([True, False] * 5)})
    told = sections(one, other)["From A to B"]
    assert "'a' was held in 10 of 10 and 5 of 10 repetitions." in told.texts[-1]
    assert not any("No difference" in each for each in told.texts)
    assert any(each.startswith("only the first has p50_us of 'a'") for each in told.notes)


def test_an_idle_quorum_has_its_own_column() -> None:
    idle = result({"idle": [[{"mode": "idle", "core_percent": 2.5}]], "c": rate([True])})
    (table,) = sections(idle)["Summary"].tables
    assert table.head[-2] == "% of a processor" and table.rows[0][-2] == "2.5"


def test_facts_that_differ_are_named() -> None:
    one, other = result({}), result({}, machine={"cpu": "b"}, complete=False)
    notes = sections(one, other)["Machine"].notes
    assert "A and B are not the same: cpu: 'a cpu' and 'b'" in notes
    assert "A and B are not the same: the second was cut short" in notes
    assert sections(one)["Machine"].tables[1].rows == [["cpu", "a cpu"], ["governor", "-"]]


def test_before_and_after() -> None:
    found = sections(full(), full(2.0))["From A to B"]
    assert "Shown: 'throughput' records/s worse." in found.texts
    row = next(row for row in found.tables[0].rows if row[:2] == ["throughput", "records/s"])
    assert row[4] == "0.500" and row[6] == "worse"
    assert "No difference is shown." in sections(full(), full())["From A to B"].texts


def test_only_the_same_work_is_held_beside_the_floor() -> None:
    found = sections(full())["Share of the floor"]
    assert [row[0] for row in found.tables[0].rows] == ["throughput"]
    assert found.tables[0].rows[0][3] == "50 %"


def test_the_knee_is_where_the_latency_begins_to_grow() -> None:
    found = sections(full())["Throughput against latency"]
    assert "knee of 'load' is at 2,000 records/s, with a p99 of " in found.texts[1]
    assert "4,000/s was not held: it came to 4,000/s" in found.texts[1]
    names = [each.name for each in found.pictures]
    assert names == ["load-1", "load-response-1-1", "load-service-1-1"]


def test_a_rate_that_was_not_held_has_no_knee() -> None:
    steps = [LoadStep(1.0, 1.0, 1.0, 2.0, {}), LoadStep(9.0, 9.0, 4.0, 5.0, {})]
    assert Steps("a", steps, [], []).knee == steps[1]
    assert Steps("a", [], [Lost(5.0, 3.0)], []).knee is None
    lost = [line("load", 5.0, rate_wanted=each, held=False) for each in (6.0, 7.0)]
    told = sections(result({"a": [lost]}))["Throughput against latency"].texts
    assert "'a' held none of its rates, so it has no knee." in told


def test_rates_that_differ_between_repetitions_go_by_their_place() -> None:
    def run(most: float) -> list[dict[str, Any]]:
        return [line("load", most * s, rate_wanted=most * s, held=True) for s in (0.5, 1)]

    told = sections(result({"a": [run(100.0), run(110.0), run(120.0)]}))
    assert "at 110 records/s" in told["Throughput against latency"].texts[1]


def test_a_rate_is_held_where_most_repetitions_held_it() -> None:
    def run(*held: bool) -> list[dict[str, Any]]:
        return [
            line("load", rate, rate_wanted=rate, held=each, part=f"{rate} %",
                 **{} if each else {"p50_us": None, "p99_us": None})
            for rate, each in zip((10.0, 20.0), held)
        ]  # fmt: skip

    found = sections(result({"a": [run(True, False), run(False, False), run(True, True)]}))
    told = found["Throughput against latency"].texts[1]
    assert "Not every repetition held its rate: 10/s in 2 of 3 did." in told
    assert "20/s was not held: it came to 20/s." in told


def test_a_part_of_a_measure_is_a_measure() -> None:
    lines = [line("consume", 1.0, part="batches"), line("consume", 9.0, part="records")]
    plan = {"measure": [{"name": "a", "command": "throughput", "window": 3}]}
    found = sections(result({"a": [lines] * 2}, plan=plan))["Summary"]
    assert [row[:2] for row in found.tables[0].rows] == [["a: batches", "1"], ["a: records", "9"]]
    assert found.commands == ["kraftfast bench throughput --json --window 3"]


def test_lists_of_a_plan_are_combined() -> None:
    plan = {"measure": [{"command": "latency", "voters": [1, 3], "record-size": [5]}]}
    found = result({"latency voters=3 record-size=5": repeated("latency", 1.0)}, plan=plan)
    assert sections(found)["Summary"].commands == [
        "kraftfast bench latency --json --voters 3 --record-size 5"
    ]


def test_of_the_stages_the_faster_replica_counts() -> None:
    found = sections(full())["Stages of a commit"]
    shown = {row[1]: row[3] for row in found.tables[0].rows}
    assert list(shown) == list(of_stages.ORDER)
    assert shown["travel"] == "20" and shown["follower_flush"] == "60"
    assert "goes into 'commit' (in the leader's log -> committed): 90 µs." in found.texts[1]


def test_a_part_of_a_second_does_not_count() -> None:
    looks = timeline({"timeline": results.timeline()})
    assert [look.records_per_s for look in looks] == [10.0, 20.0, 30.0]
    told = " ".join(sections(full())["By the second"].texts)
    assert "10 to 30 records/s, 20 in the median" in told and "elections (6)" in told


def test_a_line_bends_where_it_bends_most() -> None:
    (told,) = sections(full())["By window"].texts[1:]
    assert "1,025 records/s at window 1, 4,100 records/s at 16" in told
    assert "bends at 4: up to there each doubling makes it 2.00 times" in told
    straight = {str(n): repeated("throughput", 10.0 * n, window=n) for n in (1, 2, 4)}
    assert (
        "does not bend: each doubling makes it 2.00"
        in sections(result(straight))["By window"].texts[1]
    )


def test_a_line_holds_only_what_differs_in_one_option() -> None:
    mixed = {
        f"{window} {size}": repeated("throughput", 5.0, window=window, value_bytes=size)
        for window in (1, 2, 4)
        for size in (16, 2048)
    }
    (entry,) = entries([("a", result(mixed))])
    lines = list(of_scaling.lines_of(entry, "window"))
    assert [each.label for each in lines] == ["record size 16 B", "record size 2 KiB"]
    assert all(each.xs == [1, 2, 4] for each in lines)
    assert not list(of_scaling.lines_of(entry, "value_bytes")), "two points are no line"


def test_a_damaged_histogram_is_named_and_the_others_are_drawn() -> None:
    broken, whole = {"commit": "AAAA"}, {"commit": results.histogram(10)}
    lines = [[line("throughput", 1.0, histograms=each)] for each in (broken, whole)]
    page = Page([("a", result({"a": lines}))])
    (told,) = page.told
    assert told.startswith("left out: the histogram of a, commit: ")
    assert "percentiles-1" in [each.name for each in page.pictures]


JUNK = (
    None,
    True,
    -1,
    1e300,
    float("nan"),
    10**400,
    "text",
    [],
    {},
    [1, None, []],
    {"a": {}},
    "🦀",
)


@pytest.mark.parametrize("junk", JUNK, ids=lambda junk: repr(junk)[:12])
def test_no_value_of_a_line_can_break_a_page(junk: Any) -> None:
    keys = (
        "mode",
        "peer",
        "stages",
        "timeline",
        "histograms",
        "window",
        "voters",
        "held",
        "sync",
        "part",
    )
    lines = [line("load", 1.0, rate_wanted=2.0, held=True) | {key: junk} for key in keys]
    for key in ("at_s", "records_per_s", "p999_us", "elections", "flushes"):
        lines.append(line("sustained", 1.0, timeline=[each | {key: junk} for each in
                                                      results.timeline()]))  # fmt: skip
    for key in ("name", "p50_us", "p99_us"):
        lines.append(line("latency", 1.0, stages=[each | {key: junk} for each in
                                                  results.stages(commit=2, travel=1)]))  # fmt: skip
    found = result({"a": [lines] * 2}, machine={"cpu": junk}, plan={"measure": junk})
    found.runs[0] = type(found.runs[0])("a", junk, junk, junk, junk, lines)
    assert Page([("a", found), ("b", found)]).sections


@pytest.mark.parametrize("rate", [0.0, 5e-324, 1e-9, 1e15, sys.float_info.max])
def test_no_figure_can_break_a_picture(rate: float) -> None:
    pytest.importorskip("matplotlib")
    windows = {
        f"{n}": repeated("throughput", 1.0, window=n, records_per_s=rate, p50_us=rate)
        for n in (1, 2, 4)
    }
    windows["floor"] = repeated("floor", 1.0, peer="floor", window=1, p99_us=rate)
    found = result(windows)
    assert "<svg" in Page([("a", found), ("b", found)]).html()


def test_numbers_are_numbers() -> None:
    assert [number(each) for each in (1, 2.5, 0)] == [1.0, 2.5, 0.0]
    assert [number(each) for each in (True, -1, "1", None, 10**400, float("inf"))] == [None] * 6


@pytest.mark.parametrize("missing", ["matplotlib", "hdrh"])
def test_without_a_library_the_rest_is_there(missing: str, monkeypatch: pytest.MonkeyPatch) -> None:
    found = full()
    for name in [each for each in sys.modules if each.partition(".")[0] == missing]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, missing, None)
    page = Page([("a", found)])
    (told,) = page.told
    assert "pip install 'kraftfast[" in told and "\n" not in told
    html = page.html()
    assert ("<svg" in html) is (missing == "hdrh") and "throughput" in html
    if missing == "matplotlib":
        assert told == MISSING
