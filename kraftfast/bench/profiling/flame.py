"""Flame graphs as SVG: a box is a function, its width its share of the samples.

The colour says what kind of code it is, or, against an earlier profile, how its own share changed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from html import escape

from kraftfast.bench.profiling.stacks import Function, Stacks

WIDTH, ROW, MARGIN, HEAD = 1200.0, 17.0, 10.0, 46.0
LEAST = 0.4
"""Boxes narrower than so many pixels are left out."""
LETTER = 6.6
"""Pixels of a character of the font."""
PYTHON, CYTHON, NATIVE = "#4e9a9a", "#e8a33d", "#d9603b"
SAME, GREW, SHRANK = (232, 232, 226), (205, 52, 40), (40, 98, 190)
FULL_CHANGE = 0.05
"""A function whose share changed by so much has the full colour."""

Colour = Callable[[Function], str]


@dataclass(slots=True)
class _Box:
    count: int = 0
    inner: dict[Function, _Box] = field(default_factory=dict)


def by_kind(function: Function) -> str:
    """Return the colour of the kind of code: Python, Cython, or native."""
    file = function[1]
    if file.endswith(".py") or file.startswith("<"):
        return PYTHON
    return CYTHON if file.endswith((".pyx", ".pxd")) else NATIVE


def by_change(before: Stacks, after: Stacks) -> Colour:
    """Return the colours of a comparison: red where a function's own share grew, blue where it
    shrank."""
    old, new = before.self_shares(), after.self_shares()

    def colour(function: Function) -> str:
        grown = new.get(function, 0.0) - old.get(function, 0.0)
        part = min(1.0, abs(grown) / FULL_CHANGE)
        far = GREW if grown > 0 else SHRANK
        mixed = (round(a + (b - a) * part) for a, b in zip(SAME, far))
        return "#" + "".join(f"{each:02x}" for each in mixed)

    return colour


def draw(stacks: Stacks, title: str, note: str, colour: Colour = by_kind) -> str:
    """Return the flame graph as the text of an SVG file; ``note`` is its second line."""
    root = _tree(stacks)
    deepest = max((len(stack) for stack in stacks.counts), default=0) + 1
    height = HEAD + deepest * ROW + MARGIN
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH:.0f} {height:.0f}" '
        'font-family="monospace" font-size="11">',
        f'<rect width="100%" height="100%" fill="#fffdf7"/>'
        f'<text x="{MARGIN}" y="18" font-size="14">{escape(title)}</text>'
        f'<text x="{MARGIN}" y="36" fill="#555">{escape(note)}</text>',
    ]
    if root.count:
        scale = (WIDTH - 2 * MARGIN) / root.count
        _draw(lines, root, (f"all, {root.count} samples", ""), 0, 0, scale, height, colour)
    return "\n".join([*lines, "</svg>\n"])


def _tree(stacks: Stacks) -> _Box:
    root = _Box()
    for stack, count in stacks.counts.items():
        box = root
        box.count += count
        for function in stack:
            box = box.inner.setdefault(function, _Box())
            box.count += count
    return root


def _draw(
    lines: list[str],
    root: _Box,
    name: Function,
    depth: int,
    start: int,
    scale: float,
    height: float,
    colour: Colour,
) -> None:
    """Append a box and those above it; without recursion, stacks may be deep."""
    todo = [(root, name, depth, start)]
    while todo:
        box, function, depth, start = todo.pop()
        width = box.count * scale
        if width < LEAST:
            continue
        x, y = MARGIN + start * scale, height - MARGIN - (depth + 1) * ROW
        text = function[0] + (f" ({function[1]})" if function[1] else "")
        share = f"{box.count} samples, {100 * box.count / root.count:.2f} %"
        fill = colour(function) if depth else "#cccccc"
        shown = text[: int((width - 4) / LETTER)] if width > 4 * LETTER else ""
        lines.append(
            f'<g><title>{escape(text)}: {share}</title><rect x="{x:.2f}" y="{y:.1f}" '
            f'width="{width:.2f}" height="{ROW - 1}" fill="{fill}"/>'
            f'<text x="{x + 3:.2f}" y="{y + 12:.1f}">{escape(shown)}</text></g>'
        )
        at = start
        for inner, found in sorted(box.inner.items()):
            todo.append((found, inner, depth + 1, at))
            at += found.count
