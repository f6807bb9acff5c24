"""Readers that stay beside a log through random appends, cuts, retention and restarts (D20).

Every reader copies, notes places and keeps spans of segments whose bytes are cut and written anew.
Whatever it read before, it reads the bytes of the log below the committed offset, and no others.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from kraftfast.log.reading.reader import LogReader
from kraftfast.log.snapshots.log_start import delete_before
from tests.log.kit import Home, append, batch

STEPS = 100
SIZES = (1, 100, 3000, 30_000, 90_000)


class History:
    """A log, what it must hold, and readers that have read it before."""

    def __init__(self, path: Path, seed: int) -> None:
        self.chance = random.Random(seed)
        self.home = Home(path / "replica")
        self.log: Any = self.home.open()
        self.readers = [LogReader(self.home.log_path) for _ in range(2)]
        self.stored: list[tuple[int, int, bytes]] = []
        self.epoch, self.committed, self.start = 1, 0, 0
        self.written = 0

    def append(self) -> None:
        for _ in range(self.chance.randint(1, 12)):
            self.written += 1
            mark = b"%d " % self.written
            size = self.chance.choice(SIZES)
            values = [mark + bytes([self.written % 251]) * size] * self.chance.choice((1, 1, 3))
            begin = self.log.end_offset
            append(self.log, batch(values, base_offset=begin), self.epoch)
            segment, position, length = self.log.locate(begin, 1)
            data = bytes(segment.file.view(position, position + length))
            self.stored.append((begin, self.log.end_offset, data))

    def commit(self) -> None:
        self.log.flush()
        ends = [end for _, end, _ in self.stored if end > self.committed]
        if ends:
            self.committed = self.chance.choice(ends)

    def cut(self) -> None:
        ends = [end for _, end, _ in self.stored if end >= self.committed]
        if ends and self.committed:
            self.log.truncate(self.chance.choice([self.committed, *ends]))
            self.stored = [each for each in self.stored if each[1] <= self.log.end_offset]
            self.epoch += 1

    def delete(self) -> None:
        ends = [end for _, end, _ in self.stored if self.start < end <= self.committed]
        if ends and self.chance.random() < 0.3:
            self.start = self.chance.choice(ends)
            self.log.flush()
            delete_before(self.log, self.start)

    def unbounded(self) -> None:
        """A look at what is not committed: it may be cut later, and must not be remembered."""
        reader = self.chance.choice(self.readers)
        assert reader.end_offset() == self.log.end_offset
        begin = self.chance.randint(max(self.start, self.committed), self.log.end_offset)
        self.check(reader, begin, self.log.end_offset)

    def read(self) -> None:
        if self.committed > self.start:
            begin = self.chance.randint(self.start, self.committed - 1)
            self.check(self.chance.choice(self.readers), begin, self.committed)

    def check(self, reader: LogReader, begin: int, end: int) -> None:
        wanted = [data for _, last, data in self.stored if begin < last <= end]
        found = []
        for one in reader.batches(begin, end):
            found.append(bytes(one.data))
            if len(found) == 20 and self.chance.random() < 0.5:
                break  # it comes back elsewhere
        if len(found) < len(wanted) and len(found) == 20:
            wanted = wanted[:20]
        assert found == wanted

    def step(self) -> None:
        self.log.trims.stop()  # a trim under way would lock its segment: nothing tends it here
        steps = self.append, self.append, self.commit, self.cut, self.delete
        self.chance.choice([*steps, self.unbounded, self.read, self.read, self.read])()

    def close(self) -> None:
        for reader in self.readers:
            reader.close()
        self.home.close()


@pytest.mark.parametrize("seed", range(4))
def test_readers_see_the_log_whatever_they_saw_before(tmp_path: Path, seed: int) -> None:
    history = History(tmp_path, seed)
    try:
        for _ in range(STEPS):
            history.step()
    finally:
        history.close()
