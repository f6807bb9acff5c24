"""Two small files that each hold a place in the log: an offset, the epoch of the record before it.

``durable-end`` (beside the segments): everything below it was on disk at the last clean close, so
that damage there is no torn tail. ``phantom-tail`` (in the replica's directory): up to here records
may have been acknowledged that the last crash lost (D10).
"""

from __future__ import annotations

import os

from kraftfast.errors import ForeignDirectory
from kraftfast.log.disk import Disk
from kraftfast.types import OffsetAndEpoch

DURABLE_END = "durable-end"
PHANTOM_TAIL = "phantom-tail"


def write(disk: Disk, directory: str, name: str, mark: tuple[int, int]) -> None:
    """Replace the mark, durably. Raises StorageError."""
    disk.replace_file(os.path.join(directory, name), encode(mark))


def encode(mark: tuple[int, int]) -> bytes:
    """Return the bytes of the file of a mark."""
    offset, epoch = mark
    return f"0\n{offset} {epoch}\n".encode()


def read(disk: Disk, directory: str, name: str) -> OffsetAndEpoch | None:
    """Return the mark, None if there is none. Raises ForeignDirectory if it does not parse."""
    path = os.path.join(directory, name)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    try:
        version, line = data.decode("ascii").splitlines()
        if version != "0":
            raise ValueError
        return parse_place(line)
    except ValueError:
        raise ForeignDirectory(f"{path} does not parse") from None


def parse_place(line: str) -> OffsetAndEpoch:
    """Return the place that a line names: offset, space, epoch. Raises ValueError."""
    offset, epoch = (int(word) for word in line.split(" "))
    if not (0 <= offset < 2**63 and 0 <= epoch < 2**31):
        raise ValueError
    return OffsetAndEpoch(offset, epoch)
