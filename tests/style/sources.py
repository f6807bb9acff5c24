"""The project's sources, and what they import: what the tests of style look at."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import kraftfast

ROOT = Path(__file__).resolve().parents[2]

FLOORS = (
    ("cext",),
    (
        "types",
        "limits",
        "errors",
        "arguments",
        "varints",
        "buffer",
        "forks",
        "undisturbed",
        "interrupts",
    ),  # fmt: skip
    ("record", "wire", "ring"),
    ("core", "log", "link"),
    ("node", "client"),
    ("bench", "live", "doctor", "quorum", "connected"),
    ("sim",),
    ("cli", "spark"),
    ("testing",),
)
FLOOR_OF = {name: number for number, names in enumerate(FLOORS) for name in names}
ABOVE_ALL = ("__init__", "__main__")
"""``kraftfast/__init__.py`` is lazy and stands above all floors; ``__main__`` is cli's door."""

CYTHON_IMPORT = re.compile(
    r"^[ \t]*(?:from[ \t]+([\w.]+)[ \t]+)?c?import[ \t]+(\([^)]*\)|[^\n(#]+)", re.MULTILINE
)
LAZY_NAME = re.compile(r"^kraftfast(?:\.\w+)+(?::\w+)?$")


def python_files() -> list[Path]:
    """Every Python and Cython source that ships."""
    return sorted(
        path
        for suffix in ("py", "pyx", "pxd", "pyi")
        for path in ROOT.glob(f"kraftfast/**/*.{suffix}")
    )


def all_files() -> list[Path]:
    """Every source that is written by hand, tests and C too."""
    roots = ("kraftfast", "cext", "bench", "tests", "tools", "profiles")
    suffixes = {".py", ".pyx", ".pxd", ".pyi", ".c", ".h"}
    found = [
        path for root in roots for path in (ROOT / root).glob("**/*") if path.suffix in suffixes
    ]
    written = [path for path in found if not path.read_text().startswith("# Made by tools/")]
    return sorted([ROOT / "setup.py", *written])


def package_of(path: Path) -> str:
    """``record`` of ``kraftfast/record/batch.pyx``, ``types`` of ``kraftfast/types.py``."""
    return path.relative_to(ROOT / "kraftfast").parts[0].partition(".")[0]


def imported(path: Path) -> set[str]:
    """Every module that a source names, dotted, wherever in the file it does.

    ``from kraftfast import limits`` is ``kraftfast.limits``, and a lazy name is the module that it
    leads to; a string that is a dotted name of ours, as in lazy tables, counts as an import.
    """
    text = path.read_text()
    if path.suffix in (".py", ".pyi"):
        return _imported_by_python(ast.parse(text))
    text = re.sub(r'"""(?:.|\n)*?"""', '""', text)
    found = set()
    for module, names in CYTHON_IMPORT.findall(text):
        for name in names.strip("() \n").split(","):
            found |= _full(module, name.split(" as ")[0].strip())
    return found


def _imported_by_python(tree: ast.Module) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                found |= _full(node.module or "", alias.name)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            if LAZY_NAME.match(node.value) and node.value.split(".")[1] in FLOOR_OF:
                found.add(node.value.partition(":")[0])
    return found


def _full(module: str, name: str) -> set[str]:
    if not module:
        return {name} if name else set()
    if module == "kraftfast":
        return {kraftfast._DOORS.get(name, f"kraftfast.{name}")}
    return {module}
