"""``SEEDS.md``: what the texts specify that this project implements, and what holds it here.

A line of ``seeds/*.txt`` is ``what the text says => holders; note``. A holder is

- a scenario of Kafka's (``testVoteRequestTimeout``), which then must have a test of its own;
- a text scenario (``vote_grant``) or a test (``core/test_roles.py::test_each_pair``) that exists;
- ``fields``: each word before is a field of that message here (``Its=Ours`` if renamed);
- ``config NAME``, ``metric`` (or ``metric NAME``), ``error NAME``: known here under this name.

Or ``=> instead: what replaced it, and why [holders]``, or ``=> not yet: what lacks``.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from kraftfast.cli import server_properties
from kraftfast.errors import ErrorCode
from kraftfast.wire import messages
from kraftfast.wire.notation import Field
from tests.core.coverage.known import HERE, Mistake, Names, kafka_scenarios, sections
from tests.core.coverage.scenarios_page import COMMAND, link
from tests.core.coverage.tags import TESTS, collect, exists

HEAD = f"""<!-- Made by `{COMMAND}`: change tests or `coverage/seeds/*.txt`, not this page. -->

# What the texts specify, and what holds it here

Every RPC, field, error, config, metric, file, tool and "must" of the five texts behind this
project, and of the KIPs that they build on, with the tests that hold it, or what replaced it and
why. The later text wins, and what Kafka does today before both. Tests of Kafka's raft module are
in [SCENARIOS.md](SCENARIOS.md).
"""
METRICS = (Path(server_properties.__file__).parents[1] / "node" / "metrics.py").read_text()


class Item(NamedTuple):
    """One line: ``kind`` is ``held``, ``instead`` or ``not yet``."""

    said: str
    kind: str
    holders: list[str]
    note: str


def page() -> tuple[str, list[str]]:
    """The page, and what is still open. Raises Mistake."""
    names = Names(kafka_scenarios())
    tagged: dict[str, list[str]] = {}
    for word, tests in collect().items():
        tagged.setdefault(names.find(word), []).extend(tests)
    body: list[str] = []
    still_open: list[str] = []
    counts = {"held": 0, "instead": 0, "not yet": 0}
    for path in sorted((HERE / "seeds").glob("*.txt")):
        title = path.read_text().splitlines()[0].removeprefix("# ")
        body += [f"## {title}", ""]
        for section, lines in sections(path).items():
            body += [f"### {section}", "", "| the text | here |", "| --- | --- |"]
            for line in lines:
                item = read(line)
                counts[item.kind] += 1
                if item.kind == "not yet":
                    still_open.append(f"{item.said}: {item.note}")
                body.append(f"| {item.said} | {shown(item, names, tagged)} |")
            body.append("")
    told = f"{sum(counts.values())} items: {counts['held']} held as they stand, "
    told += f"{counts['instead']} replaced, {counts['not yet']} not yet."
    return "\n".join([HEAD, told, "", *body]), still_open


def read(line: str) -> Item:
    """The parts of a line. Raises Mistake."""
    said, arrow, how = line.partition(" => ")
    if not arrow or not how:
        raise Mistake(f"nothing holds {line!r}")
    if how.startswith("not yet: "):
        return Item(said, "not yet", [], how.removeprefix("not yet: "))
    if how.startswith("instead: "):
        note, _, rest = how.removeprefix("instead: ").partition(" [")
        first, bracket, more = rest.partition("]")
        if not bracket or not first:
            raise Mistake(f"nothing holds what replaced {said!r}")
        holders = first.split(", ")
        while " [" in more:
            between, _, rest = more.partition(" [")
            first, _, more = rest.partition("]")
            note += between
            holders += first.split(", ")
        return Item(said, "instead", holders, note + more)
    holders_text, _, note = how.partition("; ")
    return Item(said, "held", holders_text.split(", "), note)


def shown(item: Item, names: Names, tagged: dict[str, list[str]]) -> str:
    """The right column. Raises Mistake for a holder that is none."""
    if item.kind == "not yet":
        return f"**not yet**: {item.note}"
    found: list[str] = []
    for holder in item.holders:
        for each in held_by(holder, item.said, names, tagged):
            if each not in found:
                found.append(each)
    note = item.note
    if item.kind == "instead":
        note = f"*instead*: {note}"
    return "<br>".join([*([note] if note else []), *found])


def held_by(holder: str, said: str, names: Names, tagged: dict[str, list[str]]) -> list[str]:
    """Links to what holds it. Raises Mistake."""
    kind, _, name = holder.partition(" ")
    if holder == "fields":
        return [fields_of(said)]
    if kind == "config":
        if name not in (*server_properties.SCALARS, *server_properties.STRUCTURED):
            raise Mistake(f"no config {name}")
        return [f"`{name}`"]
    if kind == "metric":
        wanted = [name] if name else said.split(", ")
        lacking = [each for each in wanted if f'"{each}"' not in METRICS]
        if lacking:
            raise Mistake(f"no metric {', '.join(lacking)}")
        return [", ".join(f"`{each}`" for each in wanted), link("node/test_metrics.py")]
    if kind == "error":
        if name not in ErrorCode.__members__:
            raise Mistake(f"no error {name}")
        return [f"`{name}` ({ErrorCode[name].value})"]
    if "/" in holder:
        if not exists(holder):
            raise Mistake(f"{said!r}: there is no test {holder}")
        return [link(holder)]
    if (TESTS / "core" / "scenarios" / f"{holder}.txt").is_file():
        return [link(f"core/scenarios/{holder}.txt")]
    full = names.find(holder)
    if full not in tagged:
        raise Mistake(f"{said!r}: no test covers {full}")
    return [link(test) for test in sorted(set(tagged[full]))]


def fields_of(said: str) -> str:
    """Check ``Message: Its=Ours Field ...`` against the tables. Raises Mistake."""
    message, _, words = said.partition(": ")
    here = getattr(messages, message, None)
    if here is None:
        raise Mistake(f"there is no message {message}")
    known = field_names(here.FIELDS)
    for word in words.split():
        name = word.rpartition("=")[2]
        if name not in known:
            raise Mistake(f"{message} has no field {name}")
    return f"as fields of `{message}`, versions {here.VERSIONS}; {link('wire/test_kio.py')}"


def field_names(fields: tuple[Field, ...]) -> set[str]:
    """All, also those of the structs inside, in Kafka's words; of arrays in the singular too."""
    found: set[str] = set()
    for field in fields:
        found |= {field.name, *field_names(field.fields)}
    return found
