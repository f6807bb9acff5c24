"""Snapshots as files: their names, how one comes to be, and how it goes (KIP-630).

    <20 digits of the end offset>-<10 digits of the epoch>.checkpoint
    <the same>-<serial>.checkpoint.part                  while it is written or fetched

A snapshot has its name only once all of it is on disk, read-only; what a crash leaves under another
name goes at the next start. Sources: KIP-630; Kafka's ``Snapshots``
and ``FileRawSnapshotWriter``.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftfast.errors import InvalidOption
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk, NewFile

SUFFIX = ".checkpoint"
PART_SUFFIX = ".part"
BOOTSTRAP = OffsetAndEpoch(0, 0)
"""The id of the snapshot that a directory is formatted with: its contents are at offset -1."""
_NAME = re.compile(r"(\d{20})-(\d{10})\.checkpoint")


def snapshot_name(snapshot_id: OffsetAndEpoch) -> str:
    """Return the file name of a finished snapshot. Raises InvalidOption for what is no id.

    >>> snapshot_name(OffsetAndEpoch(113, 4))
    '00000000000000000113-0000000004.checkpoint'
    """
    offset, epoch = snapshot_id
    if not (0 <= offset < 2**63 and 0 <= epoch < 2**31):
        raise InvalidOption(f"no snapshot can end at offset {offset} in epoch {epoch}")
    return f"{offset:020d}-{epoch:010d}{SUFFIX}"


def snapshot_path(log_path: str, snapshot_id: OffsetAndEpoch) -> str:
    """Return where a finished snapshot is."""
    return os.path.join(log_path, snapshot_name(snapshot_id))


def id_of(name: str) -> OffsetAndEpoch | None:
    """Return the id in the name of a finished snapshot; None for any other name.

    >>> id_of("00000000000000000113-0000000004.checkpoint")
    OffsetAndEpoch(offset=113, epoch=4)
    >>> id_of("00000000000000000113-0000000004.checkpoint.deleted")
    """
    match = _NAME.fullmatch(os.path.basename(name))
    if match is None or int(match[1]) >= 2**63 or int(match[2]) >= 2**31:
        return None
    return OffsetAndEpoch(int(match[1]), int(match[2]))


def snapshot_ids(disk: Disk, log_path: str) -> list[OffsetAndEpoch]:
    """Return ids of finished snapshots, oldest first (epoch, then offset), the bootstrap's too."""
    found = [id_of(name) for name in disk.list_directory(log_path)]
    return sorted((each for each in found if each is not None), key=_by_epoch)


def _by_epoch(snapshot_id: OffsetAndEpoch) -> tuple[int, int]:
    return snapshot_id.epoch, snapshot_id.offset


def begin_part(disk: Disk, log_path: str, snapshot_id: OffsetAndEpoch) -> NewFile:
    """Begin a file for the bytes of a snapshot. Raises StorageError."""
    stem = snapshot_path(log_path, snapshot_id).removesuffix(SUFFIX)
    names = (f"{stem}-{serial}{SUFFIX}{PART_SUFFIX}" for serial in itertools.count(1))
    while True:
        try:
            return disk.create_file(next(names))
        except FileExistsError:
            continue


def finish_part(disk: Disk, file: NewFile) -> None:
    """Put all of it on disk; nothing writes it any longer, and it has no name yet."""
    file.sync()
    file.protect()
    file.close()


def name_part(disk: Disk, path: str, log_path: str, snapshot_id: OffsetAndEpoch) -> None:
    """Give a finished part its name, durably."""
    disk.rename(path, snapshot_path(log_path, snapshot_id))
    disk.sync_directory(log_path)


def drop_part(disk: Disk, file: NewFile) -> None:
    """Remove it: it is no longer wanted."""
    file.close()
    disk.unlink(file.path)


def delete_snapshots(disk: Disk, log_path: str, snapshot_ids: Iterable[OffsetAndEpoch]) -> None:
    """Remove finished snapshots, durably. A process that reads one goes on reading it."""
    paths = [snapshot_path(log_path, each) for each in snapshot_ids]
    for path in paths:
        disk.unlink(path)
    if paths:
        disk.sync_directory(log_path)
