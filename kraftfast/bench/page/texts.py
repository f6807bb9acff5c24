"""Figures and names as a page shows them. What a result calls itself is not trusted."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

LABEL_CHARACTERS = 56
TEXT_CHARACTERS = 2000
UNITS = ((1e9, "G"), (1e6, "M"), (1e3, "k"))


def plain(text: object, most: int = TEXT_CHARACTERS) -> str:
    """Return a text of one line without control or format characters, cut to ``most`` characters.

    They would end an XML document, or turn what stands behind them around.

    >>> plain("a\\nb\\x00\\u202ec"), plain("abcdef", 4)
    ('a b??c', 'abc…')
    """
    spaced = str(text)[: most + 1].replace("\n", " ").replace("\t", " ")
    shown = "".join(each if each.isprintable() else "?" for each in spaced)
    return shown if len(shown) <= most else shown[: most - 1] + "…"


def label(text: object) -> str:
    """Return a text that fits beside a line of a picture."""
    return plain(text, LABEL_CHARACTERS)


def figure(value: float | None) -> str:
    """Return three digits of a small figure, the whole of a large one; a dash for None.

    >>> figure(1234567.8), figure(0.12345), figure(0), figure(None)
    ('1,234,568', '0.123', '0', '-')
    """
    if value is None:
        return "-"
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def short(value: float, _position: object = None) -> str:
    """Return a figure as an axis shows it.

    >>> short(1500), short(2e6), short(0.25), short(40)
    ('1.5k', '2M', '0.25', '40')
    """
    for unit, letter in UNITS:
        if abs(value) >= unit:
            return f"{value / unit:.3g}{letter}"
    return f"{value:.3g}"


def size(count: float, _position: object = None) -> str:
    """Return bytes in the largest unit that they are at least one of.

    >>> size(100), size(65536), size(1_500_000)
    ('100 B', '64 KiB', '1.43 MiB')
    """
    for power, letter in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.3g} {letter}"
    return f"{count:.3g} B"


def duration(us: float, _position: object = None) -> str:
    """Return a time in the unit that suits it.

    >>> duration(250), duration(12_000), duration(2.5e6), duration(0.5)
    ('250 µs', '12 ms', '2.5 s', '0.5 µs')
    """
    if abs(us) < 1e3:
        return f"{us:.3g} µs"
    return f"{us / 1e3:.3g} ms" if abs(us) < 1e6 else f"{us / 1e6:.3g} s"


def spread(values: list[float], show: Callable[[float], str] = figure) -> str:
    """Return a median with its range; a dash where there is no value.

    >>> spread([3.0, 1.0, 2.0]), spread([])
    ('2 (1–3)', '-')
    """
    if not values:
        return "-"
    if min(values) == max(values):
        return show(values[0])
    return f"{show(median(values))} ({show(min(values))}–{show(max(values))})"
