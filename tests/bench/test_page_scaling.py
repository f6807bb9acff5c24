"""Where a line bends and why: flat lines, lines that fall, lines that begin at 0, and none."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.bench.page import Page, of_scaling
from kraftfast.bench.page.parts import entries
from kraftfast.bench.results.plan import of_table, read
from kraftfast.bench.results.result import Result
from kraftfast.cli.bench.bench_results import check_options
from tests.bench.results import line, repeated, result
from tests.cli.kit import ROOT

PROCESSORS: dict[str, Any] = {"machine": {"processors": 2}}


def said(found: Result, title: str) -> list[str]:
    """Return the sentences of a section, without the one on circles."""
    (section,) = (each for each in Page([("a", found)]).sections if each.title == title)
    return section.texts[1:]


def rates(along: str, points: dict[float, float], **more: Any) -> Result:
    """Return a result with a line along an option."""
    settings = {key: more.pop(key) for key in ("machine",) if key in more}
    found = {f"{x}": repeated("throughput", y, **{along: x}, **more) for x, y in points.items()}
    return result(found, **settings)


def test_a_line_that_falls() -> None:
    (text,) = said(rates("voters", {1: 800.0, 2: 400.0, 4: 200.0}), "By voters")
    assert "820 records/s at voters 1, 205 records/s at 4" in text
    assert "does not bend: each doubling makes it 0.50 times" in text


def test_a_line_that_rises_and_falls_bends_at_its_top() -> None:
    points = {1: 100.0, 2: 200.0, 4: 400.0, 8: 200.0, 16: 100.0}
    (text,) = said(rates("window", points), "By window")
    slopes = "each doubling makes it 2.00 times, and from there each doubling makes it 0.50 times."
    assert text.endswith(f"It bends at 4: up to there {slopes}")


def test_a_flat_line_has_no_bend() -> None:
    steady = {
        f"{x}": [[line("throughput", y, observers=x)]] * 3
        for x, y in ((0, 100.0), (10, 106.0), (20, 100.0), (200, 102.0))
    }
    (text,) = said(result(steady), "By observers")
    assert text.endswith("It is flat: its highest point is 6 % above its lowest.")


def test_ranges_that_overlap_show_nothing() -> None:
    wide = {
        f"{x}": [[line("throughput", y, window=x)] for y in (10.0, middle, 100.0)]
        for x, middle in ((1, 20.0), (2, 90.0), (4, 30.0))
    }
    (text,) = said(result(wide), "By window")
    assert text.endswith("No change is shown: the ranges of all points overlap.")


def test_what_happens_at_0_is_told_apart() -> None:
    points = {0: 1000.0, 1: 500.0, 10: 500.0, 100: 500.0, 1000: 50.0}
    (text,) = said(rates("connections", points), "By idle connections")
    assert "1,025 records/s at idle connections 0, 51.2 records/s at 1k." in text
    assert "From 0 to 1 it changes to 0.50 times." in text
    assert "It bends at 100: up to there it stays as it is, and from there each" in text


def test_times_of_recovery_have_a_line_of_each_part() -> None:
    def lines(total: float) -> list[dict[str, Any]]:
        common = {"peer": "kraftfast", "mode": "recover", "verified": True}
        return [
            common | {"part": "after a clean stop", "log_mib": total, "took_s": 0.1},
            common | {"part": "after kill -9", "log_mib": total, "took_s": total / 100},
            common | {"part": "a seek", "log_mib": total, "p50_us": 250.0},
            common | {"part": "empty", "log_mib": 0, "took_s": 0.1},
        ]

    found = result({f"{total}": [lines(total)] * 3 for total in (16.0, 64.0, 256.0)})
    clean, killed, seek = said(found, "By MiB of the log")
    assert clean.startswith("'part after a clean stop': 100 ms at MiB of the log 16, 100 ms at 256")
    assert clean.endswith("It is flat: its highest point is 0 % above its lowest.")
    assert killed.startswith("'part after kill -9': 160 ms at MiB of the log 16, 2.56 s at 256.")
    assert killed.endswith("It does not bend: each doubling makes it 2.00 times.")
    assert seek.startswith("'part a seek': 250 µs at MiB of the log 16, 250 µs at 256.")


def test_memory_has_a_sentence_of_its_own() -> None:
    idle = {
        f"{x}": [[{"mode": "idle", "connections": x, "core_percent": 1.5,
                   "largest_worker_mb": 20.0 + x / 10}]] * 2
        for x in (0, 100, 1000, 10000)
    }  # fmt: skip
    processor, memory = said(result(idle), "By idle connections")
    assert "1.5 % of a processor at idle connections 0" in processor
    assert "20 MB in the largest replica at idle connections 0, 1,020 MB" in memory


@pytest.mark.parametrize(
    "shares, why",
    [
        ((0.9, 0.95), "At 4, the processors are used up (1.9 of 2), 0.9 by 'follower 2'."),
        ((0.95, 0.1), "At 4, 'leader 1' uses a whole processor; 1.1 of 2 are in use."),
        ((0.2, 0.1), "At 4, 0.3 of 2 processors are in use, 0.2 by 'leader 1': it waits for "
                     "flushes, for answers, or for other programs."),
    ],
)  # fmt: skip
def test_what_was_used_up_is_told(shares: tuple[float, float], why: str) -> None:
    names = ("leader 1", "follower 2")
    costs = [
        {"name": name, "user_s": share, "system_s": share} for name, share in zip(names, shares)
    ]
    points = {1: 100.0, 2: 200.0, 4: 400.0, 8: 400.0, 16: 400.0}
    more: dict[str, Any] = {"seconds": 2.0, "processes_cost": costs}
    (text,) = said(rates("window", points, **more, **PROCESSORS), "By window")
    assert text.endswith(f"and from there it stays as it is. {why}"), text
    (text,) = said(rates("window", points, **more), "By window")
    assert text.endswith("it stays as it is."), "how many there are is not known"


def test_callers_of_another_kind_are_another_line() -> None:
    found = {
        f"{kind} {count}": repeated("latency", 10.0 * count, callers=kind, producers=count)
        for kind in ("threads", "tasks")
        for count in (1, 4, 16)
    }
    (entry,) = entries([("a", result(found))])
    labels = [each.label for each in of_scaling.lines_of(entry, "producers")]
    assert labels == ["callers threads", "callers tasks"]


def test_what_only_one_command_has_is_in_no_name() -> None:
    """The lines of different commands were told apart by all that one has and another has not."""
    idle = {
        f"idle {x}": [[{"mode": "idle", "connections": x, "core_percent": 2.0}]] for x in (0, 1, 2)
    }
    busy = {f"busy {x}": repeated("latency", 5.0, connections=x) for x in (0, 1, 2)}
    (entry,) = entries([("a", result(idle | busy))])
    labels = [each.label for each in of_scaling.lines_of(entry, "connections")]
    assert labels == ["mode idle", "mode latency"]
    without = {f"{x}": [[line("latency", 5.0, window=x)]] for x in (1, 2, 4)}
    others = {f"part {x}": [[line("latency", 5.0, window=x, part="a")]] for x in (1, 2, 4)}
    (entry,) = entries([("a", result(without | others))])
    labels = [each.label for each in of_scaling.lines_of(entry, "window")]
    assert labels == ["latency", "part a"], "one has no other name"


def test_the_step_from_0_is_told_where_the_ranges_lie_apart() -> None:
    def steps(*first: float) -> Result:
        points = {0: first, 1: (100.0, 102.0, 104.0), 2: (50.0,) * 3, 4: (25.0,) * 3}
        found = {
            f"{x}": [[line("throughput", y, observers=x)] for y in values]
            for x, values in points.items()
        }
        return result(found)

    (text,) = said(steps(200.0, 210.0, 220.0), "By observers")
    assert "From 0 to 1 it changes to 0.49 times." in text
    for near in ((101.0, 210.0, 220.0), (105.0, 106.0, 107.0)):
        (text,) = said(steps(*near), "By observers")
        assert "From 0" not in text, near


def test_a_picture_has_a_place_for_0() -> None:
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    from kraftfast.bench.page.drawing import LIGHT

    points = {0: 1000.0, 1: 500.0, 100: 500.0, 1000: 50.0}
    (section,) = (
        each
        for each in Page([("a", rates("connections", points))]).sections
        if each.title == "By idle connections"
    )
    drawn = Figure()
    section.pictures[0].draw(drawn, LIGHT)
    (axes,) = drawn.axes
    assert axes.get_xscale() == "symlog" and axes.get_xlim()[0] < 0
    assert list(axes.xaxis.get_majorticklocs()) == [0, 1, 100, 1000]


def test_the_plan_on_growth_can_be_run_and_has_every_axis() -> None:
    plan, table = read(ROOT / "bench" / "grow.toml")
    check_options(plan)
    assert of_table(table, "grow").repeat == 3
    varied = {
        key for each in table["measure"] for key, value in each.items() if isinstance(value, list)
    }
    assert varied == {
        "voters", "record-size", "window", "producers", "callers", "observers", "connections",
        "total", "snapshot", "retained-producers",
    }  # fmt: skip
