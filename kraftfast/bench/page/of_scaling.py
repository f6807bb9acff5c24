"""How it grows: lines of what differs in one option only, and where each line bends."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

import numpy as np

from kraftfast.bench.page.axes import axes_of, chunks, key, key_height, mark, scale, style
from kraftfast.bench.page.drawing import SERIES, Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section
from kraftfast.bench.page.result_lines import dicts, number, numbers
from kraftfast.bench.page.texts import duration, figure, plain, short, size

VARIED = {
    "voters": "voters",
    "value_bytes": "record size",
    "window": "window",
    "producers": "producers",
    "batch_bytes": "batch size",
    "observers": "observers",
    "connections": "idle connections",
    "log_mib": "MiB of the log",
    "snapshot_mib": "MiB of the snapshot",
    "retained_producers": "producers that are remembered",
}
"""What a line may run along: key of a result's line -> the name of the axis."""
FIXED = (
    "peer", "mode", "sync", "durability", "flush", "transport", "idle", "compression", "codec",
    "values", "retention_mib", "how", "files", "rate_wanted", "part", "callers",
)  # fmt: skip
"""What else must be equal within a line."""


def _seconds(value: float, _position: object = None) -> str:
    return duration(value * 1e6)


Text = Callable[..., str]
SHOWN: dict[str, tuple[str, Text, str]] = {
    "records_per_s": ("records/s", short, "{} records/s"),
    "took_s": ("time", _seconds, "{}"),
    "core_percent": ("% of a processor", short, "{} % of a processor"),
    "p50_us": ("p50", duration, "{}"),
    "p99_us": ("p99", duration, "{}"),
    "largest_worker_mb": ("MB of the largest replica", short, "{} MB in the largest replica"),
}
"""Key of what is drawn -> its name, how an axis shows it, and the words around its figure."""
BESIDES = "largest_worker_mb"
"""Has a sentence of its own beside that on the first of these."""
POINTS_MIN = 3
HEIGHT, TICKS_MAX, SENTENCES_MAX = 2.5, 9, 16
BEND = 0.15
"""By so much the slopes before and after must differ, in a picture with two logarithmic axes."""
FLAT, LEVEL = 1.1, 0.03
"""A line is flat where its highest value is no more than FLAT times its lowest; a part of it is
level where a doubling changes it by no more than LEVEL."""
LACKS = plain(None)
"""The value of a setting that a line does not have."""
USED_UP = 0.9
"""So much of a processor is all of it: the kernel counts in ticks."""


@dataclass(frozen=True, slots=True)
class Use:
    """How many processors were used at a point: by all processes, and by which one most."""

    all_of_them: float
    busiest: float
    name: str


@dataclass(frozen=True, slots=True)
class Line:
    """The medians along one option. ``label``: what it has that others have not.

    ``ranges``: of each point, the lowest and the highest. ``uses``: of each point, where known.
    """

    label: str
    along: str
    xs: list[float]
    ys: dict[str, list[float]]
    ranges: dict[str, list[tuple[float, float]]]
    uses: list[Use | None]
    processors: float | None
    commands: list[str]


def scaling(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield a section for each option along which there are lines."""
    for along, axis in VARIED.items():
        lines = [line for each in entries for line in lines_of(each, along)]
        if not lines:
            continue
        measured = [key for key in SHOWN if any(key in line.ys for line in lines)]
        said = [_said(line, what, axis) for line in lines for what in _told_of(line)]
        texts = ["A circle is where a line bends most.", *said[:SENTENCES_MAX]]
        if len(said) > SENTENCES_MAX:
            texts.append(f"These are the first {SENTENCES_MAX} of {len(said)} lines.")
        commands = [command for line in lines for command in line.commands]
        pictures = []
        for what in measured:
            there = [line for line in lines if what in line.ys]
            for at, part in enumerate(chunks(there, SERIES), 1):
                height = HEIGHT + key_height([line.label for line in part])
                name = f"scaling-{along.replace('_', '-')}-{what.replace('_', '-')}-{at}"
                title = f"{SHOWN[what][0]} by {axis}"
                pictures.append(Picture(name, title, height, _draw(part, what, axis)))
        yield Section(
            f"By {axis}", texts, pictures=pictures, commands=list(dict.fromkeys(commands))
        )


def lines_of(entry: PageEntry, along: str) -> Iterator[Line]:
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
    telling = _telling(list(long))
    for same, points in long.items():
        words = [_word(others[at], same[at]) for at in telling if same[at] != LACKS]
        label = entry.named(", ".join(words) or same[others.index("mode")])
        xs = sorted(points)
        lines = [[line for _, line in points[x]] for x in xs]
        ys, ranges = {}, {}
        for what in SHOWN:
            known = [numbers(each, what) for each in lines]
            if all(known):
                ys[what] = [median(values) for values in known]
                ranges[what] = [(min(values), max(values)) for values in known]
        measures = list(dict.fromkeys(measure for x in xs for measure, _ in points[x]))
        yield Line(
            label,
            along,
            xs,
            ys,
            ranges,
            [_use(each) for each in lines],
            number(entry.result.machine.get("processors")),
            entry.commands(measures),
        )


def _telling(lines: list[tuple[str, ...]]) -> list[int]:
    """Return which settings tell lines apart; one that some only lack if there is no other way."""
    columns = list(enumerate(map(set, zip(*lines))))
    telling = [at for at, values in columns if len(values - {LACKS}) > 1]
    if len({tuple(same[at] for at in telling) for same in lines}) == len(lines):
        return telling
    return [at for at, values in columns if len(values) > 1]


def _use(lines: list[dict[str, Any]]) -> Use | None:
    """Return what processors were used in the median of the repetitions, if that is known."""
    found = []
    for line in lines:
        seconds = number(line.get("seconds"))
        shares = [
            (sum(numbers([each], "user_s") + numbers([each], "system_s")), each.get("name"))
            for each in dicts(line.get("processes_cost"))
        ]
        if seconds and shares:
            busiest, name = max(shares, key=lambda share: share[0])
            used = sum(share for share, _ in shares) / seconds
            found.append(Use(used, busiest / seconds, plain(name)))
    found.sort(key=lambda use: use.all_of_them)
    return found[len(found) // 2] if found else None


def _told_of(line: Line) -> list[str]:
    """Return what of a line has a sentence: the first that was measured, and its memory."""
    first = next(iter(line.ys), None)
    besides = [BESIDES] if BESIDES in line.ys and first != BESIDES else []
    return besides if first is None else [first, *besides]


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


def _said(line: Line, what: str, axis: str) -> str:
    """Return the sentences on where a line bends, and on what bends it."""
    values, show, xs = line.ys[what], _show(line.along), line.xs
    first, last = (_figure(what, each) for each in (values[0], values[-1]))
    told = [f"{line.label!r}: {first} at {axis} {show(xs[0])}, {last} at {show(xs[-1])}."]
    found = bend(xs, values)
    if found is None:
        return told[0]
    if (flat := _is_flat(values, line.ranges[what])) is not None:
        return " ".join([*told, flat])
    if xs[0] == 0 and values[0] and _differ(*line.ranges[what][:2]):
        told.append(f"From 0 to {show(xs[1])} it changes to {values[1] / values[0]:.2f} times.")
    at, before, after = found
    if abs(before - after) < BEND:
        told.append(f"It does not bend: {_slope((before + after) / 2)}.")
        at = xs[-1]
    else:
        told.append(
            f"It bends at {show(at)}: up to there {_slope(before)}, and from there {_slope(after)}."
        )
    return " ".join([*told, *_why(line, at)])


def _figure(what: str, value: float) -> str:
    _, shown, words = SHOWN[what]
    return words.format(figure(value) if shown is short else shown(value))


def _slope(slope: float) -> str:
    """Return what a doubling does to a line of this slope.

    >>> _slope(1.0), _slope(-1.0), _slope(0.01)
    ('each doubling makes it 2.00 times', 'each doubling makes it 0.50 times', 'it stays as it is')
    """
    times = 2**slope
    if abs(times - 1) <= LEVEL:
        return "it stays as it is"
    return f"each doubling makes it {times:.2f} times"


def _is_flat(values: list[float], ranges: list[tuple[float, float]]) -> str | None:
    """Return what is said of a line that does not change; None of one that does."""
    lows, highs = zip(*ranges)
    if lows != highs and max(lows) <= min(highs):
        return "No change is shown: the ranges of all points overlap."
    if min(values) > 0 and max(values) <= FLAT * min(values):
        above = 100 * (max(values) / min(values) - 1)
        return f"It is flat: its highest point is {above:.0f} % above its lowest."
    return None


def _differ(one: tuple[float, float], other: tuple[float, float]) -> bool:
    """Return whether the values of two points lie apart, and by enough."""
    lower, upper = sorted((one, other))
    return upper[0] > lower[1] and upper[1] > FLAT * lower[0]


def _why(line: Line, at: float) -> list[str]:
    """Return a sentence on what the processes did at a point: what is used up bends a line."""
    use, processors = line.uses[line.xs.index(at)], line.processors
    if use is None or not processors:
        return []
    where, name = f"At {_show(line.along)(at)},", repr(use.name)
    used = f"{use.all_of_them:.1f} of {processors:.0f}"
    if use.all_of_them >= USED_UP * processors:
        return [f"{where} the processors are used up ({used}), {use.busiest:.1f} by {name}."]
    if use.busiest >= USED_UP:
        return [f"{where} {name} uses a whole processor; {used} are in use."]
    return [
        f"{where} {used} processors are in use, {use.busiest:.1f} by {name}: it waits for flushes, "
        f"for answers, or for other programs."
    ]


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
            flat = _is_flat(line.ys[what], line.ranges[what])
            if found is not None and flat is None and abs(found[1] - found[2]) >= BEND:
                y = line.ys[what][line.xs.index(found[0])]
                axes.plot(found[0], y, "o", markersize=13, fillstyle="none", color=colours.ink)
        xs = sorted({x for line in lines for x in line.xs})
        scale(axes.xaxis, xs, _show(lines[0].along), zero=True)
        if len(xs) <= TICKS_MAX:
            axes.xaxis.set_major_locator(FixedLocator(xs))
            axes.xaxis.set_minor_locator(NullLocator())
        name, show, _ = SHOWN[what]
        scale(axes.yaxis, [y for line in lines for y in line.ys[what]], show)
        axes.set_xlabel(axis)
        axes.set_ylabel(name)
        key(drawn, handles, [line.label for line in lines], colours)

    return draw
