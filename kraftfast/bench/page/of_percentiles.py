"""Latency by percentile, from the histograms of all repetitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from kraftfast.bench.page.axes import axes_of, chunks, key, key_height, scale, style
from kraftfast.bench.page.drawing import SERIES, Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section
from kraftfast.bench.page.result_lines import Histograms, percentiles_us
from kraftfast.bench.page.texts import duration

WHOLE = "commit"
POINTS, NINES_MAX, TICKS_MAX = 80, 6, 7
HEIGHT = 2.9
Curve = tuple[str, Any, Any]
"""A name, shares of samples that are slower (1 is all of them), and microseconds."""


def curves(entries: list[PageEntry], histograms: Histograms) -> Iterator[Section]:
    """Yield the curves of append to commit, then those of the stages of each measure."""
    whole: list[tuple[PageEntry, str, Curve]] = []
    stages: list[tuple[PageEntry, str, list[Curve]]] = []
    for each in entries:
        for measure in each.measures:
            lines = [line for line in each.lines(measure) if line.get("mode") != "load"]
            found = histograms.merged(each.named(measure), lines)
            if WHOLE in found:
                name = each.named(measure)
                whole.append((each, measure, curve_of(name, found.pop(WHOLE))))
            if found:
                parts = [curve_of(_stage(name), one) for name, one in sorted(found.items())]
                stages.append((each, measure, parts))
    if whole:
        yield _section(whole)
    if stages:
        yield _of_stages(stages)


def _of_stages(stages: list[tuple[PageEntry, str, list[Curve]]]) -> Section:
    text = (
        "Each line is one stage, over all replicas and repetitions. A stage whose line climbs to "
        "the right is one that makes slow commits slow."
    )
    made = Section("Stages by percentile", [text])
    for at, (entry, measure, found) in enumerate(stages, 1):
        made.pictures += pictures_of(f"stages-percentiles-{at}", entry.named(measure), found)
    made.commands = list(dict.fromkeys(entry.command(measure) for entry, measure, _ in stages))
    return made


def _stage(name: str) -> str:
    return name.removeprefix("stage ").replace("_", " ")


def _section(whole: list[tuple[PageEntry, str, Curve]]) -> Section:
    name, _, us = min((curve for *_, curve in whole), key=lambda curve: curve[2][-1])
    text = (
        "From the append of a record to its commit: the further to the right, the rarer the "
        "samples. A flat line is a steady latency, a step is something that happens now and then, "
        f"as a slow flush. The lowest worst case is that of {name!r}: {duration(us[-1])}."
    )
    commands = [entry.command(measure) for entry, measure, _ in whole]
    return Section(
        "Latency by percentile",
        [text],
        pictures=pictures_of("percentiles", "Append to commit", [each for *_, each in whole]),
        commands=list(dict.fromkeys(commands)),
    )


def curve_of(name: str, histogram: Any) -> Curve:
    """Return the curve of a histogram, as far to the right as it has samples."""
    nines = min(NINES_MAX, float(np.log10(max(2, histogram.get_total_count()))))
    slower = np.logspace(0, -nines, POINTS)
    return name, slower, np.array(percentiles_us(histogram, list(100 * (1 - slower))))


def pictures_of(name: str, title: str, found: list[Curve]) -> list[Picture]:
    """Return pictures of curves, a few in each."""
    made = []
    for number, part in enumerate(chunks(found, SERIES), 1):
        height = HEIGHT + key_height([each[0] for each in part])
        made.append(Picture(f"{name}-{number}", title, height, _draw(part)))
    return made


def _draw(found: list[Curve]) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        axes, handles = axes_of(drawn, colours), []
        for number, (_, slower, us) in enumerate(found):
            handles += axes.plot(1 / slower, us, linewidth=1.6, **style(number, colours))
        scale(axes.yaxis, [float(each) for *_, us in found for each in us], duration)
        _nines(axes, max(float(1 / slower[-1]) for _, slower, _ in found))
        key(drawn, handles, [name for name, *_ in found], colours)

    return draw


def _nines(axes: Any, most: float) -> None:
    """Have the x axis show percentiles, each nine as wide as the one before."""
    from matplotlib.ticker import FixedFormatter, FixedLocator, NullLocator

    ticks, names = [1.0, 2.0], ["0", "50"]
    for nines in range(1, NINES_MAX + 1):
        if 10**nines <= most * 1.001:
            ticks.append(float(10**nines))
            names.append("90" if nines == 1 else f"{100 - 100 / 10**nines:.{nines - 2}f}")
    axes.set_xscale("log")
    axes.set_xlim(1, max(most, 2) * 1.1)
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_major_formatter(FixedFormatter(names))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(axis="x", labelsize=8 if len(ticks) < TICKS_MAX else 6.5)
    axes.set_xlabel("percentile")
