"""Type stubs promise what is there, and all of it that is public."""

from __future__ import annotations

import ast
import importlib
from pathlib import Path
from typing import Any

import pytest

import kraftfast

PACKAGE = Path(kraftfast.__file__).parent
INTERNAL = {
    "record/batch": {"Hold"},
    "record/builder": {"Headers"},
    "record/columns": {"Arrays", "Parts"},
}
"""Extension types that only compiled code names: Cython makes every one an attribute."""
STUBS = sorted(
    str(path.relative_to(PACKAGE).with_suffix(""))
    for path in PACKAGE.rglob("*.pyi")
    if list(path.parent.glob(path.stem + ".*.so"))
)


def public(names: Any) -> set[str]:
    return {name for name in names if not name.startswith("_")}


def named(body: list[ast.stmt]) -> dict[str, ast.stmt]:
    """What a stub's module or class names."""
    found: dict[str, ast.stmt] = {}
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
        elif isinstance(node, ast.Assign):
            found.update((each.id, node) for each in node.targets if isinstance(each, ast.Name))
    return found


def differences(stem: str) -> list[str]:
    """What the stub lacks and what the module lacks."""
    module = importlib.import_module("kraftfast." + stem.replace("/", "."))
    stub = named(ast.parse((PACKAGE / f"{stem}.pyi").read_text()).body)
    own = {
        name
        for name, value in vars(module).items()
        if getattr(value, "__module__", None) == module.__name__
    }
    made = {name for name, node in stub.items() if not isinstance(node, ast.Assign)}
    wrong = [f"not in the stub: {name}" for name in public(own) - set(stub)]
    wrong += [f"not in the module: {name}" for name in public(made) - set(vars(module))]
    for name, node in stub.items():
        if isinstance(node, ast.ClassDef) and hasattr(module, name):
            cls, members = getattr(module, name), set(named(node.body))
            there = public(vars(cls)) - members
            wrong += [f"not in the stub: {name}.{each}" for each in there]
            lacking = {each for each in members if not hasattr(cls, each)}
            wrong += [f"not in the module: {name}.{each}" for each in lacking]
    ignored = {f"not in the stub: {name}" for name in INTERNAL.get(stem, ())}
    return sorted(set(wrong) - ignored)


@pytest.mark.parametrize("stem", STUBS)
def test_a_stub_is_what_the_module_is(stem: str) -> None:
    assert differences(stem) == []


def test_all_stubs_are_looked_at() -> None:
    assert len(STUBS) > 15
