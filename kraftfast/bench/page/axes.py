"""Shapes that several pictures have: axes, rows with their names above them, and a key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from kraftfast.bench.page.drawing import SERIES, Colours
from kraftfast.bench.page.texts import label, short

ROW, ABOVE_AND_BELOW = 0.45, 0.75
"""Inches of a row, and of what stands above and below all of them."""
ROWS_MAX = 16
WIDE = 12.0
"""Where the largest value is so many times the smallest, an axis is logarithmic."""
MARKS = "os^DvPX*"
DASHES = ("-", (0, (5, 2)), (0, (2, 1.5)), (0, (6, 2, 1, 2)))
KEY_ROW, KEY_COLUMNS_CHARACTERS = 0.17, 24


def rows_height(count: int) -> float:
    """Return the inches of a picture with so many rows."""
    return ABOVE_AND_BELOW + ROW * count


def axes_of(figure: Any, colours: Colours, rows: int = 1, **settings: Any) -> Any:
    """Return the axes of a picture, several below each other with one x axis for ``rows`` > 1."""
    made = figure.subplots(rows, 1, sharex=True, squeeze=False, **settings)[:, 0]
    for each in made:
        each.set_facecolor("none")
        each.tick_params(colors=colours.ink, which="both", length=2)
        each.grid(color=colours.grid, linewidth=0.6)
        for spine in each.spines.values():
            spine.set_color(colours.muted)
        for text in (each.xaxis.label, each.yaxis.label):
            text.set_color(colours.ink)
    return made if rows > 1 else made[0]


def scale(
    axis: Any, values: Sequence[float], show: Callable[..., str] = short, zero: bool = False
) -> None:
    """Show these values on an axis (``axes.xaxis``): by their logarithm where they are far apart.

    An axis by value begins at 0, so that lengths can be compared. ``zero``: a logarithmic one has
    a place for 0, too, where that is one of them.
    """
    from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

    set_scale = getattr(axis.axes, f"set_{axis.axis_name}scale")
    set_limits = getattr(axis.axes, f"set_{axis.axis_name}lim")
    above = [each for each in values if each > 0]
    if above and max(above) > WIDE * min(above):
        set_scale("log")
        near = max(above) < 1e3 * min(above)
        axis.set_major_locator(LogLocator(subs=(1, 3) if near else (1,), numticks=7))
        axis.set_minor_formatter(NullFormatter())
        set_limits(min(above) / 1.35, max(above) * 1.35)
        if zero and min(values) == 0:
            set_scale("symlog", linthresh=min(above))
            set_limits(-0.15 * min(above), max(above) * 1.35)
    else:
        axis.set_major_locator(MaxNLocator(6))
        set_limits(0, max(above, default=1.0) * 1.08)
    axis.set_major_formatter(FuncFormatter(show))


def row_names(axes: Any, names: list[str], colours: Colours) -> None:
    """Number rows from the top, each with its name above its middle."""
    from matplotlib.transforms import blended_transform_factory

    place = blended_transform_factory(axes.transAxes, axes.transData)
    behind = {"facecolor": colours.paper, "edgecolor": "none", "pad": 0.6}
    for at, name in enumerate(names):
        axes.text(
            0.0,
            at - 0.26,
            label(name),
            transform=place,
            color=colours.ink,
            fontsize=8.5,
            bbox=behind,
        )
    axes.set_ylim(len(names) - 0.4, -0.78)
    axes.set_yticks([])
    axes.grid(visible=False, axis="y")
    axes.spines["left"].set_visible(False)


def key(figure: Any, handles: list[Any], names: list[str], colours: Colours) -> None:
    """Say below a picture what its lines are; of one alone its title and the sentences say it."""
    if len(handles) < 2:
        return
    shown = [label(name) for name in names]
    wide = max(map(len, shown)) > KEY_COLUMNS_CHARACTERS
    shown = [f"\u200b{name}" if name.startswith("_") else name for name in shown]
    columns = 1 if wide else min(3, len(shown))
    figure.legend(
        handles, shown, loc="outside lower left", ncols=columns, labelcolor=colours.ink,
        handlelength=2.2, borderpad=0.1, labelspacing=0.3,
    )  # fmt: skip


def key_height(names: list[str]) -> float:
    """Return the inches that the key of a picture takes."""
    names = [label(name) for name in names]
    if len(names) < 2:
        return 0.0
    wide = max(map(len, names)) > KEY_COLUMNS_CHARACTERS
    return 0.15 + KEY_ROW * (len(names) if wide else (len(names) + 2) // 3)


def style(number: int, colours: Colours) -> dict[str, Any]:
    """Return how the line of that number looks: also without its colour."""
    turn = number // SERIES
    return {
        "color": colours.series[number % SERIES],
        "linestyle": DASHES[(number + turn) % len(DASHES)],
    }


def mark(number: int) -> str:
    """Return the mark of the line of that number."""
    return MARKS[number % len(MARKS)]


def chunks(things: list[Any], most: int) -> list[list[Any]]:
    """Return the things in parts of at most ``most``, of about the same size."""
    parts = max(1, -(-len(things) // most))
    bounds = [len(things) * part // parts for part in range(parts + 1)]
    return [things[begin:end] for begin, end in zip(bounds, bounds[1:]) if begin < end]
