"""A set of 64-bit hashes, in 13 bytes each, that can be stored and taken up again."""

from __future__ import annotations

from pathlib import Path

import numpy as np

FILLED_MAX = 0.6
EMPTY = 0


class Fingerprints:
    """Open addressing in one array. Hashes must be the same in every process that shares it."""

    def __init__(self, path: Path | None = None) -> None:
        self._table = np.zeros(1 << 16, np.uint64)
        self._cells = memoryview(self._table)
        self._count = 0
        self._path = path
        self.walks = 0  # that were taken, in this run and those before it
        if path is not None and path.exists():
            with np.load(path) as stored:
                self.walks = int(stored["walks"])
                for each in stored["states"].tolist():
                    self.add(each)

    def __len__(self) -> int:
        return self._count

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
        old = self._table[self._table != EMPTY].tolist()
        self._table = np.zeros(len(self._cells) * 4, np.uint64)
        self._cells = memoryview(self._table)
        self._count = 0
        for each in old:
            self.add(each)

    def store(self) -> None:
        """Write them to the file that they were read from."""
        if self._path is not None:
            part = self._path.with_suffix(".part.npz")
            np.savez(part, states=self._table[self._table != EMPTY], walks=self.walks)
            part.replace(self._path)
