"""The last record of a snapshot, without reading what stands before it: from header to header."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.errors import CorruptBatch, CorruptLog, ForeignDirectory, UnsupportedVersion
from kraftfast.log.idempotence.producer_records import from_tags
from kraftfast.log.idempotence.producer_state import check_producer_state
from kraftfast.log.idempotence.producers import Producers
from kraftfast.log.snapshots.snapshot_files import snapshot_path
from kraftfast.record.batch import batch_at
from kraftfast.record.control import SnapshotFooter, decode_control
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk, StoredFile

PIECE_BYTES = 64 * 1024
LENGTH_AT = 8  # of a batch: how many bytes follow its first twelve


def producers_state(disk: Disk, log_path: str, snapshot_id: OffsetAndEpoch) -> bytes:
    """Return a snapshot's state of idempotent producers, which can be read; b"" if it has none.

    Kafka's have none. Raises CorruptLog, ForeignDirectory if it is of a version that cannot be
    read here, FileNotFoundError, StorageError.
    """
    path = snapshot_path(log_path, snapshot_id)
    state = from_tags(read_footer(disk, path).tags)
    try:
        check_producer_state(state)
    except CorruptBatch as error:
        raise CorruptLog(f"{path}: {error}", path) from None
    except UnsupportedVersion as error:
        raise ForeignDirectory(f"{path}: {error}") from None
    return state


def load_producers(
    producers: Producers, disk: Disk, log_path: str, snapshot_id: OffsetAndEpoch | None
) -> None:
    """Load the state as of a snapshot: a scan of the log then notes the batches behind it.

    Without a snapshot, or one that has no state, a scan must note everything that the log holds.
    Raises as :func:`producers_state`.
    """
    state = producers_state(disk, log_path, snapshot_id) if snapshot_id else b""
    producers.load(snapshot_id.offset if snapshot_id and state else 0, state)


def read_footer(disk: Disk, path: str) -> SnapshotFooter:
    """Return the footer of a finished snapshot.

    Raises CorruptLog, FileNotFoundError, StorageError.
    """
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


def _last_batch(file: StoredFile) -> int:
    """Return where the last batch begins. Raises CorruptBatch where lengths do not add up."""
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
