"""What was run, where, and what came of it: the results, the machines, the figures."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from statistics import median
from typing import Any

from kraftfast.bench.page.axes import ROWS_MAX, axes_of, chunks, row_names, rows_height, scale
from kraftfast.bench.page.drawing import Colours
from kraftfast.bench.page.parts import PageEntry, Picture, Section, Table
from kraftfast.bench.page.result_lines import number
from kraftfast.bench.page.texts import figure, spread
from kraftfast.bench.results.compare import differences
from kraftfast.bench.results.result import runs_of, shown_keys

DIFFERENCES_MAX = 40
NAMES = {
    "records_per_s": "records/s",
    "p50_us": "p50, µs",
    "p99_us": "p99, µs",
    "p999_us": "p99.9, µs",
    "cpu_s_per_million_records": "CPU s per million records",
    "core_percent": "% of a processor",
}


def machine(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield what the results are, the facts of their machines, and what differs between them."""
    head = ["result", "name", "began", "runs", "complete"]
    rows = [
        [
            each.letter or each.place,
            f"{each.result.name} ({each.place})" if each.letter else each.result.name,
            each.result.began_at,
            str(len(each.result.runs)),
            "yes" if each.result.complete else "no: it was cut short",
        ]
        for each in entries
    ]
    made = Section("Machine", [], tables=[Table(head, rows, left=3)])
    first, *others = entries
    keys = list(dict.fromkeys(key for each in entries for key in each.result.machine))
    facts = [[key, *(_fact(each, key) for each in entries)] for key in keys]
    letters = [each.letter or "this machine" for each in entries]
    made.tables.append(Table(["fact", *letters], facts, left=len(entries) + 1))
    for other in others:
        for text in islice(differences(first.result, other.result), DIFFERENCES_MAX):
            made.notes.append(f"{first.letter} and {other.letter} are not the same: {text}")
    runs = [run for each in entries for run in each.result.runs]
    loads = [found for run in runs if (found := number(run.load_average)) is not None]
    stolen = [number(run.stolen_s) or 0.0 for run in runs]
    if loads:
        made.texts.append(
            f"The load average before a run was {spread(loads)}; the host of a virtual machine "
            f"took {figure(sum(stolen))} s of its processors during all runs."
        )
    yield made


def _fact(entry: PageEntry, key: str) -> str:
    found = entry.result.machine.get(key)
    return "-" if found is None else str(found)


def _by_measure(entries: list[PageEntry]) -> list[tuple[PageEntry, str]]:
    """Return each measure of each result, those of one name beside each other."""
    found = [(each, measure) for each in entries for measure in each.measures]
    order = {name: at for at, name in enumerate(dict.fromkeys(name for _, name in found))}
    return sorted(found, key=lambda pair: order[pair[1]])


def _once(texts: list[str]) -> list[str]:
    return list(dict.fromkeys(texts))


def summary(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield the medians and ranges of each measure."""
    rows, commands, partly = [], [], False
    keys = shown_keys(each.result for each in entries)
    for each, measure in _by_measure(entries):
        cells, held = [spread(each.values(measure, key)) for key in keys], each.held(measure)
        partly = partly or (held is not None and held[0] < held[1])
        rows.append([each.named(measure), *cells, runs_of(len(each.repetitions[measure]), held)])
        commands.append(each.command(measure))
    if not rows:
        yield Section("Summary", ["Nothing has been measured yet."])
        return
    text = (
        "The median of all repetitions, and their range in brackets. A measure that tries several "
        "ways counts with the best of them. A percentile of too few samples is left out."
    )
    if partly:
        text += (
            " Of a rate that was not always held, the times are those of the repetitions that held "
            "it; where most did not, there are none."
        )
    head = ["measure", *(NAMES.get(key, key) for key in keys), "runs"]
    yield Section("Summary", [text], tables=[Table(head, rows)], commands=_once(commands))


def rates(entries: list[PageEntry]) -> Iterator[Section]:
    """Yield the records a second of every repetition, as dots."""
    rows, commands = [], []
    for each, measure in _by_measure(entries):
        found = each.values(measure, "records_per_s")
        if found:
            rows.append((each.named(measure), found))
            commands.append(each.command(measure))
    if not rows:
        return
    name, values = max(rows, key=lambda row: median(row[1]))
    text = (
        f"Each dot is one repetition, the bar is their median; further to the right is faster. "
        f"The fastest is {name!r} with {figure(median(values))} records/s. Dots far apart mean a "
        f"machine or a disk that is not steady."
    )
    every = [value for _, found in rows for value in found]
    parts = chunks(rows, ROWS_MAX)
    pictures = [
        Picture(f"rates-{at}", "Records a second", rows_height(len(part)), _dots(part, every))
        for at, part in enumerate(parts, 1)
    ]
    yield Section("Records a second", [text], pictures=pictures, commands=_once(commands))


def _dots(rows: list[tuple[str, list[float]]], every: list[float]) -> Any:
    def draw(drawn: Any, colours: Colours) -> None:
        axes = axes_of(drawn, colours)
        row_names(axes, [name for name, _ in rows], colours)
        for at, (_, values) in enumerate(rows):
            colour = colours.series[0]
            axes.plot(values, [at] * len(values), "o", color=colour, alpha=0.55, markersize=5)
            axes.plot([median(values)] * 2, [at - 0.17, at + 0.17], color=colour, linewidth=2.4)
        scale(axes.xaxis, every)
        axes.set_xlabel("records/s")

    return draw
