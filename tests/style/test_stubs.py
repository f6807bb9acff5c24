"""Type stubs promise what is there, and all of it that is public."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kraftfast

PACKAGE = Path(kraftfast.__file__).parent
INTERNAL = {
    "record/batch": {"Hold"},
    "record/builder": {"HeaderList"},
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


def test_stubtest_agrees_with_all_signatures(tmp_path: Path) -> None:
    """It looks at what a module's functions take, and at their defaults (mypy's ``stubtest``)."""
    pytest.importorskip("mypy")
    settings = (PACKAGE.parent / "pyproject.toml").read_text()
    assert settings.count("warn_unused_configs = true") == 1  # the rest of kraftfast is not read
    (tmp_path / "pyproject.toml").write_text(
        settings.replace("warn_unused_configs = true", "warn_unused_configs = false")
    )
    done = subprocess.run(
        [sys.executable, "-m", "mypy.stubtest", "--concise", "--ignore-missing-stub"]
        + ["--ignore-disjoint-bases", "--mypy-config-file", str(tmp_path / "pyproject.toml")]
        + ["--allowlist", str(Path(__file__).with_name("stubtest.txt"))]
        + ["kraftfast." + stem.replace("/", ".") for stem in STUBS],
        cwd=PACKAGE.parent, capture_output=True, text=True, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_all_stubs_are_looked_at() -> None:
    assert len(STUBS) > 15
