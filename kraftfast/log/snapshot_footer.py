"""The last record of a snapshot, without reading what stands before it: from header to header."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraftfast import limits
from kraftfast.errors import CorruptBatch, CorruptLog, UnsupportedVersion
from kraftfast.log.producer_records import from_tags
from kraftfast.log.producers import Producers
from kraftfast.log.snapshot_files import snapshot_path
from kraftfast.record.batch import batch_at
from kraftfast.record.control import SnapshotFooter, decode_control
from kraftfast.types import OffsetAndEpoch

PIECE_BYTES = 64 * 1024
LENGTH_AT = 8  # of a batch: how many bytes follow its first twelve


def producers_state(disk: Any, log_path: str, snapshot_id: OffsetAndEpoch) -> bytes:
    """What a snapshot says of idempotent producers; b"" if it says nothing, as Kafka's do.

    Raises CorruptLog, FileNotFoundError, StorageError.
    """
    return from_tags(read_footer(disk, snapshot_path(log_path, snapshot_id)).tags)


def load_producers(
    producers: Producers, disk: Any, log_path: str, snapshots: Sequence[OffsetAndEpoch]
) -> None:
    """The state as of the newest snapshot: whoever scans the log notes what comes behind it.

    Where that snapshot says nothing, all that the log holds is to be noted. Raises CorruptLog.
    """
    newest = snapshots[-1] if snapshots else None
    state = producers_state(disk, log_path, newest) if newest else b""
    producers.load(newest.offset if newest and state else 0, state)


def read_footer(disk: Any, path: str) -> SnapshotFooter:
    """The footer of a finished snapshot. Raises CorruptLog, FileNotFoundError, StorageError."""
    file = disk.open_file(path)
    try:
        last = _last_batch(file)
        data: bytes = file.read_at(last, min(file.size - last, limits.BATCH_BYTES_MAX))
        found = batch_at(data)
        found.check()
        (*_, record) = found.records()
        footer = decode_control(record) if found.is_control else None
    except (CorruptBatch, UnsupportedVersion) as error:
        raise CorruptLog(f"{path} has no footer: {error}", path) from None
    finally:
        file.close()
    if not isinstance(footer, SnapshotFooter):
        raise CorruptLog(f"{path} does not end with a snapshot's footer", path)
    return footer


def _last_batch(file: Any) -> int:
    """Where the last batch begins. Raises CorruptBatch where lengths do not add up."""
    position, held_at, held = 0, 0, b""
    while True:
        if position + limits.BATCH_HEADER_BYTES > held_at + len(held):
            held_at, held = position, file.read_at(position, PIECE_BYTES)
        at = position - held_at + LENGTH_AT
        length = int.from_bytes(held[at : at + 4], "big")
        end = position + limits.BATCH_OVERHEAD_BYTES + length
        if length == 0 or end > file.size:
            raise CorruptBatch(f"no batch at byte {position}", position)
        if end == file.size:
            return position
        position = end
