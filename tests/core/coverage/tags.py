"""Which test covers what: ``covers:`` lines in text scenarios and above test functions.

    # covers: testInvalidVoteRequest, testHandleInvalidVoteRequestWithOlderEpoch

A tag belongs only where the test asserts that very behaviour.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from tests.core.coverage.known import Mistake

TESTS = Path(__file__).resolve().parents[2]
TAG = re.compile(r"# covers: (\S.*)")


def collect(root: Path = TESTS) -> dict[str, list[str]]:
    """Word of a tag -> the tests that have it, as paths below ``tests/``. Raises Mistake."""
    found: dict[str, list[str]] = {}
    for path in sorted([*root.glob("**/scenarios/*.txt"), *root.glob("**/test_*.py")]):
        read = in_scenario if path.suffix == ".txt" else in_module
        for word, test in read(path, str(path.relative_to(root))):
            places = found.setdefault(word, [])
            if test in places:
                raise Mistake(f"{test} says twice that it covers {word}")
            places.append(test)
    return found


def words(line: str) -> list[str]:
    match = TAG.fullmatch(line)
    return [] if match is None else [word.strip() for word in match[1].rstrip(",").split(",")]


def in_scenario(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Tags anywhere among the comments of a text scenario."""
    for line in path.read_text().splitlines():
        for word in words(line):
            yield word, name


def in_module(path: Path, name: str) -> Iterator[tuple[str, str]]:
    """Tags in the comments right above a test function. Raises Mistake for one elsewhere."""
    text = path.read_text()
    lines = [line.strip() for line in text.splitlines()]
    tagged = {number for number, line in enumerate(lines) if words(line)}
    if not tagged:
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        first = min([node.lineno, *(each.lineno for each in node.decorator_list)]) - 1
        while first > 0 and lines[first - 1].startswith("#"):
            first -= 1
            if first in tagged and node.name.startswith("test_"):
                tagged.discard(first)
                for word in words(lines[first]):
                    yield word, f"{name}::{node.name}"
    if tagged:
        raise Mistake(f"{name}:{min(tagged) + 1}: a tag that stands above no test")


def exists(test: str, root: Path = TESTS) -> bool:
    """Whether there is such a scenario, module, or test function (``core/test_x.py::test_y``)."""
    file, _, function = test.partition("::")
    path = root / file
    if not path.is_file():
        return False
    defined = re.compile(rf"^ *(?:async )?def {function}\(", re.MULTILINE)
    return not function or defined.search(path.read_text()) is not None
