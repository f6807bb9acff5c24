"""``SCENARIOS.md``: each scenario of Kafka's raft module, and what covers it here."""

from __future__ import annotations

from tests.core.coverage.known import (
    DIFFERS,
    NOT_OURS,
    NOT_YET,
    Mistake,
    Names,
    kafka_scenarios,
    reasons,
)
from tests.core.coverage.tags import collect

COMMAND = "python -m tests.core.coverage"
HEAD = f"""<!-- Made by `{COMMAND}`: change tests, `kafka.txt` or `reasons.txt`, not this page. -->

# Kafka's scenarios, and their tests here

Each test of Apache Kafka's raft module (trunk `d79bd502`) and what it is about, with the text
scenarios (`scenarios/*.txt`) and tests that assert it: they say so themselves, by a line
`# covers:`. Or why there is none: it is about Java, or this design departs, and where.
"""


def page() -> tuple[str, list[str]]:
    """The page, and the names of what is still open. Raises Mistake."""
    by_section = kafka_scenarios()
    names = Names(by_section)
    why = reasons(names)
    covered: dict[str, list[str]] = {}
    for word, tests in collect().items():
        covered.setdefault(names.find(word), []).extend(tests)
    check(names, why, covered)
    counts = {
        "scenarios": len(names.full),
        "covered": len(covered),
        "not ours": len(why[NOT_OURS]),
        "not yet": len(why[NOT_YET]),
    }
    told = ", ".join(f"{count} {what}" for what, count in counts.items())
    lines = [HEAD, f"{told}.", ""]
    for title, group in by_section.items():
        lines += [f"## {title}", "", "| Kafka | here |", "| --- | --- |"]
        for name, about in group:
            what = f"`{name}`" + (f": {about}" if about else "")
            lines.append(f"| {what} | {here(name, why, covered)} |")
        lines.append("")
    return "\n".join(lines), list(why[NOT_YET])


def check(names: Names, why: dict[str, dict[str, str]], covered: dict[str, list[str]]) -> None:
    """Everything is covered or excused, nothing both. Raises Mistake."""
    excused = set(why[NOT_OURS]) | set(why[NOT_YET])
    lacking = sorted(names.full - set(covered) - excused)
    if lacking:
        raise Mistake("neither covered nor excused: " + ", ".join(lacking))
    needless = sorted(excused & set(covered))
    if needless:
        raise Mistake("excused though covered: " + ", ".join(needless))
    idle = sorted(set(why[DIFFERS]) - set(covered))
    if idle:
        raise Mistake("said to differ, and not covered: " + ", ".join(idle))


def here(name: str, why: dict[str, dict[str, str]], covered: dict[str, list[str]]) -> str:
    """The right column."""
    if name in why[NOT_OURS]:
        return f"none: {why[NOT_OURS][name]}"
    if name in why[NOT_YET]:
        return f"**not yet**: {why[NOT_YET][name]}"
    tests = "<br>".join(map(link, sorted(set(covered[name]))))
    note = why[DIFFERS].get(name)
    return tests + (f"<br>{note}" if note else "")


def link(test: str) -> str:
    """A test as a link from a page in ``tests/core``."""
    file, _, function = test.partition("::")
    place = file.removeprefix("core/") if file.startswith("core/") else f"../{file}"
    shown = (
        file.removeprefix("core/scenarios/").removesuffix(".txt")
        if (file.startswith("core/scenarios/"))
        else file.removesuffix(".py")
    )
    return f"[{shown}]({place})" + (f" `{function}`" if function else "")
