"""Throughput against latency: what an open loop measured at each rate, and where the knee is."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from kraftfast.bench.page.axes import axes_of, chunks, key, key_height, mark, scale, style
from kraftfast.bench.page.drawing import SERIES, Colours
from kraftfast.bench.page.of_percentiles import Curve, curve_of, pictures_of
from kraftfast.bench.page.parts import PageEntry, Picture, Section
from kraftfast.bench.page.result_lines import Histograms, number, numbers, percentiles_us
from kraftfast.bench.page.texts import duration, figure

MODE = "load"
STAGES = ("response", "service")
"""From when a record was due; from when it was appended."""
POINTS_MIN = 2
HEIGHT = 2.9


@dataclass(frozen=True, slots=True)
class LoadStep:
    """What was measured at a rate in the repetitions that held it, most of them or all.

    ``held``: in how many, and of how many.
    """

    wanted: float
    rate: float
    p50_us: float
    p99_us: float
    curves: dict[str, Curve]
    held: tuple[int, int] = (1, 1)


@dataclass(frozen=True, slots=True)
class Lost:
    """A rate that most repetitions did not hold, and what it came to: it has no latency."""

    wanted: float
    rate: float


@dataclass(frozen=True, slots=True)
class Steps:
    """The steps of one measure, or of all measures of a result that have one rate each."""

    name: str
    steps: list[LoadStep]
    lost: list[Lost]
    commands: list[str]

    @property
    def knee(self) -> LoadStep | None:
        """Return the step with the most records a second for each microsecond of p99: beyond
        it the latency grows faster than the rate (power: Kleinrock, ICC 1979)."""
        timed = [each for each in self.steps if each.p99_us]
        return max(timed, key=lambda each: each.rate / each.p99_us, default=None)


def load(entries: list[PageEntry], histograms: Histograms) -> Iterator[Section]:
    """Yield throughput against latency, and the percentiles at each rate."""
    found = [steps for each in entries for steps in _of(each, histograms)]
    found = [each for each in found if len(each.steps) + len(each.lost) >= POINTS_MIN]
    if not found:
        return
    texts = [
        "Records arrive by a clock and not when the one before is done; a latency counts from the "
        "intended start. A hollow mark at the upper edge is a rate that was not held, at what it "
        "came to: its latency would only say for how long it was tried. The circle is the knee.",
        *(_said(each) for each in found),
    ]
    pictures = [
        Picture(f"load-{at}", "Throughput against latency",
                HEIGHT + key_height([each.name for each in part]), _draw(part))
        for at, part in enumerate(chunks(found, SERIES), 1)
    ]  # fmt: skip
    for at, each in enumerate(found, 1):
        for stage in STAGES:
            curves = [step.curves[stage] for step in each.steps if stage in step.curves]
            title = f"{each.name}: {stage}, by rate"
            pictures += pictures_of(f"load-{stage}-{at}", title, curves)
    commands = [command for each in found for command in each.commands]
    yield Section(
        "Throughput against latency", texts, pictures=pictures,
        commands=list(dict.fromkeys(commands)),
    )  # fmt: skip


def _of(entry: PageEntry, histograms: Histograms) -> Iterator[Steps]:
    alone: list[tuple[str, LoadStep | Lost]] = []
    for measure in dict.fromkeys(run.measure for run in entry.result.runs):
        found = _steps(entry, measure, histograms)
        if len(found) == 1:
            alone.append((measure, found[0]))
        elif found:
            yield _sorted(entry.named(measure), found, [entry.command(measure)])
    if alone:
        commands = entry.commands([measure for measure, _ in alone])
        yield _sorted(entry.named(MODE), [step for _, step in alone], commands)


def _sorted(name: str, found: list[LoadStep | Lost], commands: list[str]) -> Steps:
    steps = [each for each in found if isinstance(each, LoadStep)]
    lost = [each for each in found if isinstance(each, Lost)]
    steps.sort(key=lambda each: each.wanted)
    return Steps(name, steps, sorted(lost, key=lambda each: each.wanted), commands)


def _steps(entry: PageEntry, measure: str, histograms: Histograms) -> list[LoadStep | Lost]:
    """Return the steps of a measure of the plan.

    Steps that are shares of a measured maximum differ between repetitions: they go by the name of
    their part, or by their place.
    """
    places: dict[str, list[dict[str, Any]]] = {}
    for run in entry.result.runs:
        if run.measure == measure:
            lines = [line for line in run.lines if line.get("mode") == MODE]
            lines = [line for line in lines if number(line.get("rate_wanted")) is not None]
            for at, line in enumerate(sorted(lines, key=lambda line: float(line["rate_wanted"]))):
                places.setdefault(str(line.get("part", at)), []).append(line)
    found = (_step(entry.named(measure), lines, histograms) for lines in places.values())
    return [each for each in found if each is not None]


def _step(name: str, lines: list[dict[str, Any]], histograms: Histograms) -> LoadStep | Lost | None:
    wanted, rates = median(numbers(lines, "rate_wanted")), numbers(lines, "records_per_s")
    if not rates:
        return None
    tried, lines = len(lines), [line for line in lines if line.get("held") is True]
    rates_held = numbers(lines, "records_per_s")
    if 2 * len(rates_held) <= tried:
        return Lost(wanted, median(rates))
    merged = histograms.merged(f"{name} at {figure(wanted)}/s", lines)
    response = merged.get("response")
    if response is not None:
        p50, p99 = percentiles_us(response, [50.0, 99.0])
    else:
        told = numbers(lines, "p50_us"), numbers(lines, "p99_us")
        if not all(told):
            return None
        p50, p99 = median(told[0]), median(told[1])
    name = f"{figure(wanted)}/s"
    curves = {stage: curve_of(name, merged[stage]) for stage in STAGES if stage in merged}
    return LoadStep(wanted, median(rates_held), p50, p99, curves, (len(rates_held), tried))


def _said(each: Steps) -> str:
    """Return the sentence on where the knee is."""
    knee = each.knee
    if knee is None:
        return f"{each.name!r} held none of its rates, so it has no knee."
    text = (
        f"The knee of {each.name!r} is at {figure(knee.rate)} records/s, with a p99 of "
        f"{duration(knee.p99_us)}: beyond it the latency grows faster than the rate."
    )
    partly = [
        f"{figure(step.wanted)}/s in {step.held[0]} of {step.held[1]}"
        for step in each.steps
        if step.held[0] < step.held[1]
    ]
    if partly:
        text += f" Not every repetition held its rate: {', '.join(partly)} did."
    if each.lost:
        lost = each.lost[0]
        text += f" {figure(lost.wanted)}/s was not held: it came to {figure(lost.rate)}/s."
    elif knee is each.steps[-1]:
        text += " It is the highest rate that was tried: the real knee may be higher."
    return text


def _draw(found: list[Steps]) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        axes, handles = axes_of(drawn, colours), []
        for at, each in enumerate(found):
            rates, p99 = [s.rate for s in each.steps], [s.p99_us for s in each.steps]
            look = style(at, colours)
            handles += axes.plot(rates, p99, marker=mark(at), markersize=5, linewidth=1.4, **look)
            axes.plot(rates, [s.p50_us for s in each.steps], linewidth=0.8, **look)
            axes.plot(
                [lost.rate for lost in each.lost], [0.98] * len(each.lost), mark(at), markersize=5,
                transform=axes.get_xaxis_transform(), color=look["color"],
                markerfacecolor=colours.paper, zorder=4, clip_on=False,
            )  # fmt: skip
            if each.knee is not None:
                axes.plot(each.knee.rate, each.knee.p99_us, "o", markersize=13, fillstyle="none",
                          color=colours.ink)  # fmt: skip
        steps = [step for each in found for step in each.steps]
        lost = [step.rate for each in found for step in each.lost]
        scale(axes.xaxis, [*(step.rate for step in steps), *lost])
        scale(axes.yaxis, [us for step in steps for us in (step.p50_us, step.p99_us)], duration)
        axes.set_xlabel("records/s")
        axes.set_ylabel("response: p99, thin p50")
        key(drawn, handles, [each.name for each in found], colours)

    return draw
