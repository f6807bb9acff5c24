"""A short module that one other module imports needs a reason: ``small_modules.txt`` has them.

A file of its own costs a reader a name and a jump. Commands of the program and handlers of the core
have one each by rule: what is typed, and what comes in, is found by the file's name.
"""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LINES = 70
BY_RULE = re.compile(r"kraftfast/(cli/.*|core/.*/on_[a-z_]+|(.*/)?__(init|main)__)\.py")
REASONS = Path(__file__).with_name("small_modules.txt")
SUFFIXES = (".py", ".pyx", ".pxd")


def small_modules() -> set[str]:
    """Return the paths of short modules that at most one other module names."""
    sources = {
        path: path.read_text()
        for path in (ROOT / "kraftfast").rglob("*")
        if path.suffix in SUFFIXES
    }
    found = set()
    for path, text in sources.items():
        name = path.relative_to(ROOT).as_posix()
        if path.suffix == ".pxd" or text.count("\n") >= LINES or BY_RULE.fullmatch(name):
            continue
        package, leaf = ".".join(path.relative_to(ROOT).parent.parts), path.stem
        used = re.compile(
            rf"\b{re.escape(package)}\.{leaf}\b"
            rf"|from {re.escape(package)} c?import (?:\([^)]*|[^\n]*)\b{leaf}\b"
        )
        users = {other.with_suffix("") for other, words in sources.items() if used.search(words)}
        if len(users - {path.with_suffix("")}) <= 1:
            found.add(name)
    return found


def test_each_has_a_reason() -> None:
    lines = REASONS.read_text().splitlines()
    reasons = dict(line.split(": ", 1) for line in lines)
    assert lines == sorted(lines) and all(reasons.values())
    assert small_modules() == reasons.keys(), "merge it, or say why it stands alone"
