"""What ``kraftfast demo`` and ``kraftfast bench`` share: inputs, runs, reports, verification.

``inputs`` are records to append, ``load`` appends them and watches the clock, ``report`` tells
where the time went, ``verify`` holds the replicas against each other and against the input,
``disk`` measures the disk alone.
``Result`` reads a result again, for a notebook; ``page`` is what ``bench report`` writes.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kraftfast.bench.results.result import Result as Result

__all__ = ["Result"]

if not TYPE_CHECKING:  # where types are checked, a name that is misspelt has none

    def __getattr__(name: str) -> Any:
        if name != "Result":
            raise AttributeError(f"module 'kraftfast.bench' has no attribute {name!r}")
        return importlib.import_module("kraftfast.bench.results.result").Result
