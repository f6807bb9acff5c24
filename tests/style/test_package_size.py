"""The package stays small: what each clone compiles, and each installation downloads."""

from __future__ import annotations

import io
import os
import re
import zipfile
from pathlib import Path

import pytest

from tests.style.sources import ROOT

PACKAGE_BYTES_MAX = 12_000_000
WHEEL_BYTES_MAX = 4_000_000
SHIPPED = {".py", ".pyi", ".so", ".properties", ".typed"}
DECLARATIONS = {
    "record": ("checksum.pxd", "encode.pxd"),
    "ring": ("spsc.pxd", "layout.pxd"),
}
"""Beside ``__init__.pxd`` of each package: those that need no header of ours."""


def shipped() -> list[Path]:
    """Return the files that a wheel of this tree holds, but its own metadata."""
    package = ROOT / "kraftfast"
    found = {path for path in package.rglob("*") if path.suffix in SHIPPED}
    found |= {*package.rglob("__init__.pxd")}
    found |= {package / name / each for name, names in DECLARATIONS.items() for each in names}
    return sorted(found)


def sizes() -> tuple[int, int, int]:
    """Return bytes of the compiled modules, of the installed package, and of its wheel."""
    files = shipped()
    with io.BytesIO() as memory:
        with zipfile.ZipFile(memory, "w", zipfile.ZIP_DEFLATED) as wheel:
            for path in files:
                wheel.write(path, path.relative_to(ROOT))
        compressed = len(memory.getvalue())
    lengths = {path: path.stat().st_size for path in files}
    modules = sum(length for path, length in lengths.items() if path.suffix == ".so")
    return modules, sum(lengths.values()), compressed


@pytest.mark.skipif(
    bool({"KRAFTFAST_DEBUG", "KRAFTFAST_SANITIZE"} & os.environ.keys()),
    reason="modules for debuggers and sanitizers are larger",
)
def test_the_package_and_its_wheel_are_small() -> None:
    modules, package, wheel = sizes()
    assert modules > 1_000_000, "compiled modules are missing"
    assert package <= PACKAGE_BYTES_MAX and wheel <= WHEEL_BYTES_MAX


def test_what_cython_needs_everywhere_is_there_once() -> None:
    names = [path.name.partition(".")[0] for path in shipped() if path.suffix == ".so"]
    assert names.count("_cyutility") == 1


def test_declarations_that_ship_stand_alone() -> None:
    """A module that cimports them has neither our headers nor other declarations of ours."""
    declared = [path for path in shipped() if path.suffix == ".pxd"]
    modules = {".".join(path.relative_to(ROOT).with_suffix("").parts) for path in declared}
    for path in declared:
        text = path.read_text()
        assert not re.findall(r'^cdef extern from "(?!Python)', text, re.MULTILINE), path
        assert {*re.findall(r"^from (kraftfast[\w.]+) cimport", text, re.MULTILINE)} <= modules, (
            path
        )
