"""What nothing uses is not there: a function that nobody calls, a field that nobody reads."""

from __future__ import annotations

import ast
import re
from collections import Counter
from functools import cache
from pathlib import Path

from tests.style.sources import ROOT

USERS = ("kraftfast", "tests", "bench", "docs", "tools", "examples", "profiles", "cext")
SUFFIXES = {".py", ".pyx", ".md", ".toml", ".txt", ".c", ".h", ".json", ".yml"}
CYTHON = re.compile(r"^[ \t]*(?:def|cpdef|cdef)\b[^(=\n]*?\b(\w+)\(", re.MULTILINE)
FIELD = re.compile(r"^    [\w ]+?(\w+)(?:\[\w+\])? *(?:#.*)?$", re.MULTILINE)
CALLED_BY_OTHERS = {
    "action_columns", "action_stage", "action_window", "compose", "on_mount", "on_resize",
    "on_broken_pipe", "format_commands", "create_module", "handle_error", "service_actions",
    "streamWriter", "pytest_collection_finish", "crc_copy",
    "_close_self_pipe", "_make_self_pipe", "_write_to_self", "panic",
}  # fmt: skip
"""What Textual, rich, click, the interpreter, socketserver, Spark, asyncio and pytest call, and
what ``checksum.pxd``, which ships, offers to other compiled modules."""
STRUCT = re.compile(r"^cdef struct (\w+):\n((?:    .*\n)+)", re.MULTILINE)


@cache
def texts() -> dict[Path, str]:
    """Return every text that may use a name of the package, but for this one."""
    found = [path for room in USERS for path in sorted((ROOT / room).rglob("*"))]
    found = [path for path in found if path.suffix in SUFFIXES and path.is_file()]
    found.remove(Path(__file__))
    made = {path.with_suffix(".pyx") for path in found if path.suffix == ".c"} & set(found)
    return {
        path: path.read_text(errors="replace")
        for path in [*found, ROOT / "setup.py", ROOT / "pyproject.toml"]
        if not (path.suffix == ".c" and path.with_suffix(".pyx") in made)
    }


def defined(path: Path, text: str) -> list[str]:
    """Return the functions, methods and constants of a module that no decorator registers."""
    if path.suffix == ".pyx":
        return CYTHON.findall(text)
    found = []
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and not node.decorator_list:
            found.append(node.name)
        elif isinstance(node, ast.Module):
            targets = [each.targets[0] for each in node.body if isinstance(each, ast.Assign)]
            found += [each.id for each in targets if isinstance(each, ast.Name)]
    return found


def unused() -> set[str]:
    """Return the names that stand nowhere but where they are defined."""
    words: Counter[str] = Counter()
    for text in texts().values():
        words.update(re.findall(r"\w+", text))
    names: Counter[str] = Counter()
    for path, text in texts().items():
        if path.suffix in (".py", ".pyx") and path.is_relative_to(ROOT / "kraftfast"):
            names.update(defined(path, text))
    return {
        name
        for name, count in names.items()
        if words[name] <= count and name[:2] != "__" and not (name[0] == "_" and words[name[1:]])
    }


def unread(fields: set[str]) -> set[str]:
    """Return the fields that no source of the package reads."""
    read = set()
    for path, text in texts().items():
        if path.suffix in (".py", ".pyx") and path.is_relative_to(ROOT / "kraftfast"):
            read |= fields & set(re.findall(r"\.(\w+)\b(?! *=[^=])", text))
    return fields - read


def fields_of_core() -> set[str]:
    """Return what the classes of the core hold."""
    found = set()
    for path, text in texts().items():
        if path.suffix == ".py" and path.is_relative_to(ROOT / "kraftfast/core"):
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef):
                    held = [each.target for each in node.body if isinstance(each, ast.AnnAssign)]
                    found |= {each.id for each in held if isinstance(each, ast.Name)}
    return found


def fields_of_ring_messages() -> set[str]:
    """Return what travels on rings in fixed layouts."""
    text = (ROOT / "kraftfast/ring/layout.pxd").read_text()
    return {name for _, body in STRUCT.findall(text) for name in FIELD.findall(body)}


def test_each_name_is_used() -> None:
    assert unused() == CALLED_BY_OTHERS


def test_each_field_of_the_core_is_read() -> None:
    fields = fields_of_core()
    assert len(fields) > 100 and unread(fields) == set()


def test_each_field_of_a_ring_message_is_read() -> None:
    fields = fields_of_ring_messages()
    assert len(fields) > 20 and unread(fields) == set()
