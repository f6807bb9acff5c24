"""A set of 64-bit hashes, in 13 bytes each, that can be stored and taken up again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

FILLED_MAX = 0.6
EMPTY = 0
CHUNK = 1 << 16


class Fingerprints:
    """Open addressing in one array. Hashes must be the same in every process that shares it."""

    def __init__(self, path: Path | None = None) -> None:
        self._table = np.zeros(1 << 16, np.uint64)
        self._cells = memoryview(self._table)
        self._count = 0
        self._path = path
        self.walks = 0  # that were taken, in this run and those before it
        self.told: dict[str, Any] = {}  # of each setting, what its searches came to
        if path is not None and path.exists():
            with np.load(path) as stored:
                self.walks, self._table = int(stored["walks"]), stored["table"]
                self.told = json.loads(str(stored["told"]))
            self._cells = memoryview(self._table)
            self._count = int(np.count_nonzero(self._table))

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
        """Write them to the file that they were read from."""
        if self._path is not None:
            part = self._path.with_suffix(".part.npz")
            told = json.dumps(self.told)
            np.savez(part, table=self._table, walks=self.walks, told=told)
            part.replace(self._path)
