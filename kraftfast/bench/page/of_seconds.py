"""A sustained run second by second: its rate, its slowest batches, elections and flushes."""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

from kraftfast.bench.page.axes import axes_of
from kraftfast.bench.page.drawing import Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section
from kraftfast.bench.page.result_lines import PageSecond, timeline
from kraftfast.bench.page.texts import duration, figure, short

PANEL, BESIDES = 1.35, 0.7
"""Inches of a panel, and of the rest."""
RUNS_MAX, LOOKS_MIN = 12, 2


def seconds(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield the time series of the measures that have one."""
    made = Section("By the second", ["Each line is one repetition. A steady log has flat lines."])
    for each in entries:
        for measure in each.measures:
            runs = [timeline(line) for line in each.lines(measure)]
            runs = [run for run in runs if len(run) >= LOOKS_MIN]
            if runs:
                name = f"seconds-{len(made.pictures) + 1}"
                made.texts.append(" ".join(_sentences(each.named(measure), runs)))
                made.pictures.append(_picture(name, each.named(measure), runs[:RUNS_MAX]))
                made.commands.append(each.command(measure))
    if made.pictures:
        made.commands = list(dict.fromkeys(made.commands))
        yield made


def _sentences(name: str, runs: list[list[PageSecond]]) -> list[str]:
    looks = [look for run in runs for look in run]
    rates = [look.records_per_s for look in looks]
    slow = [look.p999_us for look in looks if look.p999_us is not None]
    elections = sum(look.elections for look in looks)
    texts = [
        f"A second of {name!r} had {figure(min(rates))} to {figure(max(rates))} records/s, "
        f"{figure(median(rates))} in the median."
    ]
    if slow:
        texts.append(f"The worst p99.9 of a second's batches is {duration(max(slow))}.")
    if elections:
        texts.append(f"Dotted lines are elections ({figure(elections)}).")
    if len(runs) > RUNS_MAX:
        texts.append(f"The first {RUNS_MAX} of {len(runs)} repetitions are drawn.")
    return texts


def _picture(name: str, title: str, runs: list[list[PageSecond]]) -> Picture:
    panels = 2 + _has_flushes(runs)
    return Picture(name, f"{title}, by the second", PANEL * panels + BESIDES, _draw(runs, panels))


def _has_flushes(runs: list[list[PageSecond]]) -> bool:
    return any(look.flushes is not None for run in runs for look in run)


def _draw(runs: list[list[PageSecond]], panels: int) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        from matplotlib.ticker import FuncFormatter

        axes = axes_of(drawn, colours, panels)
        tints = colours.series[0], colours.series[1], colours.series[2]
        for panel, values in enumerate((_rates, _slowest, _flushes)[:panels]):
            for at, found in map(values, runs):
                axes[panel].plot(at, found, color=tints[panel], linewidth=1.3,
                                 alpha=1.0 if len(runs) == 1 else 0.6)  # fmt: skip
            axes[panel].set_ylim(bottom=0)
            axes[panel].yaxis.set_major_formatter(FuncFormatter(duration if panel == 1 else short))
        marks = [look.at_s for run in runs for look in run if look.elections]
        for below in axes:
            for moment in marks:
                below.axvline(moment, color=colours.ink, linewidth=1.0, linestyle=(0, (1, 2)))
        axes[0].set_ylabel("records/s")
        axes[1].set_ylabel("p99.9")
        if panels > 2:
            axes[2].set_ylabel("flushes")
        axes[-1].set_xlabel("seconds")
        axes[-1].set_xlim(left=0)

    return draw


def _rates(run: list[PageSecond]) -> tuple[list[float], list[float]]:
    return [look.at_s for look in run], [look.records_per_s for look in run]


def _slowest(run: list[PageSecond]) -> tuple[list[float], list[float]]:
    known = [look for look in run if look.p999_us is not None]
    return [look.at_s for look in known], [look.p999_us or 0.0 for look in known]


def _flushes(run: list[PageSecond]) -> tuple[list[float], list[float]]:
    known = [look for look in run if look.flushes is not None]
    return [look.at_s for look in known], [look.flushes or 0.0 for look in known]
