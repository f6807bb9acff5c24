"""The core imports ``types``, ``limits``, ``errors``, itself, pure parts of Python and msgspec's
values.

Nothing that reads a clock, draws chance of its own, or does input and output (style rule 1); that
counts for ``import`` and ``cimport``, inside functions too.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

CORE = Path(__file__).parents[2] / "kraftfast" / "core"
SOURCES = sorted(path for suffix in ("py", "pyx", "pxd") for path in CORE.rglob(f"*.{suffix}"))
OWN = ("kraftfast.core", "kraftfast.types", "kraftfast.limits", "kraftfast.errors")
PURE = {
    "__future__",
    "collections",
    "collections.abc",
    "dataclasses",
    "msgspec",
    "msgspec.structs",
    "enum",
    "typing",
    "random",
    "cython",
    "libc.stdint",
    "libc.stdlib",
}
CIMPORT = re.compile(r"^\s*(?:from\s+([\w.]+)\s+)?c?import\s+([\w., ]+)", re.MULTILINE)


def imported(path: Path) -> set[str]:
    """Every module that a source names: ``kraftfast.limits`` for ``import limits`` from it."""
    text = path.read_text()
    pairs: list[tuple[str | None, str]] = []
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                pairs += [(None, alias.name) for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, "imports are absolute"
                pairs += [(node.module, alias.name) for alias in node.names]
    else:
        text = re.sub(r'""".*?"""', "", text, flags=re.DOTALL)
        for module, names in CIMPORT.findall(text):
            pairs += [(module or None, name.split(" as ")[0].strip()) for name in names.split(",")]
    whole = ("kraftfast", "kraftfast.core")
    return {f"{module}.{name}" if module in whole else (module or name) for module, name in pairs}


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: path.name)
def test_imports_point_down(path: Path) -> None:
    for module in imported(path):
        assert module in PURE or module.startswith(OWN), f"{path.name} imports {module}"


def test_only_the_class_random_is_used() -> None:
    for path in SOURCES:
        for line in path.read_text().splitlines():
            if re.match(r"\s*(from|import)\s+random", line):
                assert line.strip() == "from random import Random", f"{path.name}: {line}"


def test_the_check_sees_what_it_looks_for(tmp_path: Path) -> None:
    source = tmp_path / "bad.py"
    source.write_text("def f():\n    import socket\n    from kraftfast import node\n")
    assert imported(source) == {"socket", "kraftfast.node"}
    source = tmp_path / "bad.pyx"
    source.write_text("from libc.stdio cimport printf\ncimport posix.unistd\n")
    assert imported(source) == {"libc.stdio", "posix.unistd"}
