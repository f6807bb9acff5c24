"""``committed-floor``: an offset below which every record is committed and on this disk (D23).

It lies in the replica's directory, not beside the segments: it must survive the loss of a segment,
so that a log that ends below it is known to be damaged, and no leader can have it cut there after
a restart (I7). It is written at stop and now and then, always below what is committed and flushed.
"""

from __future__ import annotations

import os
import zlib

from kraftfast.errors import CorruptLog
from kraftfast.log.disk import Disk
from kraftfast.log.small_files.marks import encode, parse_place
from kraftfast.types import OffsetAndEpoch

FLOOR = "committed-floor"
NOTHING = OffsetAndEpoch(0, 0)


def write_floor(disk: Disk, directory: str, floor: OffsetAndEpoch) -> None:
    """Replace the stored floor durably. ``floor.epoch`` is that of the record before its offset."""
    disk.replace_file(os.path.join(directory, FLOOR), encode(floor))


def read_floor(disk: Disk, directory: str) -> OffsetAndEpoch:
    """Return the stored floor, (0, 0) if there is none. Raises CorruptLog if it is damaged."""
    path = os.path.join(directory, FLOOR)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        return NOTHING
    try:
        version, line, checksum = data.decode("ascii").splitlines()
        if version != "0" or int(checksum, 16) != zlib.crc32(line.encode()):
            raise ValueError
        return parse_place(line)
    except ValueError:
        raise CorruptLog(
            f"{path} does not match its checksum: it tells whether committed records are missing "
            "here; replace this replica, or, if it has no peers, remove this file once kraftfast "
            "log verify has found all else sound",
            path,
        ) from None


def check_floor(directory: str, floor: OffsetAndEpoch, end_offset: int, epoch: int) -> None:
    """Compare the floor with a recovered log.

    ``epoch``: of the record before the floor, -1 if the log begins above it. Raises CorruptLog if
    committed records are missing or are not those that were committed.
    """
    path = os.path.join(directory, FLOOR)
    if floor.offset > end_offset:
        raise CorruptLog(
            f"{directory}: the log ends at offset {end_offset}, but all records below "
            f"{floor.offset} were committed and on this disk ({path}): "
            f"{floor.offset - end_offset} committed records are missing"
        )
    if epoch not in (-1, floor.epoch):
        raise CorruptLog(
            f"{directory}: the record before offset {floor.offset} is of epoch {epoch}, but one of "
            f"epoch {floor.epoch} was committed there ({path}): this is another log"
        )
