"""What a page consists of: sections with sentences, tables, pictures, and the commands behind them.

All of it is plain text until ``html`` writes it: what is escaped is escaped there, once.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from kraftfast.bench.page.reading import number
from kraftfast.bench.plan import Measure
from kraftfast.bench.result import Result
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


@dataclass(frozen=True, slots=True)
class Entry:
    """A result on a page, and the letter that stands for it: none where it is the only one."""

    letter: str
    place: str
    result: Result

    def named(self, measure: str) -> str:
        """Return the name of a measure, with the letter of its result."""
        return f"{measure} [{self.letter}]" if self.letter else measure

    def lines(self, measure: str) -> Iterator[dict[str, Any]]:
        """Yield each line of a measure, of every repetition."""
        for run in self.result.runs:
            if run.measure == measure:
                yield from run.lines

    def values(self, measure: str, key: str) -> list[float]:
        """Return what each repetition measured, as far as a picture can show it."""
        found = (number(value) for value in self.result.values(measure, key))
        return [value for value in found if value is not None]

    def command(self, measure: str) -> str:
        """Return the command that measured it; what the plan says, where that is no command."""
        found = self.result.plan.get("measure")
        for at, table in enumerate(found if isinstance(found, list) else [], 1):
            try:
                known = Measure.of(table, at)
            except InputError:
                continue
            if known.name == measure:
                words = ["kraftfast", "bench", known.command, "--json", *known.options]
                return shlex.join(words)
        return f"{measure}: the plan in the result does not name its command"

    def commands(self, measures: list[str]) -> list[str]:
        """Return the commands of these measures, each once."""
        return list(dict.fromkeys(map(self.command, measures)))


def entries(results: list[tuple[str, Result]]) -> list[Entry]:
    """Return results, by (place, result), with their letters."""
    if len(results) == 1:
        return [Entry("", *results[0])]
    return [Entry(_letter(at), *each) for at, each in enumerate(results)]


def _letter(place: int) -> str:
    """Return A to Z, then A1 to Z1 and on."""
    turn, at = divmod(place, len(LETTERS))
    return f"{LETTERS[at]}{turn or ''}"
