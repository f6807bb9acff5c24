"""Ratios with their intervals: before and after, and the share of the floor."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from kraftfast.bench.page.axes import ROWS_MAX, axes_of, chunks, row_names, rows_height
from kraftfast.bench.page.drawing import Colours
from kraftfast.bench.page.of_results import NAMES
from kraftfast.bench.page.parts import PageEntry, Picture, Section, Table
from kraftfast.bench.page.texts import figure, plain
from kraftfast.bench.results.compare import Comparison, compare, holdings, interval, missing

FLOOR = "floor"
CLOSED = ("throughput", "latency", "sustained", "matrix")
"""Commands that go as fast as they can: the rate of the others is what was asked for."""
COMPARED_MAX = 200
"""Measures: an interval takes some milliseconds."""
NAME_CHARACTERS, RATIO_MAX = 30, 1000.0
"""Of a name in a picture; beyond that ratio the others could not be told apart."""
SAME = ("value_bytes", "sync", "voters", "window")
"""What a measure must have in common with the floor beside which it is held."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A ratio of medians and its 95 % interval; ``tint`` is the number of its colour."""

    name: str
    ratio: float
    low: float
    high: float
    tint: int


def changes(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield what became better or worse from the first result to each of the others."""
    if len(entries) < 2:
        return
    first, *others = entries
    for other in others:
        with np.errstate(all="ignore"):  # of absurd figures: their ratios are left out
            pairs = [(name, name) for name in _shared(first, other)[:COMPARED_MAX]]
            lines = compare(first.result, other.result, pairs)
        if lines or holdings(first.result, other.result):
            yield _change(first, other, lines)


def _shared(first: PageEntry, other: PageEntry) -> list[str]:
    return [name for name in first.result.measures if name in other.repetitions]


def _change(first: PageEntry, other: PageEntry, lines: list[Comparison]) -> Section:
    shown = [each for each in lines if each.verdict in ("better", "worse")]
    told = [f"{each.measure!r} {NAMES.get(each.key, each.key)} {each.verdict}" for each in shown]
    shared, held = len(_shared(first, other)), holdings(first.result, other.result)
    texts = [
        f"The medians of {other.letter} divided by those of {first.letter}, with a 95 % bootstrap "
        f"interval. Records a second are better above 1, times below it. A verdict needs an "
        f"interval without 1 and five repetitions on both sides; one line in twenty has one by "
        f"chance.",
    ]
    if told or not held:
        texts.append(f"Shown: {'; '.join(told[:12])}." if told else "No difference is shown.")
    if held:
        texts.append(
            f"A rate was not held as often by both, so their times are of other repetitions: "
            f"{'; '.join(map(str, held[:12]))}."
        )
    rows = [
        [each.measure, NAMES.get(each.key, each.key), figure(each.first), figure(each.second),
         *_shown(each), each.verdict]
        for each in lines
    ]  # fmt: skip
    if shared > COMPARED_MAX:
        texts.append(f"The first {COMPARED_MAX} of {shared} measures are compared.")
    ratios = [
        Ratio(
            f"{plain(each.measure, NAME_CHARACTERS)}: {NAMES.get(each.key, each.key)}",
            each.ratio,
            each.low,
            each.high,
            _tint(each),
        )
        for each in lines
        if each.ratio is not None and each.low is not None and each.high is not None
        if each.high <= RATIO_MAX
    ]
    name = f"changes-{first.letter}-{other.letter}".lower()
    head = ["measure", "what", first.letter, other.letter, "ratio", "95 %", "verdict"]
    return Section(
        f"From {first.letter} to {other.letter}",
        texts,
        notes=[f"{each} (first: {first.letter}, second: {other.letter})"
               for each in missing(first.result, other.result)],
        tables=[Table(head, rows, left=2)],
        pictures=_pictures(name, f"{other.letter} divided by {first.letter}", ratios),
        commands=[shlex.join(["kraftfast", "bench", "compare", first.place, other.place]),
                  *first.commands(_shared(first, other))],
    )  # fmt: skip


def _tint(each: Comparison) -> int:
    return {"better": 2, "worse": 1}.get(each.verdict, 7)


def _shown(each: Comparison) -> tuple[str, str]:
    if each.ratio is None or each.low is None or each.high is None:
        return "-", "-"
    return f"{each.ratio:.3f}", f"{each.low:.3f}–{each.high:.3f}"


def floor(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield how much of the floor's records a second each measure reaches."""
    ratios, rows, commands = [], [], []
    for each in entries:
        floors = [name for name in each.measures if _is_floor(each, name)]
        for measure in each.measures:
            for beside in floors:
                made = _share(each, measure, beside) if measure not in floors else None
                if made is not None:
                    ratios.append(made)
                    rates = (each.values(name, "records_per_s") for name in (beside, measure))
                    of_floor, own = map(median, rates)
                    share = f"{100 * made.ratio:.0f} %"
                    within = f"{100 * made.low:.0f}–{100 * made.high:.0f} %"
                    rows.append([made.name, figure(of_floor), figure(own), share, within])
                    commands += each.commands([beside, measure])
    if not ratios:
        return
    best = max(ratios, key=lambda each: each.ratio)
    texts = [
        "The floor is a program in C that does the least work by which three voters could commit "
        "the same records on this machine: no protocol, no producer. The share is what is left of "
        "its records a second, with a 95 % bootstrap interval. Only measures with the same size of "
        "record, voters, window and flushes are held beside it.",
        f"The nearest is {best.name!r}, at {100 * best.ratio:.0f} % of its floor.",
    ]
    yield Section(
        "Share of the floor",
        texts,
        tables=[Table(["measure", "floor, records/s", "records/s", "share", "95 %"], rows)],
        pictures=_pictures("floor", "Share of the floor's records a second", ratios),
        commands=list(dict.fromkeys(commands)),
    )


def _is_floor(entry: PageEntry, measure: str) -> bool:
    return all(line.get("peer") == FLOOR for line in entry.lines(measure))


def _share(entry: PageEntry, measure: str, beside: str) -> Ratio | None:
    """Return a measure's share of a floor; None where the two are not the same work."""
    own, others = entry.lines(measure)[0], entry.lines(beside)[0]
    if own.get("mode") not in CLOSED:
        return None
    if any(own.get(key) is None or own.get(key) != others.get(key) for key in SAME):
        return None
    a, b = (entry.values(name, "records_per_s") for name in (beside, measure))
    if not a or not b or not min(a):
        return None
    low, high = interval(a, b)
    return Ratio(entry.named(measure), median(b) / median(a), low, high, 0)


def _pictures(name: str, title: str, ratios: list[Ratio]) -> list[Picture]:
    return [
        Picture(f"{name}-{at}", title, rows_height(len(part)), _draw(part, ratios, title))
        for at, part in enumerate(chunks(ratios, ROWS_MAX), 1)
    ]


def _draw(ratios: list[Ratio], every: list[Ratio], title: str) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        axes = axes_of(drawn, colours)
        row_names(axes, [each.name for each in ratios], colours)
        for at, each in enumerate(ratios):
            colour = colours.series[each.tint]
            axes.plot([each.low, each.high], [at, at], color=colour, linewidth=2.4, alpha=0.7)
            axes.plot(each.ratio, at, "o", color=colour, markersize=6)
        axes.set_xlabel(title)
        axes.axvline(1.0, color=colours.ink, linewidth=1.0)
        ends = [end for each in every for end in (each.low, each.high)]
        room = 0.06 * (max(*ends, 1.0) - min(*ends, 1.0)) or 0.1
        axes.set_xlim(max(0.0, min(*ends, 1.0) - room), max(*ends, 1.0) + room)

    return draw
