"""Where there are only kraftfast's ``.py`` files, as in a zip of ``--py-files``: reading still.

What is compiled is looked for here last. Reading logs and snapshots, and the jobs on what was read,
get their plain-Python twins; anything else can be imported, and says so when it is used.
"""

from __future__ import annotations

import importlib.util
import sys
import warnings
from collections.abc import Callable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any, NoReturn

from kraftfast.errors import NotCompiled

TWINS = "kraftfast.spark.reading.pure_readers"
HAVE_TWINS = frozenset(
    {
        "kraftfast.log.scan", "kraftfast.log.segment", "kraftfast.record.batch",
        "kraftfast.record.checksum", "kraftfast.record.columns", "kraftfast.record.headers",
        "kraftfast.record.rows",
    }
)  # fmt: skip
SLOW = (
    "kraftfast's compiled modules are not here: logs are read in plain Python, some 50 times "
    "slower; for speed, install kraftfast on every host"
)
MISSING = (
    "compiled modules of kraftfast, and only its .py files are here: "
    "install kraftfast on every host"
)


class Absent(type):
    """The class of whatever a compiled module would hold: no instance, no attribute of it."""

    def __call__(cls, *_args: Any, **_named: Any) -> NoReturn:
        cls.refuse()

    def __getattr__(cls, name: str) -> NoReturn:
        if name.startswith("__"):
            raise AttributeError(name)
        cls.refuse()

    def refuse(cls) -> NoReturn:
        """Name, of a class of ours that is derived from one that is absent, the absent one."""
        base = next(each for each in reversed(cls.__mro__) if isinstance(each, Absent))
        raise NotCompiled(f"{base.__name__} of {base.__module__} needs {MISSING}")


def absent_from(module: str) -> Callable[[str], Absent]:
    """``__getattr__`` of a module that is not there."""

    def look_up(name: str) -> Absent:
        if name.startswith("__"):
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        return Absent(name, (), {"__module__": module})

    return look_up


class PlainLoader(Loader):
    """Fills a module that is compiled elsewhere."""

    def create_module(self, spec: ModuleSpec) -> None:
        """Do as usual."""

    def exec_module(self, module: ModuleType) -> None:
        if module.__name__ in HAVE_TWINS:
            twins = importlib.import_module(TWINS)
            module.__dict__.update({name: getattr(twins, name) for name in twins.__all__})
        module.__dict__["__getattr__"] = absent_from(module.__name__)


class PlainFinder(MetaPathFinder):
    """Asked for what no other finder has: a module of ours that is not there is a compiled one."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        ours = fullname.startswith("kraftfast.") and path is not None
        return ModuleSpec(fullname, PlainLoader()) if ours else None


def stand_in() -> None:
    """Let the twin of the decoder of rows be found where that is not; say once that it is slow."""
    if importlib.util.find_spec("kraftfast.record.rows") is None:
        sys.meta_path.append(PlainFinder())
        warnings.warn(SLOW, RuntimeWarning, stacklevel=2)


def need_compiled(what: str) -> None:
    """Before what talks to a quorum. Raises NotCompiled where twins stand in."""
    if any(isinstance(each, PlainFinder) for each in sys.meta_path):
        raise NotCompiled(f"{what} needs {MISSING}")
