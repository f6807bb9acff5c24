"""The lists that the pages are made of: what is known, and why something has no test.

``kafka.txt`` and ``seeds/*.txt`` say what there is; ``reasons.txt`` why some of Kafka's scenarios
have no counterpart here, differ here, or are still to come.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).parent
NOT_OURS, DIFFERS, NOT_YET = "Not ours", "Differs", "Not yet"


class Mistake(Exception):
    """The lists, or a tag, say what cannot be."""


class Scenario(NamedTuple):
    """One of Kafka's: ``Class.test``, and what it is about where its name does not say."""

    name: str
    about: str


def sections(path: Path) -> dict[str, list[str]]:
    """The lines below each ``## title``, without comments; one that is indented continues."""
    found: dict[str, list[str]] = {}
    lines: list[str] | None = None
    for line in path.read_text().splitlines():
        if line.startswith("## "):
            lines = found.setdefault(line.removeprefix("## "), [])
        elif line.startswith("  ") and lines:
            lines[-1] += " " + line.strip()
        elif line and not line.startswith("#"):
            if lines is None:
                raise Mistake(f"{path.name}: {line!r} stands before the first title")
            lines.append(line)
    return found


def kafka_scenarios(path: Path = HERE / "kafka.txt") -> dict[str, list[Scenario]]:
    """Kafka's scenarios by section. Raises Mistake for a name that stands there twice."""
    found: dict[str, list[Scenario]] = {}
    seen: set[str] = set()
    for title, lines in sections(path).items():
        found[title] = []
        for line in lines:
            name, _, about = line.partition(": ")
            if name in seen:
                raise Mistake(f"{path.name}: {name} stands there twice")
            seen.add(name)
            found[title].append(Scenario(name, about))
    return found


class Names:
    """Full names of scenarios by what tags call them: without the class where only one has it."""

    full: set[str]  # Class.test
    short: dict[str, list[str]]  # test -> the full names that end with it

    def __init__(self, by_section: dict[str, list[Scenario]]) -> None:
        self.full = {each.name for group in by_section.values() for each in group}
        self.short = {}
        for name in self.full:
            self.short.setdefault(name.partition(".")[2], []).append(name)

    def find(self, word: str) -> str:
        """The full name that a tag means. Raises Mistake."""
        if word in self.full:
            return word
        found = self.short.get(word, [])
        if len(found) == 1:
            return found[0]
        several = f": say which of {', '.join(sorted(found))}" if found else " is not in kafka.txt"
        raise Mistake(f"{word}{several}")


def reasons(names: Names, path: Path = HERE / "reasons.txt") -> dict[str, dict[str, str]]:
    """By kind, scenario -> why. Raises Mistake."""
    found: dict[str, dict[str, str]] = {NOT_OURS: {}, DIFFERS: {}, NOT_YET: {}}
    for kind, lines in sections(path).items():
        if kind not in found:
            raise Mistake(f"{path.name}: there is no section {kind!r}")
        for line in lines:
            said, colon, why = line.partition(": ")
            if not colon:
                raise Mistake(f"{path.name}: no reason in {line!r}")
            for word in said.split(", "):
                name = names.find(word)
                if any(name in each for each in found.values()):
                    raise Mistake(f"{path.name}: {name} stands there twice")
                found[kind][name] = why
    return found
