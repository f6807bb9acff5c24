"""Two small files that each hold a place in the log: an offset, the epoch of the record before it.

``durable-end`` (beside the segments): everything below it was on disk at the last clean close, so
that damage there is no torn tail. ``phantom-tail`` (in the replica's directory): up to here records
may have been acknowledged that the last crash lost (D10). A third line is the CRC-32 of the place;
a mark of an earlier version has none.
"""

from __future__ import annotations

import os
import re
import zlib

from kraftfast.errors import CorruptLog, ForeignDirectory
from kraftfast.log.disk import Disk
from kraftfast.types import OffsetAndEpoch

DURABLE_END = "durable-end"
PHANTOM_TAIL = "phantom-tail"
SUM = re.compile(r"[^ ]{8}")


def write(disk: Disk, directory: str, name: str, mark: tuple[int, int]) -> None:
    """Replace the mark, durably. Raises StorageError."""
    disk.replace_file(os.path.join(directory, name), encode(mark))


def rewrite(disk: Disk, directory: str, name: str, mark: tuple[int, int]) -> None:
    """Do as :func:`write`, on a full disk too (``Disk.rewrite_file``)."""
    disk.rewrite_file(os.path.join(directory, name), encode(mark))


def encode(mark: tuple[int, int]) -> bytes:
    """Return the bytes of a mark's file, or of the floor's (``committed_floor.py``)."""
    offset, epoch = mark
    line = f"{offset} {epoch}"
    return f"0\n{line}\n{zlib.crc32(line.encode()):08x}\n".encode()


def read(disk: Disk, directory: str, name: str) -> OffsetAndEpoch | None:
    """Return the mark, None if there is none.

    Raises ForeignDirectory if it does not parse, CorruptLog if its checksum differs.
    """
    path = os.path.join(directory, name)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return None
    try:
        version, line, *rest = data.decode("ascii").split("\n")
        if version != "0":
            raise ValueError
        place = parse_place(line)
        if rest[-1] or len(rest) > 2 or len(rest) == 2 and not SUM.fullmatch(rest[0]):
            raise ValueError
    except (ValueError, IndexError):
        raise ForeignDirectory(f"{path} does not parse") from None
    if len(rest) == 2 and data != encode(place):
        raise CorruptLog(f"{path} does not match its checksum", path)
    return place


def parse_place(line: str) -> OffsetAndEpoch:
    """Return the place that a line names: offset, space, epoch. Raises ValueError."""
    offset, epoch = (int(word) for word in line.split(" "))
    if not (0 <= offset < 2**63 and 0 <= epoch < 2**31):
        raise ValueError
    return OffsetAndEpoch(offset, epoch)
