"""The public names are those that the documentation describes, and the version is one."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
import tomllib
from importlib.metadata import distributions

import kraftfast
from kraftfast import errors, testing
from tests.style.sources import ROOT

ENTRY = re.compile(r"^::: (kraftfast[\w.]*)\.(\w+)$", re.M)


def test_the_reference_describes_every_public_name() -> None:
    described = dict(map(reversed, ENTRY.findall((ROOT / "docs/reference/api.md").read_text())))
    assert set(kraftfast._DOORS) - set(described) == set()
    for name, module in described.items():
        described_there = getattr(importlib.import_module(module), name)
        if name in kraftfast._DOORS:
            assert getattr(kraftfast, name) is described_there


def test_a_star_brings_what_the_reference_describes() -> None:
    """The errors have a page of their own, made from what their module offers."""
    described = ENTRY.findall((ROOT / "docs/reference/api.md").read_text())
    of_testing = {name for module, name in described if module == "kraftfast.testing"}
    assert set(kraftfast.__all__) == {*kraftfast._DOORS, "errors"}
    assert set(testing.__all__) == of_testing | {"quorum"}
    defined = {name for name, each in vars(errors).items() if isinstance(each, type)}
    public = {name for name in defined if vars(errors)[name].__module__ == "kraftfast.errors"}
    assert set(errors.__all__) == {name for name in public if not name.startswith("_")}
    for module in (kraftfast, errors, testing):
        assert module.__all__ == sorted(module.__all__)
        bound: dict[str, object] = {}
        exec(f"from {module.__name__} import *", bound)
        assert set(module.__all__) == bound.keys() - {"__builtins__"}


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
