"""How it grows: lines of what differs in one option only, and where each line bends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from kraftfast.bench.page.drawing import SERIES, Colours
from kraftfast.bench.page.parts import Entry, Picture, Section
from kraftfast.bench.page.reading import number
from kraftfast.bench.page.shapes import axes_of, chunks, key, key_height, mark, scale, style
from kraftfast.bench.page.texts import duration, figure, plain, short, size

VARIED = {
    "voters": "voters",
    "value_bytes": "record size",
    "window": "window",
    "producers": "producers",
    "batch_bytes": "batch size",
    "observers": "observers",
    "connections": "connections",
    "log_bytes": "log size",
    "log_mib": "MiB of the log",
    "retained_producers": "producers that are retained",
}
"""What a line may run along: key of a result's line -> the name of the axis."""
FIXED = (
    "peer", "mode", "sync", "durability", "flush", "transport", "idle", "compression", "codec",
    "values", "retention_mib", "how", "files", "rate_wanted", "part",
)  # fmt: skip
"""What else must be equal within a line."""
MEASURED = {"records_per_s": "records/s", "p50_us": "p50", "p99_us": "p99"}
POINTS_MIN = 3
HEIGHT, TICKS_MAX, SENTENCES_MAX = 2.5, 9, 12
BEND = 0.15
"""By so much the slopes before and after must differ, in a picture with two logarithmic axes."""


@dataclass(frozen=True, slots=True)
class Line:
    """The medians along one option. ``label``: what it has that others have not."""

    label: str
    along: str
    xs: list[float]
    ys: dict[str, list[float]]
    commands: list[str]


def scaling(entries: list[Entry]) -> Iterator[Section]:
    """Yield a section for each option along which there are lines."""
    for along, axis in VARIED.items():
        lines = [line for each in entries for line in lines_of(each, along)]
        if not lines:
            continue
        measured = [key for key in MEASURED if any(key in line.ys for line in lines)]
        said = [_said(line, axis) for line in lines if line.ys]
        texts = ["A circle is where a line bends most.", *said[:SENTENCES_MAX]]
        if len(said) > SENTENCES_MAX:
            texts.append(f"So much for the first {SENTENCES_MAX} of {len(said)} lines.")
        commands = [command for line in lines for command in line.commands]
        pictures = []
        for what in measured:
            there = [line for line in lines if what in line.ys]
            for at, part in enumerate(chunks(there, SERIES), 1):
                height = HEIGHT + key_height([line.label for line in part])
                name = f"scaling-{along.replace('_', '-')}-{what.replace('_', '-')}-{at}"
                title = f"{MEASURED[what]} by {axis}"
                pictures.append(Picture(name, title, height, _draw(part, what, axis)))
        yield Section(
            f"By {axis}", texts, pictures=pictures, commands=list(dict.fromkeys(commands))
        )


def lines_of(entry: Entry, along: str) -> Iterator[Line]:
    """Yield the lines of a result along an option: all else that was asked for is equal."""
    groups: dict[tuple[str, ...], dict[float, list[tuple[str, dict[str, Any]]]]] = {}
    others = [name for name in (*FIXED, *VARIED) if name != along]
    for run in entry.result.runs:
        for line in run.lines:
            x = number(line.get(along))
            if x is not None:
                same = tuple(plain(line.get(name)) for name in others)
                groups.setdefault(same, {}).setdefault(x, []).append((run.measure, line))
    long = {same: points for same, points in groups.items() if len(points) >= POINTS_MIN}
    telling = [at for at in range(len(others)) if len({same[at] for same in long}) > 1]
    for same, points in long.items():
        words = [_word(others[at], same[at]) for at in telling]
        label = entry.named(", ".join(words) or same[others.index("mode")])
        xs = sorted(points)
        ys = {}
        for what in MEASURED:
            found = [[number(line.get(what)) for _, line in points[x]] for x in xs]
            known = [[value for value in values if value is not None] for values in found]
            if all(known):
                ys[what] = [median(values) for values in known]
        measures = list(dict.fromkeys(measure for x in xs for measure, _ in points[x]))
        yield Line(label, along, xs, ys, entry.commands(measures))


def _word(name: str, value: str) -> str:
    if name.endswith("_bytes") and value.isdecimal():
        value = size(float(value))
    return f"{VARIED.get(name, name)} {value}"


def bend(xs: list[float], ys: list[float]) -> tuple[float, float, float] | None:
    """Return where a line bends most, and its slopes before and after, of the logarithms.

    Two straight lines that meet at one of the inner points, by least squares; None where fewer than
    three points are above 0.

    >>> at, before, after = bend([1, 2, 4, 8, 16], [10, 20, 40, 40, 40])
    >>> at, round(before, 3), round(abs(after), 3)
    (4.0, 1.0, 0.0)
    """
    above = [(x, y) for x, y in zip(xs, ys) if x > 0 and y > 0]
    if len(above) < POINTS_MIN:
        return None
    x, y = (np.log(np.array(each, float)) for each in zip(*above))
    best: tuple[float, float, float, float] | None = None
    for at in range(1, len(x) - 1):
        shape = np.column_stack([np.ones_like(x), x - x[at], np.maximum(x - x[at], 0)])
        found, *_ = np.linalg.lstsq(shape, y, rcond=None)
        error = float(np.square(shape @ found - y).sum())
        if best is None or error < best[0] - 1e-12:
            best = (error, float(above[at][0]), float(found[1]), float(found[1] + found[2]))
    return None if best is None else best[1:]


def _show(along: str) -> Callable[..., str]:
    return size if along.endswith("_bytes") else short


def _said(line: Line, axis: str) -> str:
    """Return the sentence on where a line bends."""
    what, values = next(iter(line.ys.items()))
    show = _show(line.along)
    told = [
        f"{figure(each)} records/s" if what == "records_per_s" else duration(each)
        for each in (values[0], values[-1])
    ]
    ends = f"{line.label!r}: {told[0]} at {axis} {show(line.xs[0])}, {told[1]} at "
    ends += show(line.xs[-1])
    found = bend(line.xs, values)
    if found is None:
        return ends + "."
    at, before, after = found
    if abs(before - after) < BEND:
        slope = 2 ** ((before + after) / 2)
        return f"{ends}. It does not bend: each doubling makes it {slope:.2f} times what it was."
    return (
        f"{ends}. It bends at {show(at)}: up to there each doubling makes it {2**before:.2f} times "
        f"what it was, beyond it {2**after:.2f} times."
    )


def _draw(lines: list[Line], what: str, axis: str) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        from matplotlib.ticker import FixedLocator, NullLocator

        axes, handles = axes_of(drawn, colours), []
        for at, line in enumerate(lines):
            look = style(at, colours)
            handles += axes.plot(
                line.xs, line.ys[what], marker=mark(at), markersize=5, linewidth=1.4, **look
            )
            found = bend(line.xs, line.ys[what])
            if found is not None and abs(found[1] - found[2]) >= BEND:
                y = line.ys[what][line.xs.index(found[0])]
                axes.plot(found[0], y, "o", markersize=13, fillstyle="none", color=colours.ink)
        xs = sorted({x for line in lines for x in line.xs})
        scale(axes.xaxis, xs, _show(lines[0].along))
        if len(xs) <= TICKS_MAX:
            axes.xaxis.set_major_locator(FixedLocator(xs))
            axes.xaxis.set_minor_locator(NullLocator())
        show = short if what == "records_per_s" else duration
        scale(axes.yaxis, [y for line in lines for y in line.ys[what]], show)
        axes.set_xlabel(axis)
        axes.set_ylabel(MEASURED[what])
        key(drawn, handles, [line.label for line in lines], colours)

    return draw
