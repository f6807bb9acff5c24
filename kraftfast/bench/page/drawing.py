"""Draws pictures with matplotlib: SVG whose colours follow the page, and files for slides.

A picture for a page is drawn in colours that stand for names; those become ``currentColor`` and CSS
variables, and the text stays text. Files have the colours of the light page.
"""

from __future__ import annotations

import io
import logging
import os
import re
import warnings
import xml.etree.ElementTree as xml
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftfast.bench.page.parts import Picture
from kraftfast.bench.page.texts import plain
from kraftfast.errors import InvalidOption
from kraftfast.log.disk import storage_error

WIDTH, DPI = 5.2, 200
"""Inches of a picture, and dots of an inch in a PNG."""
MISSING = "pictures need matplotlib: pip install 'kraftfast[report]'"
SERIES = 8
SVG, XLINK = "http://www.w3.org/2000/svg", "http://www.w3.org/1999/xlink"
FONT = re.compile(r"font(?:-family)?:[^;]*;?\s*")
SIZE = re.compile(r"([0-9.]+)px")
MARKER = re.compile(r"#0a0[ab][0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Colours:
    """The colours of a picture. ``paper``: what hollow marks are filled with."""

    ink: str
    muted: str
    grid: str
    paper: str
    series: tuple[str, ...]


MARKERS = Colours(
    "#0a0a01", "#0a0a02", "#0a0a03", "#0a0a04", tuple(f"#0a0b{n:02x}" for n in range(SERIES))
)
LIGHT = Colours(
    "#1d2130", "#5b6070", "#d5d8e0", "#ffffff",
    ("#3f51b5", "#c2571a", "#2e7d32", "#8e44ad", "#0f7c8c", "#b0286b", "#7a6412", "#5b6070"),
)  # fmt: skip
DARK = Colours(
    "#e4e6ee", "#a4a9b8", "#3a3f4e", "#14161d",
    ("#9aa8ff", "#ffab70", "#7fd38a", "#d9a3f0", "#5fd0e0", "#ff8fc0", "#dcc76a", "#b4b8c2"),
)  # fmt: skip
VARIABLES = {
    MARKERS.ink: "currentColor",
    MARKERS.muted: "var(--kf-muted)",
    MARKERS.grid: "var(--kf-grid)",
    MARKERS.paper: "var(--kf-paper)",
    **{colour: f"var(--kf-{number})" for number, colour in enumerate(MARKERS.series)},
}
SETTINGS: dict[str, Any] = {
    "svg.fonttype": "none",
    "text.parse_math": False,
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "legend.fontsize": 8.0,
    "xtick.labelsize": 8.0,
    "ytick.labelsize": 8.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "path.simplify": False,
}


def is_installed() -> bool:
    """Return whether matplotlib is there."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        return False
    return True


def inline(picture: Picture) -> str:
    """Return a picture as an SVG element of a page. Raises InvalidOption without matplotlib."""
    made = xml.fromstring(_drawn(picture, MARKERS, "svg"))
    _name_apart(made, picture.name)
    for each in made.iter():
        style = each.get("style")
        if style is not None:
            each.set("style", MARKER.sub(_variable, _in_the_pages_font(style)))
    for metadata in made.findall(f"{{{SVG}}}metadata"):
        made.remove(metadata)
    for key in ("width", "height"):
        made.attrib.pop(key, None)
    made.set("role", "img")
    made.set("aria-label", plain(picture.title))
    xml.register_namespace("", SVG)
    xml.register_namespace("xlink", XLINK)
    return xml.tostring(made, encoding="unicode")


def save(picture: Picture, folder: Path) -> list[Path]:
    """Write a picture into a folder as SVG and PNG; return the paths.

    Raises InvalidOption without matplotlib, StorageError.
    """
    paths = []
    for kind in ("svg", "png"):
        path = folder / f"{picture.name}.{kind}"
        beside = path.with_name(f".{path.name}.new")
        content = _drawn(picture, LIGHT, kind)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            beside.write_bytes(content)
            os.replace(beside, path)
        except OSError as error:
            with suppress(OSError):
                beside.unlink()
            raise storage_error("cannot write", str(path), error) from None
        paths.append(path)
    return paths


def _drawn(picture: Picture, colours: Colours, kind: str) -> bytes:
    with _matplotlib(picture.name) as figure_class:
        figure = figure_class(figsize=(WIDTH, picture.height), layout="constrained")
        if colours is MARKERS:
            figure.patch.set_visible(False)
        else:
            figure.suptitle(plain(picture.title, 70), color=colours.ink, fontsize=10, weight="bold")
        picture.draw(figure, colours)
        file = io.BytesIO()
        metadata = {"Date": None} if kind == "svg" else {}
        figure.savefig(file, format=kind, dpi=DPI, metadata=metadata)
    return file.getvalue()


@contextmanager
def _matplotlib(name: str) -> Iterator[Any]:
    """Hand out matplotlib's figures, whatever the user's own settings are, and keep it silent:
    a name in a script that its fonts lack is drawn by the browser."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError:
        raise InvalidOption(MISSING) from None
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.simplefilter("ignore")
        matplotlib.rcdefaults()
        settings: Any = matplotlib.rcParams  # its type lists the names of all settings
        settings.update(SETTINGS | {"svg.hashsalt": name})
        yield Figure


def _variable(match: re.Match[str]) -> str:
    return VARIABLES.get(match[0], match[0])


def _in_the_pages_font(style: str) -> str:
    """Return a style without its own font, but with the size of it."""
    font = FONT.search(style)
    size = SIZE.search(font[0]) if font else None
    if font is None or (size is None and "family" not in font[0]):
        return style
    weight = "font-weight: 600; " if "bold" in font[0] or " 700 " in font[0] else ""
    return (f"font-size: {size[1]}px; " if size else "") + weight + FONT.sub("", style)


def _name_apart(root: xml.Element, name: str) -> None:
    """Make the names within a picture its own: a page holds many pictures."""
    for each in root.iter():
        for key, value in each.attrib.items():
            if key == "id":
                each.set(key, f"{name}-{value}")
            elif value.startswith("#") and key.endswith("href"):
                each.set(key, f"#{name}-{value[1:]}")
            elif value.startswith("url(#"):
                each.set(key, f"url(#{name}-{value[5:]}")
