"""The core twice in one process: compiled as installed, and interpreted from the same sources."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
CORE = ROOT / "kraftfast" / "core"
EXECUTOR = "kraftfast.node.executor"
"""Goes by the classes of the core's effects, so that it needs those that are interpreted."""


class Interpreted(MetaPathFinder):
    """Finds the core and its executor by their ``.py``, whatever is compiled beside it."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> ModuleSpec | None:
        source = ROOT.joinpath(*fullname.split(".")).with_suffix(".py")
        ours = fullname == EXECUTOR or fullname.startswith("kraftfast.core.")
        if not ours or not source.exists():
            return None
        return spec_from_file_location(fullname, source)


@contextmanager
def interpreted(*names: str) -> Iterator[list[ModuleType]]:
    """Modules of ``tests.core`` over an interpreted core; everything is put back afterwards."""
    packages = ("kraftfast.core", EXECUTOR, "tests.core")

    def is_ours(name: str) -> bool:
        return name in packages or name.startswith(tuple(f"{each}." for each in packages))

    compiled = {name: module for name, module in sys.modules.items() if is_ours(name)}
    parents = [(sys.modules[name.rpartition(".")[0]], name) for name in packages]
    for name in compiled:
        del sys.modules[name]
    finder = Interpreted()
    sys.meta_path.insert(0, finder)
    try:
        yield [importlib.import_module(f"tests.core.{name}") for name in names]
    finally:
        sys.meta_path.remove(finder)
        for name in [name for name in sys.modules if is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(compiled)
        for parent, name in parents:
            setattr(parent, name.rpartition(".")[2], sys.modules[name])
