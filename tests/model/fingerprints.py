"""A set of 64-bit hashes, in 13 to 27 bytes each, that can be stored and taken up again."""

from __future__ import annotations

import fcntl
import hashlib
import json
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

import numpy as np

from tests.command import Refused, replaced_by

FILLED_MAX = 0.6
EMPTY = 0
CHUNK = 1 << 16
ROOT = Path(__file__).parents[2]
FIGURES = {"fresh", "seconds", "steps", "walks", "asked", "depth", "violation", "tally"}
"""What is kept of each setting."""


def version() -> str:
    """Return what stands for the sources that decide which states there are."""
    found = hashlib.sha256()
    for folder in ("kraftfast/core", "tests/core", "tests/model"):
        for path in sorted((ROOT / folder).rglob("*.py*")):
            if path.suffix in (".py", ".pyx", ".pxd") and not path.name.startswith("test_"):
                found.update(path.name.encode() + b"\0" + path.read_bytes())
    return found.hexdigest()[:16]


def lock_of(path: Path) -> Path:
    """Return the file that one run at a time locks."""
    return path.with_name(f"{path.name}.lock")


class Fingerprints:
    """Open addressing in one array. Hashes must be the same in every process that shares it."""

    def __init__(self, path: Path | None = None, reads_only: bool = False) -> None:
        """Take up what a file holds, if it is there; one run at a time writes it.

        Raises Refused where it cannot be taken up, and OSError.
        """
        self._table = np.zeros(1 << 16, np.uint64)
        path = None if path is None else path.resolve()  # a link stays one
        if path is not None and path.exists() and not path.is_file():
            raise Refused(f"{path} is no file")
        self._path = path
        self.walks = 0  # that were taken, in this run and those before it
        self.told: dict[str, Any] = {}  # of each setting, what its searches came to
        self._made_lock = False
        self.seen_by: dict[str, int] = {}  # distinct states, by version of the sources
        self._locked = None if path is None or reads_only else self._lock(path)
        if path is not None and path.exists():
            try:
                self._load(path)
            except OSError:
                self._leave(path)
                raise
            except Exception as error:  # noqa: BLE001 - what other bytes make of it may be anything
                self._leave(path)
                raise Refused(f"{path} is damaged or of something else: {error}") from error
        self._cells = memoryview(self._table)
        self._count = int(np.count_nonzero(self._table))

    def _lock(self, path: Path) -> IO[str]:
        name = lock_of(path)
        with suppress(FileExistsError):
            name.touch(exist_ok=False)
            self._made_lock = True
        locked = name.open("a")
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise Refused(f"{path} is in use by another run") from None
        return locked

    def _leave(self, path: Path) -> None:
        """Leave no lock of ours beside a file that is none of this search."""
        if self._made_lock:
            lock_of(path).unlink(missing_ok=True)

    def _load(self, path: Path) -> None:
        with np.load(path) as stored:
            self.walks, self._table = int(stored["walks"]), stored["table"]
            self.told = json.loads(str(stored["told"]))
            seen_by = json.loads(str(stored["seen_by"])) if "seen_by" in stored else None
        if self._table.ndim != 1 or self._table.dtype != np.uint64 or not len(self._table):
            raise ValueError("its table is none of hashes")
        size, filled = len(self._table), int(np.count_nonzero(self._table))
        if size & size - 1 or filled > FILLED_MAX * size:
            raise ValueError("its table is none of hashes")
        if any(FIGURES - known.keys() for known in self.told.values()):
            raise ValueError("its settings have other figures")
        self.seen_by = seen_by or {"unknown": filled}

    def others(self) -> int:
        """Return how many states were seen with other versions of the sources."""
        return sum(count for name, count in self.seen_by.items() if name != version())

    def versions(self) -> str:
        """Return which states are of these sources, and which are of others."""
        return (
            f"{self._path}: {len(self):,} distinct states, {self.others():,} of them seen in other "
            "versions of the core or of the search"
        )

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[int]:
        for begin in range(0, len(self._table), CHUNK):  # without a list of all of them
            chunk = self._table[begin : begin + CHUNK]
            yield from chunk[chunk != EMPTY].tolist()

    def add(self, value: int) -> bool:
        """Return whether it is new."""
        value &= (1 << 64) - 1
        value = value or 1
        cells = self._cells
        mask = len(cells) - 1
        place = (value ^ value >> 32) & mask
        while True:
            standing = cells[place]
            if standing == value:
                return False
            if standing == EMPTY:
                break
            place = place + 1 & mask
        cells[place] = value
        self._count += 1
        if self._count > FILLED_MAX * len(cells):
            self._grow()
        return True

    def _grow(self) -> None:
        old = self._table
        self._table = np.zeros(len(old) * 2, np.uint64)
        self._cells = memoryview(self._table)
        self._count = 0
        for begin in range(0, len(old), CHUNK):  # without a list of all of them
            chunk = old[begin : begin + CHUNK]
            for each in chunk[chunk != EMPTY].tolist():
                self.add(each)

    def store(self) -> None:
        """Write them to the file that they were read from; raises OSError, and leaves that then."""
        if self._path is None:
            return
        self.seen_by[version()] = self._count - self.others()
        told, seen_by = json.dumps(self.told), json.dumps(self.seen_by)
        with replaced_by(self._path) as file:
            np.savez(file, table=self._table, walks=self.walks, told=told, seen_by=seen_by)
