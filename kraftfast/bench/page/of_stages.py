"""Where the time of a commit goes: its stages as stacked bars."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from kraftfast.bench.page.axes import ROWS_MAX, axes_of, chunks, key, row_names, rows_height
from kraftfast.bench.page.drawing import Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section, Table
from kraftfast.bench.page.result_lines import dicts, number
from kraftfast.bench.page.texts import duration, figure
from kraftfast.bench.results.report import MEANINGS

OUTER = ("queue", "append", "commit", "callback")
"""One after the other, from the append to the callback."""
INNER = ("travel", "follower_flush")
"""What the commit waits for on a follower; the leader's own flush goes on beside it."""
BESIDE = "leader_flush"
ORDER = (*OUTER, *INNER, BESIDE)
KEY_INCHES = 0.7
Medians = dict[str, float]


def stages(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield the stages of each measure that has them."""
    found = [
        (each, measure, p50, p99)
        for each in entries
        for measure in each.measures
        for p50, p99 in [(_medians(each, measure, "p50_us"), _medians(each, measure, "p99_us"))]
        if p50
    ]
    if not found:
        return
    entry, measure, p50, _ = found[0]
    largest = max((name for name in p50 if name in OUTER), key=lambda name: p50[name], default="")
    texts = [
        "The upper bar of each pair is what a record passes one after the other, each stage by its "
        "median. The lower bar begins with the commit and shows what it waits for: the way to a "
        "follower and the follower's flush; the thin line is the leader's own flush, at the same "
        "time. Of several followers the faster one counts, as it does for a majority of three. A "
        "sum of medians is near the median of the whole, not equal to it."
    ]
    if largest:
        told = f"Most of the time in {entry.named(measure)!r} goes into {largest!r}"
        texts.append(f"{told} ({MEANINGS[largest]}): {duration(p50[largest])}.")
    rows = [
        [each.named(name), stage, MEANINGS[stage], figure(p50[stage]), figure(p99.get(stage))]
        for each, name, p50, p99 in found
        for stage in ORDER
        if stage in p50
    ]
    bars = [(each.named(name), p50) for each, name, p50, _ in found]
    yield Section(
        "Stages of a commit",
        texts,
        tables=[Table(["measure", "stage", "from, to", "p50, µs", "p99, µs"], rows, left=3)],
        pictures=[
            Picture(f"stages-{at}", "Stages of a commit, by their medians",
                    rows_height(len(part)) + KEY_INCHES, _draw(part))
            for at, part in enumerate(chunks(bars, ROWS_MAX), 1)
        ],
        commands=list(dict.fromkeys(each.command(name) for each, name, *_ in found)),
    )  # fmt: skip


def _medians(entry: PageEntry, measure: str, percentile: str) -> Medians:
    """Return the median over all repetitions of each stage, of the replica where it is shortest."""
    values: dict[str, list[float]] = {}
    for line in entry.lines(measure):
        least: Medians = {}
        for stage in dicts(line.get("stages")):
            name, us = stage.get("name"), number(stage.get(percentile))
            if isinstance(name, str) and name in ORDER and us is not None:
                least[name] = min(us, least.get(name, us))
        for name, us in least.items():
            values.setdefault(name, []).append(us)
    return {name: median(found) for name, found in values.items()}


def _draw(bars: list[tuple[str, Medians]]) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        from matplotlib.patches import Patch
        from matplotlib.ticker import FuncFormatter, MaxNLocator

        axes, colour = axes_of(drawn, colours), dict(zip(ORDER, colours.series))
        row_names(axes, [name for name, _ in bars], colours)
        for at, (_, p50) in enumerate(bars):
            begin = _stack(axes, at, OUTER, p50, 0.0, colour, 0.2)
            _stack(axes, at + 0.22, INNER, p50, begin, colour, 0.14)
            end = begin + p50.get(BESIDE, 0.0)
            axes.plot([begin, end], [at + 0.36] * 2, color=colour[BESIDE], linewidth=2.4,
                      solid_capstyle="butt")  # fmt: skip
        axes.set_xlim(left=0)
        axes.xaxis.set_major_locator(MaxNLocator(5))
        axes.xaxis.set_major_formatter(FuncFormatter(duration))
        there = [name for name in ORDER if any(name in p50 for _, p50 in bars)]
        names = [name.replace("_", " ") for name in there]
        key(drawn, [Patch(color=colour[name]) for name in there], names, colours)

    return draw


def _stack(
    axes: Any, at: float, names: tuple[str, ...], p50: Medians, left: float,
    colour: dict[str, str], height: float,
) -> float:  # fmt: skip
    """Draw stages behind each other; return where the commit begins."""
    begin = left
    for name in names:
        if name == "commit":
            begin = left
        if name in p50:
            axes.barh(at, p50[name], left=left, height=height, color=colour[name])
            left += p50[name]
    return begin
