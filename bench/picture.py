"""Draws the picture of README.md from the results of bench/beside_peers.py.

    python bench/picture.py docs/benchmarks/results.json docs/benchmarks/picture.svg

Two rows of bars: records a second with many outstanding, and microseconds with one outstanding. The
grey bar is the floor: the least work that three voters can do in C on the same disk.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

NAMES = {
    "floor": "floor (C, no protocol)",
    "kraftfast": "kraftfast",
    "aeron": "Aeron Cluster",
    "etcd": "etcd",
    "kafka": "Kafka",
}
"""In the order in which they are drawn."""
COLOURS = {"floor": "#b4b8c2", "kraftfast": "#3f51b5"}
OTHERS = "#8fa3c9"
WIDTH, LABEL, BAR, PITCH = 860, 175, 440, 26
PANELS = (
    ("throughput", "records_per_s", "Records a second: 1 KiB, many outstanding (more is better)"),
    ("latency", "p50_us", "One 100 B record outstanding: p50, and p99 as a line (less is better)"),
)
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 aria-label="{label}" font-family="system-ui, sans-serif" font-size="14">
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
"""


def picture(result: dict[str, Any]) -> str:
    """Return the SVG."""
    parts, y = [], 34
    for mode, key, title in PANELS:
        lines = {each["name"]: each for each in result["table"] if each["mode"] == mode}
        parts.append(text(20, y, title, weight="600"))
        y += 14
        most = max(each.get("p99_us" if mode == "latency" else key, 0) for each in lines.values())
        for name in NAMES:
            if name in lines:
                parts += bar(lines[name], key, y, most)
                y += PITCH
        y += 30
    for line in caption(result):
        parts.append(text(20, y, line, colour="#5b6070", size=12))
        y += 18
    head = HEAD.format(width=WIDTH, height=y + 4, label="Measured results: see the table beside it")
    return head + "\n".join(parts) + "\n</svg>\n"


def bar(line: dict[str, Any], key: str, y: int, most: float) -> Iterator[str]:
    """Yield the bar of a program, its name and its figures."""
    name, value = line["name"], line[key]
    length = max(2, round(BAR * value / most))
    colour = COLOURS.get(name, OTHERS)
    weight = "600" if name == "kraftfast" else "400"
    yield text(LABEL - 10, y + 14, NAMES[name], anchor="end", weight=weight)
    yield f'<rect x="{LABEL}" y="{y}" width="{length}" height="18" rx="2" fill="{colour}"/>'
    shown, end = figure(value), length
    if key == "p50_us":
        end = max(length, round(BAR * line["p99_us"] / most))
        yield (
            f'<line x1="{LABEL + length}" x2="{LABEL + end}" y1="{y + 9}" y2="{y + 9}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
        shown = f"{figure(value)} us, p99 {figure(line['p99_us'])} us"
    yield text(LABEL + end + 8, y + 14, shown, weight=weight)


def figure(value: float) -> str:
    """Return a number with three digits that count."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}"


def caption(result: dict[str, Any]) -> Iterator[str]:
    """Yield when, where and how it was measured."""
    load = "{:.0f} to {:.0f}".format(*result["load"])
    yield (
        f"{result['date']}, {result['processors']} processors, one disk, medians of "
        f"{result['rounds']} rounds by turns. Three voters, flushed on a majority."
    )
    yield f"Load average {load}, with the programs' own; before the first run {result['idle']:.1f}."
    if result["failover"]:
        found = result["failover"]
        yield (
            f"kill -9 of kraftfast's leader under load, {found['times']} times: next commit after "
            f"{found['p50_ms']:.0f} ms (p50), {found['worst_ms']:.0f} ms (worst)."
        )
    versions = [f"{NAMES[each['name']]} {each['version']}" for each in result["table"]]
    known = dict.fromkeys(each for each in versions if not each.endswith(" "))
    yield "; ".join([*known, "drawn from docs/benchmarks/results.json by bench/picture.py"])


def text(
    x: int, y: int, content: str, *, anchor: str = "start", weight: str = "400",
    colour: str = "#1d2130", size: int = 14,
) -> str:  # fmt: skip
    """Return a line of text."""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="{colour}">{escape(content)}</text>'
    )


def main() -> int:
    """Draw."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result = json.loads(Path(sys.argv[1]).read_text())
    Path(sys.argv[2]).write_text(picture(result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
