"""What a page consists of: sections with sentences, tables, pictures, and the commands behind them.

All of it is plain text until ``html`` writes it: what is escaped is escaped there, once.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

from kraftfast.bench.page.result_lines import dicts, numbers
from kraftfast.bench.results.plan import Measure, combinations
from kraftfast.bench.results.result import TIMES, Held, Result, held_in, mostly
from kraftfast.errors import InputError

LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing. ``height``: inches, all are as wide as each other.

    ``draw(figure, colours)`` draws it with matplotlib; ``name`` names its files.
    """

    name: str
    title: str
    height: float
    draw: Callable[[Any, Any], None]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts; the first ``left`` columns hold words, the others figures."""

    head: list[str]
    rows: list[list[str]]
    left: int = 1


@dataclass(slots=True)
class Section:
    """One question and its answer. ``commands``: what measured it."""

    title: str
    texts: list[str]
    notes: list[str] = field(default_factory=list)
    tables: list[Table] = field(default_factory=list)
    pictures: list[Picture] = field(default_factory=list)
    commands: list[str] = field(default_factory=list)


class PageEntry:
    """A result on a page, and the letter that stands for it: none where it is the only one.

    A line with a ``part`` is a measure of its own, ``"the measure: the part"``.
    """

    # place: what the user calls it. repetitions: of each measure, the lines of each repetition.
    # _whole: name of a measure -> that of the plan's. _commands: of the plan's measures.

    def __init__(self, letter: str, place: str, result: Result) -> None:
        self.letter, self.place, self.result = letter, place, result
        self.repetitions: dict[str, list[list[dict[str, Any]]]] = {}
        self._whole: dict[str, str] = {}
        for run in result.runs:
            here: dict[str, list[dict[str, Any]]] = {}
            for line in run.lines:
                part = line.get("part")
                name = run.measure if part is None else f"{run.measure}: {part}"
                here.setdefault(name, []).append(line)
                self._whole[name] = run.measure
            for name, lines in here.items():
                self.repetitions.setdefault(name, []).append(lines)
        self._commands = dict(_commands(result.plan))

    @property
    def measures(self) -> list[str]:
        """Return the names of what was measured, in the plan's order."""
        return list(self.repetitions)

    def named(self, measure: str) -> str:
        """Return the name of a measure, with the letter of its result."""
        return f"{measure} [{self.letter}]" if self.letter else measure

    def lines(self, measure: str) -> list[dict[str, Any]]:
        """Return each line of a measure, of every repetition."""
        return [line for lines in self.repetitions[measure] for line in lines]

    def values(self, measure: str, key: str) -> list[float]:
        """Return what each repetition measured, the best of its lines, as far as a picture can show
        it."""
        if key in TIMES and not mostly(self.held(measure)):
            return []
        best = max if key == "records_per_s" else min
        found = (numbers(lines, key) for lines in self.repetitions[measure])
        return [best(values) for values in found if values]

    def held(self, measure: str) -> Held | None:
        """Return how often a rate was held; None of a measure that has none."""
        return held_in(self.repetitions[measure])

    def command(self, measure: str) -> str:
        """Return the command that measured it; what the plan says, where that is no command."""
        known = self._commands.get(self._whole.get(measure, measure))
        return known or f"{measure}: the plan in the result does not name its command"

    def commands(self, measures: list[str]) -> list[str]:
        """Return the commands of these measures, each once."""
        return list(dict.fromkeys(map(self.command, measures)))


def _commands(plan: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name and the command of each measure of a plan that has them."""
    for at, table in enumerate(dicts(plan.get("measure")), 1):
        with suppress(InputError):  # a result may say anything of its plan
            for single in combinations(table):
                known = Measure.of(single, at)
                words = ["kraftfast", "bench", known.command, "--json", *known.options]
                yield known.name, shlex.join(words)


def entries(results: list[tuple[str, Result]]) -> list[PageEntry]:
    """Return results, by (place, result), with their letters."""
    if len(results) == 1:
        return [PageEntry("", *results[0])]
    return [PageEntry(_letter(at), *each) for at, each in enumerate(results)]


def _letter(place: int) -> str:
    """Return A to Z, then A1 to Z1 and on."""
    turn, at = divmod(place, len(LETTERS))
    return f"{LETTERS[at]}{turn or ''}"
