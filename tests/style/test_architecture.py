"""ARCHITECTURE.md and the page of conditions tell the truth, and point to what is there.

python tests/style/test_architecture.py      # draws the picture anew
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from kraftfast.core.roles import transition_picture  # noqa: E402
from tests.style.sources import FLOORS, ROOT  # noqa: E402
from tools import conditions  # noqa: E402

PAGE = ROOT / "ARCHITECTURE.md"
PICTURE = re.compile(r"(<!-- roles -->\n).*?(<!-- /roles -->)", re.DOTALL)
KEPT = re.compile(r"^### (\w+)\n(?:(?!###).*\n)*?Kept in: (.*)\.$", re.MULTILINE)
NOT_BUILT = ("S3", "S4")
CITES = {".py", ".pyx", ".pyi", ".pxd", ".c", ".h", ".md", ".txt", ".patch", ".tla", ".toml"}


def with_picture(page: str) -> str:
    """The page with the picture as it is drawn now."""
    drawn = f"```mermaid\n{transition_picture()}```\n"
    return PICTURE.sub(lambda marks: marks[1] + drawn + marks[2], page)


def kept_in() -> dict[str, list[str]]:
    """Condition -> the files that the page names."""
    rows = KEPT.findall((ROOT / conditions.PAGE).read_text())
    return {name: re.findall(r"`([^`]+)`", files) for name, files in rows}


def source(name: str) -> Path:
    return ROOT / name if name.startswith(("cext/", "setup")) else ROOT / "kraftfast" / name


def test_the_picture_of_roles_is_up_to_date() -> None:
    page = PAGE.read_text()
    assert "stateDiagram-v2" in page
    assert with_picture(page) == page, f"run python {Path(__file__).relative_to(ROOT)}"


def test_every_condition_has_its_section() -> None:
    page = (ROOT / conditions.PAGE).read_text()
    assert re.findall(r"^### (\w+)$", page, re.MULTILINE) == conditions.NAMES
    assert [*kept_in()] == [each for each in conditions.NAMES if each not in NOT_BUILT]
    assert "by name" not in page, "cite it where it is kept, and where it is tested"


@pytest.mark.parametrize("condition", kept_in())
def test_files_cite_what_they_keep(condition: str) -> None:
    files = kept_in()[condition]
    assert files
    for file in files:
        assert re.search(rf"\b{condition}\b", source(file).read_text()), f"{file}: {condition}"


def test_what_sees_each_promise_exists() -> None:
    text = PAGE.read_text()
    begin = text.index("### What replicas promise each other")
    section = text[begin:].split("\n## ")[0].splitlines()
    rows = [line for line in section if line.startswith("| ")][2:]
    assert len(rows) >= 10
    core = ROOT / "tests" / "core"
    tests = {path: path.read_text() for path in (ROOT / "tests").rglob("test_*.py")}
    for row in rows:
        names = re.findall(r"`([\w.]+)`", row.split(" | ")[-1])
        assert names, row
        for name in names:
            stem, _, kind = name.partition(".")
            if kind:
                folder = "scenarios" if kind == "txt" else "mutants"
                assert (core / folder / name).exists(), name
            else:
                found = any(
                    path.stem == stem or f"def {stem}(" in body for path, body in tests.items()
                )
                assert found, name


def test_the_floors_are_those_of_the_page() -> None:
    lines = re.findall(r"^[0-9]  ([\w ]+)\|", PAGE.read_text(), re.MULTILINE)
    assert [tuple(line.split()) for line in reversed(lines)] == list(FLOORS)


def files_named_in(text: str) -> set[str]:
    """Sources and tests that a page names, but for the two that stand for any."""
    found = set(re.findall(r"`([\w/.-]+\.(?:pyx|pxd|py|c|h|txt|patch|tla))`", text))
    return found - {"name.txt", "name.patch"}


def test_files_that_pages_name_are_there() -> None:
    pages = [PAGE, ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    folders = ("kraftfast", "cext", "tests", "tools", "bench")
    paths = {path for folder in folders for path in (ROOT / folder).rglob("*.*")}
    there = {str(path.relative_to(ROOT)) for path in (*paths, *ROOT.glob("*.py"))}
    ends = {name[at.end() :] for name in there for at in re.finditer(r"^|/", name)}
    named = {(page.name, name) for page in pages for name in files_named_in(page.read_text())}
    assert len(named) > 100
    assert not {(page, name) for page, name in named if name not in ends}


def test_every_room_is_told_of() -> None:
    page = PAGE.read_text()
    for path in (ROOT / "kraftfast").iterdir():
        if path.is_dir() and (path / "__init__.py").exists():
            assert f"`kraftfast/{path.name}/`" in page, path.name
    for path in re.findall(r"`(tests/\w+)`", page):
        assert (ROOT / path).is_dir(), path


def sources() -> list[Path]:
    return [
        path for path in (ROOT / "kraftfast").glob("**/*.py*") if path.suffix in (".py", ".pyx")
    ]


def test_nothing_is_unpickled() -> None:
    """R9, S5: nothing that came from elsewhere is run."""
    banned = re.compile(r"\b(?:c?pickle|marshal|shelve|yaml|shared_memory)\b")
    for path in sources():
        for line in path.read_text(errors="replace").splitlines():
            assert not (banned.search(line) and "import" in line), f"{path}: {line}"


if __name__ == "__main__":
    PAGE.write_text(with_picture(PAGE.read_text()))


def test_texts_point_to_what_is_there() -> None:
    """A page that code names is one of the repository; links of docs/ are the site's to check."""
    pages = {path.name for path in ROOT.glob("*.md")}
    pages |= {path.name for folder in ("docs", "tests") for path in (ROOT / folder).rglob("*.md")}
    pages |= {path.name for path in (ROOT / "profiles").glob("*.md")}
    texts = [
        path
        for folder in ("kraftfast", "cext", "tests", "bench", "tools")
        for path in (ROOT / folder).rglob("*")
        if path.suffix in CITES and path.is_file()
    ]
    gone = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in texts
        for name in re.findall(r"\b([\w-]+\.md)\b", path.read_text())
        if name not in pages
    ]
    assert not gone
