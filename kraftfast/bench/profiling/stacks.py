"""Sampled stacks of one process, in speedscope's format, and the share of time of each function.

What py-spy samples is read here; null fields that speedscope's schema does not have are left out.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftfast.errors import InputError, StorageError

SUFFIX = ".speedscope.json"
SCHEMA = "https://www.speedscope.app/file-format-schema.json"
ADDRESS = re.compile("0x[0-9a-f]+")
ERRORS_MAX = 2.0
"""A difference of shares counts from so many standard errors on."""

Function = tuple[str, str]
"""Name and file."""


@dataclass(frozen=True, slots=True)
class Stacks:
    """Samples of one process: ``counts`` by stack, the outermost function first."""

    counts: Counter[tuple[Function, ...]]

    @property
    def samples(self) -> int:
        return self.counts.total()

    def self_shares(self) -> dict[Function, float]:
        """Return the share of samples in which each function itself ran, 0 to 1."""
        found: Counter[Function] = Counter()
        for stack, count in self.counts.items():
            if stack:
                found[stack[-1]] += count
        return {function: count / self.samples for function, count in found.items()}


def cleaned(document: Any, name: str) -> dict[str, Any]:
    """Return a document of py-spy without its nulls, with the name of the process."""
    frames = [_without_nulls(frame) for frame in document["shared"]["frames"]]
    return {
        "$schema": SCHEMA,
        "name": name,
        "exporter": document.get("exporter") or "py-spy",
        "shared": {"frames": frames},
        "profiles": [_without_nulls(profile) for profile in document["profiles"]],
    }


def _without_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fields.items() if value is not None}


def stacks_of(document: Any) -> Stacks:
    """Return the stacks of all threads of a speedscope document. Raises KeyError, TypeError."""
    functions = [_function(frame) for frame in document["shared"]["frames"]]
    counts: Counter[tuple[Function, ...]] = Counter()
    for profile in document["profiles"]:
        for sample in profile["samples"]:
            counts[tuple(functions[index] for index in sample)] += 1
    return Stacks(counts)


def _function(frame: dict[str, Any]) -> Function:
    """Return what a frame is of. Code without symbols is one function a file: its addresses differ
    from run to run."""
    name = str(frame["name"])
    return "(no symbol)" if ADDRESS.fullmatch(name) else name, str(frame.get("file") or "")


def read(path: Path) -> Stacks:
    """Read a speedscope file. Raises InputError."""
    try:
        return stacks_of(json.loads(path.read_bytes()))
    except OSError as error:
        raise InputError(f"cannot read {path}: {error.strerror}") from None
    except (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError):
        raise InputError(f"{path} is no speedscope file of sampled stacks") from None


def read_folder(folder: Path) -> dict[str, Stacks]:
    """Read every profile of a folder, by the name of its process. Raises InputError."""
    if not folder.is_dir():
        raise InputError(f"{folder} is no folder of profiles")
    found = {path.name.removesuffix(SUFFIX): path for path in sorted(folder.glob(f"*{SUFFIX}"))}
    if not found:
        raise InputError(f"{folder} has no profile (*{SUFFIX})")
    return {name: read(path) for name, path in found.items()}


def write(path: Path, text: str) -> None:
    """Write a file, whole or not at all. Raises StorageError."""
    fresh = path.with_name(f"{path.name}.new")
    try:
        fresh.write_text(text)
        os.replace(fresh, path)
    except OSError as error:
        with suppress(OSError):
            fresh.unlink()  # a full disk needs the room
        raise StorageError(f"cannot write {path}: {error.strerror}") from None


@dataclass(frozen=True, slots=True)
class StackChange:
    """How a function's own share of a process's samples changed, shares from 0 to 1."""

    process: str
    function: Function
    before: float
    after: float

    @property
    def grown(self) -> float:
        return self.after - self.before


def changes(process: str, before: Stacks, after: Stacks) -> list[StackChange]:
    """Return what grew or shrank by more than chance explains, the largest change first.

    The bound takes samples for independent; they are not quite.
    """
    if not before.samples or not after.samples:
        return []
    old, new = before.self_shares(), after.self_shares()
    found = [
        StackChange(process, each, old.get(each, 0.0), new.get(each, 0.0))
        for each in old.keys() | new
    ]
    found = [each for each in found if _is_more_than_chance(each, before.samples, after.samples)]
    return sorted(found, key=lambda each: (-round(abs(each.grown), 9), each.function))


def _is_more_than_chance(change: StackChange, before: int, after: int) -> bool:
    pooled = (change.before * before + change.after * after) / (before + after)
    error = math.sqrt(pooled * (1 - pooled) * (1 / before + 1 / after))
    return abs(change.grown) > ERRORS_MAX * error
