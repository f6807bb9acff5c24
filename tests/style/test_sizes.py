"""Lines of 100 columns, functions of 70 lines, files of 500: a ratchet that only ever tightens.

``ratchet.txt`` lists what was longer when the rule came. Nothing may be added to it, nothing in it
may grow, and what got shorter must be written down again:

    python tests/style/test_sizes.py
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tests.style.sources import ROOT, all_files  # noqa: E402

COLUMNS, FUNCTION_LINES, FILE_LINES = 100, 70, 500
RATCHET = Path(__file__).with_name("ratchet.txt")
CYTHON_DEF = re.compile(r"^( *)(?:async )?(?:cp?def|def)\b(?! class\b).*\(")


def functions(path: Path) -> Iterator[tuple[str, int]]:
    """(name, lines) of each function of a Python or Cython source, decorators and docstring too."""
    text = path.read_text()
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                assert node.end_lineno is not None
                yield node.name, node.end_lineno - node.lineno + 1
        return
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = CYTHON_DEF.match(line)
        if path.suffix != ".pyx" or match is None or line.rstrip().endswith(";"):
            continue
        end = number + 1
        inside = end
        while end < len(lines):
            blank = not lines[end].strip()
            closing = lines[end].strip().startswith(")")
            if (
                not blank
                and not closing
                and len(lines[end]) - len(lines[end].lstrip()) <= len(match[1])
            ):
                break
            end += 1
            inside = inside if blank else end
        yield line.split("(")[0].split()[-1], inside - number


def measure() -> dict[str, int]:
    """What is too long now: ``path: what`` -> how long, or how many."""
    found: dict[str, int] = {}
    for path in all_files():
        name, lines = str(path.relative_to(ROOT)), path.read_text().splitlines()
        wide = sum(len(line) > COLUMNS for line in lines)
        if wide:
            found[f"{name}: lines over {COLUMNS} columns"] = wide
        if len(lines) > FILE_LINES:
            found[f"{name}: lines"] = len(lines)
        if path.suffix in (".py", ".pyx"):
            for function, length in functions(path):
                if length > FUNCTION_LINES:
                    key = f"{name}: function {function}"
                    found[key] = max(length, found.get(key, 0))
    return found


def known() -> dict[str, int]:
    """The ratchet."""
    pairs = (line.rpartition(" = ") for line in RATCHET.read_text().splitlines() if line)
    return {key: int(value) for key, _, value in pairs}


def test_nothing_grows() -> None:
    allowed = known()
    grown = [f"{key} = {value}" for key, value in measure().items() if value > allowed.get(key, 0)]
    assert not grown, "shorten these; the list of exceptions only shrinks"


def test_the_ratchet_is_tight() -> None:
    now = measure()
    loose = [key for key, value in known().items() if now.get(key, 0) < value]
    assert not loose, f"shorter by now: write it down by python {Path(__file__).relative_to(ROOT)}"


def test_functions_are_measured(tmp_path: Path) -> None:
    source = tmp_path / "a.pyx"
    source.write_text(
        "cdef int f(int a,\n           int b) except -1:\n    return 1\n\n\n"
        "cdef class C:\n    def g(\n        self,\n    ):\n        pass\n\n"
        "    cpdef h(self):\n        pass\n"
    )
    assert dict(functions(source)) == {"f": 3, "g": 4, "h": 2}
    source = tmp_path / "b.py"
    source.write_text("def f():\n    def g():\n        pass\n    return g\n")
    assert dict(functions(source)) == {"f": 4, "g": 2}


if __name__ == "__main__":
    old = known() if RATCHET.exists() else None
    entries = {k: v for k, v in measure().items() if old is None or k in old}
    if old is not None:
        entries = {key: min(value, old[key]) for key, value in entries.items()}
    RATCHET.write_text("".join(f"{key} = {value}\n" for key, value in sorted(entries.items())))
