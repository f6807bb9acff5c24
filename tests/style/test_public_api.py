"""The public names are those that the documentation describes, and the version is one."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions

import kraftfast
from tests.style.sources import ROOT

ENTRY = re.compile(r"^::: (kraftfast[\w.]*)\.(\w+)$", re.M)


def test_the_reference_describes_every_public_name() -> None:
    described = dict(map(reversed, ENTRY.findall((ROOT / "docs/reference/api.md").read_text())))
    assert set(kraftfast._DOORS) - set(described) == set()
    for name, module in described.items():
        described_there = getattr(importlib.import_module(module), name)
        if name in kraftfast._DOORS:
            assert getattr(kraftfast, name) is described_there


def test_nothing_else_is_offered() -> None:
    """What the module imports for itself does not count."""
    code = "import kraftfast; print(*dir(kraftfast))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    offered = {name for name in done.stdout.split() if not name.startswith("_")}
    assert offered - {"Any", "TYPE_CHECKING", "annotations", "importlib"} == set(kraftfast._DOORS)


def test_the_version_stands_in_one_place() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "kraftfast.__version__"}
    installed = {each.version for each in distributions(name="kraftfast")}
    assert installed <= {kraftfast.__version__}, "install it again: it was another version"
    assert f"## {kraftfast.__version__} " in (ROOT / "CHANGELOG.md").read_text()
