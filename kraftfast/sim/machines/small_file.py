"""Files of a simulated disk that are written once and then read: marks, checkpoints, snapshots."""

from __future__ import annotations

from random import Random
from typing import Any


class SmallFile:
    """A file that is written once and then read."""

    data: bytes  # as processes see it
    stable: bytes  # as it is on the disk
    clean: bool  # the kernel has nothing to write: synced, or given up after an error
    modified_ms: int  # when it was written

    def __init__(self) -> None:
        self.data = b""
        self.stable = b""
        self.clean = True
        self.modified_ms = 0

    def write(self, data: bytes) -> None:
        """Append, not durable."""
        self.data += data
        self.clean = False

    def sync(self) -> None:
        """Put everything written so far on the disk, unless it was given up."""
        if not self.clean:
            self.stable = self.data
        self.clean = True

    def lose_power(self, random: Random) -> None:
        """Unsynced bytes: all, none, a part, or a length of zeros."""
        if not self.clean:
            part = self.data[: random.randint(0, len(self.data))]
            self.stable = random.choice((self.stable, self.data, part, bytes(len(self.data))))
        self.drop_cache()

    def flip(self, place: int, bit: int) -> None:
        """Bit rot: one bit differs, on the disk and for its readers."""
        changed = self.data[place] ^ (1 << bit)
        self.data = self.stable = self.data[:place] + bytes([changed]) + self.data[place + 1 :]
        self.clean = True

    def drop_cache(self) -> None:
        """Drop the cache: what processes see is what is on the disk."""
        self.data, self.clean = self.stable, True


class SimNewFile:
    """A small file that a process writes piece by piece, as ``kraftfast.log.disk.NewFile``."""

    def __init__(self, disk: Any, file: SmallFile, path: str) -> None:
        self.path, self.size = path, 0
        self._disk, self._file = disk, file

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self._disk.write_piece(self._file, bytes(data), self.path)
        self.size += len(data)

    def sync(self) -> None:
        self._disk.sync_small(self._file, self.path)

    def protect(self) -> None:
        pass

    def close(self) -> None:
        pass


class SimStoredFile:
    """A small file that is read in pieces, as ``kraftfast.log.disk.StoredFile``."""

    def __init__(self, data: bytes, path: str) -> None:
        self.path, self.size = path, len(data)
        self._data = data

    def read_at(self, position: int, bytes_max: int) -> bytes:
        return self._data[position : position + bytes_max]

    def close(self) -> None:
        pass
