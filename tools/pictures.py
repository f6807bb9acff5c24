"""Draw the pictures of ARCHITECTURE.md: ``docs/pictures/*.txt`` -> ``.svg`` beside each.

A text is a table, one part a line; positions and sizes are pixels, ``|`` divides lines of text:

    size 900 400 | what the picture shows
    KIND  NAME X Y WIDTH HEIGHT | first line, bold | further lines
    link|bend  A -> B  DX DY | label | further lines

KIND is host, process or disk, which hold others, or thread, memory or file. An arrow is ``->``,
``<->`` or, dashed, ``..>``. A link is straight, between boxes that face each other; a bend leaves A
upwards or downwards and enters B from the side. DX and DY move the arrow along the boxes that it
joins. A box that overlaps another one or is too small for its text is refused, with its line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from html import escape
from pathlib import Path

FOLDER = "docs/pictures"
KINDS = {  # kind: (fill, edge, are its lines in the middle)
    "host": ("#f7f8fa", "#b4b8c2", False),
    "process": ("#e8ebf8", "#3f51b5", False),
    "disk": ("#f3f9f4", "#5b9a68", False),
    "thread": ("#ffffff", "#8fa3c9", True),
    "memory": ("#fff3d6", "#c99a2e", True),
    "file": ("#e4f2e7", "#5b9a68", True),
}
PART = re.compile(r"(\w+) +(\w+)((?: +\d+){4})")
ARROW = re.compile(r"(link|bend) +(\w+) +(<->|->|\.\.>) +(\w+)((?: +-?\d+){2})")
FONT, PITCH = 12, 16
WIDEST = 0.57
"""The width of a letter in parts of the size of the font: what DejaVu, the widest, needs."""
HEAD = """\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" role="img"
 aria-label="{label}" font-family="Helvetica, Arial, sans-serif" font-size="{font}" fill="#1d2130">
<!-- Made by tools/pictures.py from {source}. -->
<defs><marker id="end" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7"
 orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" fill="#1d2130"/></marker></defs>
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
"""


class BadPicture(Exception):
    """The text of a picture has a mistake: which, and in which line."""


@dataclass(frozen=True)
class Box:
    """A part of the picture: its kind, its place and what is written in it."""

    kind: str
    x: int
    y: int
    width: int
    height: int
    lines: tuple[str, ...]

    @property
    def right(self) -> int:
        return self.x + self.width

    @property
    def bottom(self) -> int:
        return self.y + self.height

    def holds(self, other: Box) -> bool:
        """Tell whether the other box is inside this one."""
        across = self.x <= other.x and other.right <= self.right
        return across and self.y <= other.y and other.bottom <= self.bottom

    def meets(self, other: Box) -> bool:
        """Tell whether the two boxes share any place."""
        across = self.x < other.right and other.x < self.right
        return across and self.y < other.bottom and other.y < self.bottom

    def drawn(self) -> str:
        """Return the box and its lines of text."""
        fill, edge, middle = KINDS[self.kind]
        top = self.y + 18
        if middle:
            top = self.y + (self.height - PITCH * len(self.lines)) // 2 + 12
        parts = [
            f'<rect x="{self.x}" y="{self.y}" width="{self.width}" height="{self.height}" rx="5"'
            f' fill="{fill}" stroke="{edge}"/>'
        ]
        for number, line in enumerate(self.lines):
            x, anchor = (self.x + self.width // 2, "middle") if middle else (self.x + 10, "start")
            parts.append(text(x, top + PITCH * number, line, anchor, bold=number == 0))
        return "\n".join(parts)


def text(x: int, y: int, line: str, anchor: str, *, bold: bool = False, halo: bool = False) -> str:
    """Return a line of text; ``halo``: with a light edge, so that it can be read over lines."""
    more = ' font-weight="600"' if bold else ""
    more += ' stroke="#ffffff" stroke-width="4" paint-order="stroke"' if halo else ""
    return f'<text x="{x}" y="{y}" text-anchor="{anchor}"{more}>{escape(line)}</text>'


def track(a: Box, b: Box, dx: int, dy: int, *, bend: bool) -> list[tuple[int, int]]:
    """Return the points of an arrow; none for a link of boxes that do not face each other."""
    left, right = max(a.x, b.x), min(a.right, b.right)
    top, bottom = max(a.y, b.y), min(a.bottom, b.bottom)
    if bend:
        x, y = a.x + a.width // 2 + dx, b.y + b.height // 2 + dy
        return [(x, a.bottom if a.y < y else a.y), (x, y), (b.right if b.x < x else b.x, y)]
    if top < bottom:
        y = (top + bottom) // 2 + dy
        return [(a.right, y), (b.x, y)] if a.x < b.x else [(a.x, y), (b.right, y)]
    if left < right:
        x = (left + right) // 2 + dx
        return [(x, a.bottom), (x, b.y)] if a.y < b.y else [(x, a.y), (x, b.bottom)]
    return []


def arrow(points: list[tuple[int, int]], way: str, lines: list[str]) -> str:
    """Return an arrow with its label at the middle of its last part."""
    ends = ' marker-end="url(#end)"' + (' marker-start="url(#end)"' if way == "<->" else "")
    ends += ' stroke-dasharray="5 4"' if way == "..>" else ""
    course = " ".join(f"{x},{y}" for x, y in points)
    parts = [f'<polyline points="{course}" fill="none" stroke="#1d2130"{ends}/>']
    (x1, y1), (x2, y2) = points[-2:]
    flat = y1 == y2
    x, y = (x1 + x2) // 2, (y1 + y2) // 2
    start = y - 6 - PITCH * (len(lines) - 1) if flat else y + 4 - PITCH * (len(lines) - 1) // 2
    for number, line in enumerate(lines):
        place = (x, "middle") if flat else (x + 8, "start")
        parts.append(text(place[0], start + PITCH * number, line, place[1], halo=True))
    return "\n".join(parts)


def check(box: Box, others: list[Box], where: str) -> None:
    """Raise BadPicture if the text does not fit into the box, or the box overlaps another one."""
    longest = max((len(line) for line in box.lines), default=0)
    if longest * FONT * WIDEST > box.width or PITCH * len(box.lines) > box.height:
        raise BadPicture(f"{where}: the text does not fit")
    if any(box.meets(other) and not other.holds(box) for other in others):
        raise BadPicture(f"{where}: it overlaps another box and is not inside it")


def picture(table: str, source: str) -> str:
    """Return the SVG of a table. Raises BadPicture."""
    boxes: dict[str, Box] = {}
    arrows, head = [], ""
    for number, line in enumerate(table.splitlines(), 1):
        what, *lines = (each.strip() for each in line.split("|"))
        where = f"{source}:{number}"
        part, joint = PART.fullmatch(what), ARROW.fullmatch(what)
        if not what or what.startswith("#"):
            continue
        if what.startswith("size "):
            width, height = (int(each) for each in what.split()[1:])
            label = escape(" ".join(lines))
            head = HEAD.format(width=width, height=height, label=label, font=FONT, source=source)
        elif part and part[1] in KINDS:
            x, y, across, down = (int(each) for each in part[3].split())
            box = Box(part[1], x, y, across, down, tuple(lines))
            check(box, [*boxes.values()], where)
            boxes[part[2]] = box
        elif joint and joint[2] in boxes and joint[4] in boxes:
            dx, dy = (int(each) for each in joint[5].split())
            ends = boxes[joint[2]], boxes[joint[4]]
            points = track(*ends, dx, dy, bend=joint[1] == "bend")
            if not points:
                raise BadPicture(f"{where}: the boxes do not face each other: use bend")
            arrows.append(arrow(points, joint[3], lines))
        else:
            raise BadPicture(f"{where}: neither a box nor an arrow between boxes that are above it")
    if not head:
        raise BadPicture(f"{source}: no size")
    return "\n".join([head.rstrip(), *(box.drawn() for box in boxes.values()), *arrows, "</svg>\n"])


def generated(root: Path) -> dict[Path, str]:
    """Return the SVG of every table of the repository."""
    return {
        path.with_suffix(".svg"): picture(path.read_text(), f"{FOLDER}/{path.name}")
        for path in sorted((root / FOLDER).glob("*.txt"))
    }
