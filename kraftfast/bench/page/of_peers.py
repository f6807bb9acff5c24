"""Other replicated logs beside kraftfast: what each does, and what it promises meanwhile."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import median
from typing import Any

from kraftfast.bench.page.axes import ROWS_MAX, axes_of, chunks, row_names, rows_height, scale
from kraftfast.bench.page.drawing import Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section, Table
from kraftfast.bench.page.texts import duration, figure, plain, short, size, spread

KRAFTFAST, FLOOR = "kraftfast", "floor"
OURS = (KRAFTFAST, FLOOR)
MODES = ("latency", "throughput")
TINTS = {KRAFTFAST: 0, FLOOR: 7}
OTHERS = 1


@dataclass(frozen=True, slots=True)
class Row:
    """A measure of a program: its first line, and its figures in each repetition."""

    entry: PageEntry
    measure: str
    line: dict[str, Any]
    rates: list[float]
    p50s: list[float]
    p99s: list[float]

    @property
    def peer(self) -> str:
        """Return the name that the program gives itself."""
        return plain(self.line.get("peer"), 40)

    @property
    def work(self) -> tuple[str, Any]:
        """Return what is done: (mode, bytes of a value). The floor does not name its mode."""
        mode = self.line.get("mode")
        if self.peer == FLOOR:
            mode = MODES[self.line.get("window") != 1]
        return str(mode), self.line.get("value_bytes")

    @property
    def label(self) -> str:
        """Return its name in a picture, with what it flushes before it acknowledges."""
        name = self.measure.partition(", ")[0]
        return self.entry.named(f"{name}: {plain(self.line.get('fsync', '-'))}")

    @property
    def durable(self) -> bool:
        """Return whether something is flushed before an acknowledgement."""
        return self.line.get("sync") is True


def peers(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield what other logs do beside ours, and what each promises."""
    found = [row for each in entries for row in _rows(each)]
    missing = [reason for each in entries for reason in each.result.failures.values()]
    works = {row.work: None for row in found if row.peer not in OURS}
    if not works and not missing:
        return
    made = Section(
        "Beside others",
        [
            "The same work by other replicated logs, by turns on this machine. What is flushed "
            "before an acknowledgement stands beside each name: a log that flushes nothing (a "
            "hollow mark) does other work than one that does.",
        ],
        notes=[f"Not measured: {reason}" for reason in dict.fromkeys(missing)],
    )
    shown = []
    for number, work in enumerate(works, 1):
        rows = [row for row in found if row.work == work]
        rows.sort(key=_rank)
        made.texts += _said(rows, work)
        made.pictures += _pictures(rows, work, number)
        shown += rows
    if shown:
        made.tables.append(_table(shown))
    commands = (command for row in shown for command in row.entry.commands([row.measure]))
    made.commands = list(dict.fromkeys(commands))
    yield made


def _rows(entry: PageEntry) -> Iterator[Row]:
    for measure in entry.measures:
        line = entry.lines(measure)[0]
        keys = ("records_per_s", "p50_us", "p99_us")
        rates, p50s, p99s = (entry.values(measure, key) for key in keys)
        row = Row(entry, measure, line, rates, p50s, p99s)
        if row.work[0] in MODES and rates and p50s:
            yield row


def _rank(row: Row) -> float:
    """Order rows, the best first."""
    return median(row.p50s) if row.work[0] == MODES[0] else -median(row.rates)


def _title(work: tuple[str, Any]) -> str:
    bytes_each = size(work[1]) if isinstance(work[1], int) else "records"
    return f"{bytes_each}, {'one' if work[0] == MODES[0] else 'many'} outstanding"


def _said(rows: list[Row], work: tuple[str, Any]) -> Iterator[str]:
    """Yield a sentence on the best of ours and the best of the others that promises as much."""
    best = next((row for row in rows if row.peer == KRAFTFAST), None)
    if best is None:
        return
    alike = (row for row in rows if row.peer not in OURS and row.durable == best.durable)
    other = next(alike, None)
    if other is None:
        return
    if work[0] == MODES[0]:
        ours, theirs = median(best.p50s), median(other.p50s)
        shown, than = (duration(ours), duration(theirs)), "time (p50)"
    else:
        ours, theirs = median(best.rates), median(other.rates)
        shown, than = (f"{figure(ours)} records/s", f"{figure(theirs)} records/s"), "rate"
    like = "flush before they acknowledge" if best.durable else "flush nothing"
    ratio = f", {ours / theirs:.2g} times that {than}" if theirs else ""
    name = best.measure.partition(", ")[0]
    yield (
        f"{_title(work)}: {name} has {shown[0]}{ratio}. Of the others that {like}, the best is "
        f"{other.peer} {plain(other.line.get('version', ''), 40)} with {shown[1]}."
    )


def _pictures(rows: list[Row], work: tuple[str, Any], number: int) -> list[Picture]:
    title = f"{'Time to commit' if work[0] == MODES[0] else 'Records a second'}: {_title(work)}"
    return [
        Picture(f"peers-{number}-{at}", title, rows_height(len(part)), _draw(part, rows, work[0]))
        for at, part in enumerate(chunks(rows, ROWS_MAX), 1)
    ]


def _draw(rows: list[Row], every: list[Row], mode: str) -> Any:
    """Draw the repetitions of each as points, their median as a bar; of times, p99 as a line."""
    timed = mode == MODES[0]

    def values(row: Row) -> list[float]:
        return row.p50s if timed else row.rates

    def draw(drawn: Any, colours: Colours) -> None:
        axes = axes_of(drawn, colours)
        row_names(axes, [row.label for row in rows], colours)
        for at, row in enumerate(rows):
            colour = colours.series[TINTS.get(row.peer, OTHERS)]
            middle = median(values(row))
            face = colour if row.durable else colours.paper
            if timed and row.p99s:
                axes.plot([middle, median(row.p99s)], [at, at], color=colour, linewidth=1.2)
            axes.plot(
                values(row), [at] * len(values(row)), "o", color=colour, markerfacecolor=face,
                markersize=5, alpha=0.75,
            )  # fmt: skip
            axes.plot([middle] * 2, [at - 0.17, at + 0.17], color=colour, linewidth=2.4)
        ends = [value for row in every for value in values(row)]
        ends += [median(row.p99s) for row in every if timed and row.p99s]
        scale(axes.xaxis, ends, duration if timed else short)
        axes.set_xlabel("p50, and p99 as a line" if timed else "records/s")

    return draw


def _table(rows: list[Row]) -> Table:
    head = [
        "program", "version", "flushed before an acknowledgement", "survives", "work",
        "records/s", "p50", "p99", "outstanding", "runs",
    ]  # fmt: skip
    cells = []
    for row in rows:
        words = (row.line.get(key) or "" for key in ("version", "fsync", "survives"))
        name = row.entry.named(row.measure.partition(", ")[0])
        times = (spread(each, duration) for each in (row.p50s, row.p99s))
        batches = " batches" if row.peer in OURS and row.work[0] != MODES[0] else ""
        cells.append(
            [
                name,
                *map(plain, words),
                _title(row.work),
                spread(row.rates),
                *times,
                f"{plain(row.line.get('window', '-'))}{batches}",
                str(len(row.entry.repetitions[row.measure])),
            ]
        )
    return Table(head, cells, left=5)
