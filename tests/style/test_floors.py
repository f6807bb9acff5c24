"""Packages of one layer do not import each other; everything points down (ARCHITECTURE.md)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.style.sources import (
    ABOVE_ALL,
    FLOOR_OF,
    FLOORS,
    ROOT,
    imported,
    package_of,
    python_files,
)

COMMAND_LINE = "cli"
CORE_MAY_USE = ("types", "limits", "errors", "core")
OF_CYTHON = {"_cyutility"}
"""No source of ours: what all compiled modules need of Cython."""
HEAVY = {"asyncio", "multiprocessing", "click", "rich"}


def may_import(package: str, other: str) -> bool:
    """The rule. The command line imports the other doors; that it does so lazily is tested too."""
    if package == other or package in ABOVE_ALL:
        return True
    if other == "__version__":
        return True
    if package == "core":
        return other in CORE_MAY_USE
    if package == COMMAND_LINE and FLOOR_OF[other] == FLOOR_OF[COMMAND_LINE]:
        return True
    if FLOOR_OF[package] == FLOOR_OF[other] == 1:
        return True  # types, limits and errors are single files
    return FLOOR_OF[other] < FLOOR_OF[package]


def offences(path: Path) -> list[str]:
    package = path.stem if path.parent.name == "kraftfast" else package_of(path)
    found = []
    for module in imported(path):
        parts = module.split(".")
        if parts[0] != "kraftfast":
            continue
        other = parts[1] if len(parts) > 1 else "__version__"
        if not may_import(package, other):
            found.append(f"{path.relative_to(ROOT)} imports {module}")
    return found


def test_everything_points_down() -> None:
    assert not [offence for path in python_files() for offence in offences(path)]


def test_every_package_has_its_floor() -> None:
    packages = {package_of(path) for path in python_files()} - set(ABOVE_ALL)
    assert packages <= set(FLOOR_OF)


@pytest.mark.parametrize(
    "package, suffix, text",
    [
        ("record", "py", "def f():\n    from kraftfast.log import reader\n"),
        ("record", "py", "import kraftfast.wire.frame\n"),
        ("ring", "pyx", "def f():\n    from kraftfast.link.stats cimport Stats\n"),
        ("log", "pxd", "cimport kraftfast.node.idle\n"),
        ("log", "pyx", "from kraftfast import (\n    limits, node\n)\n"),
        ("link", "py", "from kraftfast import core\n"),
        ("core", "py", "from kraftfast.record import control\n"),
        ("client", "py", 'DOORS = {"Node": "kraftfast.node.node:Node"}\n'),
        ("types", "py", "if TYPE_CHECKING:\n    from kraftfast.record.shapes import Record\n"),
        ("bench", "py", "from kraftfast.quorum import LocalQuorum\n"),
        ("bench", "py", "from kraftfast import LocalQuorum\n"),
    ],
)
def test_the_check_sees_what_it_looks_for(
    package: str, suffix: str, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.style.sources.ROOT", tmp_path)
    monkeypatch.setattr("tests.style.test_floors.ROOT", tmp_path)
    flat = package in ("types", "limits", "errors")
    path = tmp_path / "kraftfast" / (f"{package}.{suffix}" if flat else f"{package}/file.{suffix}")
    path.parent.mkdir(parents=True)
    path.write_text(text)
    assert len(offences(path)) == 1
    path.write_text('"""from kraftfast.node import x"""\nimport os\nfrom kraftfast import limits\n')
    assert not offences(path)


def fresh(statement: str) -> set[str]:
    """What a new interpreter has loaded after a statement."""
    program = f"{statement}\nimport sys\nprint(*sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize("package", [name for names in FLOORS[1:5] for name in names])
def test_a_package_loads_nothing_above_its_floor(package: str) -> None:
    loaded = fresh(f"import kraftfast.{package}")
    ours = {name.split(".")[1] for name in loaded if name.startswith("kraftfast.")}
    assert not [name for name in ours - OF_CYTHON if not may_import(package, name)]
    if FLOOR_OF[package] <= 2:
        assert not loaded & HEAVY


def test_importing_kraftfast_loads_no_room() -> None:
    assert {name for name in fresh("import kraftfast") if name.startswith("kraftfast")} == {
        "kraftfast",
        "kraftfast.errors",
    }


def test_the_lazy_names_lead_somewhere() -> None:
    import kraftfast

    for name in kraftfast._DOORS:
        assert getattr(kraftfast, name).__name__ == name
    assert set(kraftfast._DOORS) <= set(dir(kraftfast))


def test_errors_are_found_where_a_program_looks_for_them() -> None:
    import kraftfast

    code = "import kraftfast as k; assert k.NoQuorum is k.errors.NoQuorum"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    assert issubclass(kraftfast.UnknownOutcome, kraftfast.KraftfastError)
    assert not hasattr(kraftfast, "ErrorCodes")
    with pytest.raises(AttributeError):
        kraftfast.no_such_name  # noqa: B018
