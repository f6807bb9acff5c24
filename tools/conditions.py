"""Say in docs/explanation/conditions.md what tests each condition, and where it is checked.

A condition is cited by its name (``D3``) where it is kept and where it is tested; mutants that
break it begin with its name (``d03_...patch``). Both lists follow from that.
"""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

PAGE = Path("docs/explanation/conditions.md")
NAMES = [f"D{n}" for n in range(1, 26)] + [f"R{n}" for n in range(1, 13)]
NAMES += [f"I{n}" for n in range(1, 26)] + [f"S{n}" for n in range(1, 12)]
NAMES += [f"L{n}" for n in range(1, 8)]
NAME = re.compile(r"\b[DIRSL][1-9][0-9]?\b")
SECTION = re.compile(r"^### ([DIRSL]\d+)\n.*?(?=^##|\Z)", re.MULTILINE | re.DOTALL)
SOURCES = {".py", ".pyx", ".c", ".h"}
TESTS = SOURCES | {".txt", ".tla", ".patch"}
FILES_MAX = 4
"""Named for each condition: those that cite it most."""


@cache
def citations(root: Path, folder: str, suffixes: frozenset[str]) -> dict[str, Counter[str]]:
    """Return for each name the files below ``folder`` that cite it, and how often."""
    found: dict[str, Counter[str]] = {}
    for path in sorted((root / folder).rglob("*")):
        if path.suffix in suffixes and path.is_file():
            for name in NAME.findall(path.read_text(errors="replace")):
                found.setdefault(name, Counter())[str(path.relative_to(root))] += 1
    return found


def listed(files: Counter[str]) -> list[str]:
    """Return the names of the files that cite most, and how many others do."""
    ranked = sorted(files, key=lambda file: (-files[file], file))
    texts = [f"`{file}`" for file in ranked[:FILES_MAX]]
    more = len(ranked) - FILES_MAX
    return texts + ([f"{more} more"] if more > 0 else [])


def tests_of(root: Path, name: str) -> str:
    """Return the line that names a condition's tests."""
    prefix = f"{name[0].lower()}{int(name[1:]):02}_"
    mutants = Counter(
        str(path.parent.relative_to(root)) for path in root.glob(f"tests/*/mutants/{prefix}*.patch")
    )
    texts = [f"`{folder}` (mutants: {count})" for folder, count in sorted(mutants.items())]
    files = citations(root, "tests", frozenset(TESTS)).get(name, Counter())
    cited = Counter({file: n for file, n in files.items() if not file.endswith(".patch")})
    return "Tests: " + (", ".join(texts + listed(cited)) or "none by name") + "."


def kept_in(root: Path, name: str) -> str:
    """Return the line that names the files that keep or check a condition."""
    files = citations(root, "kraftfast", frozenset(SOURCES)).get(name, Counter())
    files = files + citations(root, "cext", frozenset(SOURCES)).get(name, Counter())
    short = Counter({file.removeprefix("kraftfast/"): n for file, n in files.items()})
    return "Kept in: " + (", ".join(listed(short)) or "nothing by name") + "."


def with_lines(root: Path, section: re.Match[str]) -> str:
    """Return a section with its generated lines as they are now.

    What keeps D, R and S is chosen by hand, and a test sees that each file cites it.
    """
    name, text = section[1], section[0]
    text = re.sub(r"^Tests: .*\n", tests_of(root, name) + "\n", text, flags=re.MULTILINE)
    if name[0] in "IL":
        text = re.sub(r"^Kept in: .*\n", kept_in(root, name) + "\n", text, flags=re.MULTILINE)
    return text


def generated(root: Path) -> dict[Path, str]:
    """Return the page."""
    citations.cache_clear()
    page = (root / PAGE).read_text()
    return {root / PAGE: SECTION.sub(lambda section: with_lines(root, section), page)}
