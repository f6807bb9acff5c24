"""Writes the picture of README.md, and the table of the page of benchmarks, from a result.

    python bench/picture.py docs/benchmarks/results.json docs/benchmarks

The result is one of `kraftfast bench peers`. Two rows of bars: records a second with many
outstanding, and microseconds with one outstanding. The grey bar is the floor: the least work that
three voters can do in C on the same disk. The table stands in index.md of that folder, between
`<!-- results -->` and `<!-- /results -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median
from typing import Any
from xml.sax.saxutils import escape

from kraftfast.bench.page.texts import spread
from kraftfast.bench.peers import FAILOVER, OURS, rows
from kraftfast.bench.results.result import Result

NAMES = {
    "floor": "floor (C, no protocol)",
    "kraftfast-socket": "kraftfast, TCP",
    "aeron": "Aeron Cluster",
    "etcd-raft": "etcd's raft",
    "hashicorp-raft": "hashicorp/raft",
    "jraft": "SOFAJRaft",
    "kafka": "Kafka",
    "nats": "NATS JetStream",
    "pysyncobj": "PySyncObj",
    "ratis": "Apache Ratis",
    "zookeeper": "ZooKeeper",
}
COLOURS = {"floor": "#b4b8c2", "kraftfast": "#3f51b5", "kraftfast-socket": "#3f51b5"}
OTHERS = "#8fa3c9"
WIDTH, LABEL, BAR, PITCH = 860, 175, 440, 26
CAPTION_CHARACTERS = 120
PANELS = (
    ("throughput", "records_per_s", "Records a second: 1 KiB, many outstanding (more is better)"),
    ("latency", "p50_us", "One 100 B record outstanding: p50, and p99 as a line (less is better)"),
)
TITLES = {"throughput": "1 KiB, many outstanding", "latency": "100 B, one outstanding"}
HEAD = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img"
 aria-label="{label}" font-family="system-ui, sans-serif" font-size="14">
<rect width="{width}" height="{height}" rx="8" fill="#ffffff"/>
"""
TABLE = re.compile(r"(<!-- results -->\n).*?(\n<!-- /results -->)", re.DOTALL)


def ordered(result: Result, mode: str, key: str) -> list[dict[str, Any]]:
    """Return the rows of a mode: ours first, then the others, the best by a key first."""
    found = [row for row in rows(result) if row["mode"] == mode and row[key] is not None]
    ours = [row for name in OURS for row in found if row["name"] == name]
    others = [row for row in found if row["name"] not in OURS]
    return ours + sorted(others, key=lambda row: row[key], reverse=key == "records_per_s")


def picture(result: Result) -> str:
    """Return the SVG."""
    parts, y = [], 34
    for mode, key, title in PANELS:
        lines = ordered(result, mode, key)
        parts.append(text(20, y, title, weight="600"))
        y += 14
        most = max((end(each, key) for each in lines), default=1.0)
        for each in lines:
            parts += bar(each, key, y, most)
            y += PITCH
        y += 30
    for line in caption(result):
        parts.append(text(20, y, line, colour="#5b6070", size=12))
        y += 18
    head = HEAD.format(width=WIDTH, height=y + 4, label="Measured results: see the table beside it")
    return head + "\n".join(parts) + "\n</svg>\n"


def end(line: dict[str, Any], key: str) -> float:
    """Return where what is drawn of a program ends."""
    return float(line[key] if key == "records_per_s" else line["p99_us"] or line[key])


def bar(line: dict[str, Any], key: str, y: int, most: float) -> Iterator[str]:
    """Yield the bar of a program, its name and its figures."""
    name, value = line["name"], line[key]
    length = max(2, round(BAR * value / most))
    colour = COLOURS.get(name, OTHERS)
    weight = "600" if name == "kraftfast" else "400"
    yield text(LABEL - 10, y + 14, NAMES.get(name, name), anchor="end", weight=weight)
    yield f'<rect x="{LABEL}" y="{y}" width="{length}" height="18" rx="2" fill="{colour}"/>'
    shown, until = figure(value), max(length, round(BAR * end(line, key) / most))
    if until > length:
        yield (
            f'<line x1="{LABEL + length}" x2="{LABEL + until}" y1="{y + 9}" y2="{y + 9}" '
            f'stroke="{colour}" stroke-width="2"/>'
        )
    if key == "p50_us":
        slow = "" if line["p99_us"] is None else f", p99 {figure(line['p99_us'])} us"
        shown = f"{figure(value)} us{slow}"
    if not line["sync"]:
        shown += ", without flushes"
    yield text(LABEL + until + 8, y + 14, shown, weight=weight)


def figure(value: float) -> str:
    """Return a number with three digits that count."""
    digits = max(0, len(str(int(value))) - 3)
    return f"{round(value, -digits):,.0f}"


def when(result: Result) -> str:
    """Return when, where and how it was measured."""
    loads = [run.load_average for run in result.runs if run.load_average is not None]
    return (
        f"{result.began_at[:10]}, {result.machine['processors']} processors, one disk, medians of "
        f"{max(row['runs'] for row in rows(result))} rounds by turns, three voters; load average "
        f"{min(loads):.0f} to {max(loads):.0f}, with the programs' own."
    )


def caption(result: Result) -> Iterator[str]:
    """Yield when, where and how it was measured, in lines of a length that fits."""
    yield when(result)
    yield from failovers(result)
    versions = dict.fromkeys(
        f"{NAMES.get(row['name'], row['name'])} {row['version']}"
        for row in rows(result)
        if row["version"] and row["name"] != "kraftfast-socket"
    )
    line = ""
    for each in [*versions, "drawn from docs/benchmarks/results.json by bench/picture.py"]:
        if len(line) + len(each) > CAPTION_CHARACTERS:
            yield line
            line = ""
        line += f"{'; ' if line else ''}{each}"
    yield line


def failovers(result: Result) -> Iterator[str]:
    """Yield how long kraftfast was without a leader, over all rounds, if that was measured."""
    lines = [each[0] for each in result.lines(f"{FAILOVER}: kill -9 of the leader")]
    if lines:
        times, worst = sum(each["times"] for each in lines), max(each["max_us"] for each in lines)
        yield (
            f"kill -9 of kraftfast's leader under load, {times} times: next commit after "
            f"{median(each['p50_us'] for each in lines) / 1000:.0f} ms (p50), "
            f"{worst / 1000:.0f} ms (worst)."
        )


def text(
    x: int, y: int, content: str, *, anchor: str = "start", weight: str = "400",
    colour: str = "#1d2130", size: int = 14,
) -> str:  # fmt: skip
    """Return a line of text."""
    return (
        f'<text x="{x}" y="{y}" text-anchor="{anchor}" font-weight="{weight}" '
        f'font-size="{size}" fill="{colour}">{escape(content)}</text>'
    )


def table(result: Result) -> str:
    """Return the table in Markdown: figures with their ranges, versions and durability."""
    made = [
        f"{when(result)}{command(result)}",
        "",
        "| | records a second | p50, us | p99, us | outstanding | flushed before an "
        "acknowledgement | an acknowledged record survives |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for mode, key, _ in PANELS:
        made.append(f"| **{TITLES[mode]}** | | | | | | |")
        for row in ordered(result, mode, key):
            name = NAMES.get(row["name"], row["name"])
            title = f"{name} {row['version'] or ''}".strip()
            cells = (ranged(row, each) for each in ("records_per_s", "p50_us", "p99_us"))
            window = f"{row['window']} batches" if row["name"] in OURS else f"{row['window']:,}"
            shown = "1" if mode == "latency" else window
            made.append(
                f"| {title} | {' | '.join(cells)} | {shown} | {row['fsync']} | {row['survives']} |"
            )
    made += ["", *failovers(result)]
    made += [f"Not measured: {reason}." for reason in dict.fromkeys(result.failures.values())]
    return "\n".join(made).rstrip()


def command(result: Result) -> str:
    """Return the command of a result, as a sentence; nothing where its plan does not say it."""
    asked = [each for each in result.plan.get("measure", []) if "program" in each]
    if not asked:
        return ""
    options = f"--rounds {result.plan['repeat']} --seconds {asked[0]['seconds']:g}"
    return f" Command: `kraftfast bench peers --peers FOLDER --build {options}`."


def ranged(row: dict[str, Any], key: str) -> str:
    """Return a median with its range."""
    found = [row[key + suffix] for suffix in ("", "_min", "_max")]
    return "too few" if found[0] is None else spread(found)


def with_table(page: str, result: Result) -> str:
    """Return a page with the table of a result. Raises ValueError where it has no place for it."""
    made, count = TABLE.subn(lambda found: found[1] + table(result) + found[2], page)
    if count != 1:
        raise ValueError("the page has no <!-- results --> ... <!-- /results -->")
    return made


def main() -> int:
    """Write both."""
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    result, folder = Result.load(sys.argv[1]), Path(sys.argv[2])
    (folder / "picture.svg").write_text(picture(result))
    page = folder / "index.md"
    page.write_text(with_table(page.read_text(), result))
    return 0


if __name__ == "__main__":
    sys.exit(main())
