"""Reading a snapshot, a piece at a time: ours or Kafka's, and whatever a disk has made of it.

Framing, CRCs, offsets and epochs of every batch are checked before anything of it is handed out; a
snapshot begins with its header, ends with its footer, and nothing is behind that. Never more than
one batch and one piece are in memory. Damage is CorruptLog with its place.
Source: KIP-630; Kafka's ``RecordsSnapshotReader``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.errors import Closed, CorruptBatch, CorruptLog, StorageError, UnsupportedVersion
from kraftfast.log import scan
from kraftfast.log.snapshots.snapshot_files import id_of, snapshot_path
from kraftfast.record import batch as record_batch
from kraftfast.record.batch import BatchView
from kraftfast.record.control import ControlRecord, SnapshotFooter, SnapshotHeader, decode_control
from kraftfast.record.shapes import Record
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk

PIECE_BYTES = 1024 * 1024


class SnapshotReader:
    """One snapshot, read from its beginning to its end; for one thread.

    Opening reads its first batch. ``disk``: a ``kraftfast.log.disk.Disk``. ``path``: the file's.
    ``snapshot_id``: what it must hold; None, what its name says, or nothing
    (``bootstrap.checkpoint``). Raises FileNotFoundError, StorageError, CorruptLog.
    """

    snapshot_id: OffsetAndEpoch | None
    path: str
    size: int  # bytes of the file
    header: SnapshotHeader
    controls: tuple[KRaftVersion | KRaftVoters, ...]  # as of the snapshot's end; all in the header
    footer: SnapshotFooter | None  # None until everything has been read
    position: int  # bytes read and checked
    end_offset: int  # inside the snapshot: after the last record read
    failed: StorageError | None  # what it raised last

    def __init__(self, disk: Disk, path: str, snapshot_id: OffsetAndEpoch | None = None) -> None:
        self.path = path
        self.snapshot_id = id_of(path) if snapshot_id is None else snapshot_id
        self._file = disk.open_file(path)
        self.size = self._file.size
        self.footer = self.failed = None
        self.controls = ()
        self.position = self.end_offset = 0
        self._closed = self._lent = False
        self._held, self._at = b"", 0  # bytes read ahead, and where the next batch begins in them
        self._file_position = 0  # where the next piece is read
        self._checked: Iterator[BatchView] = iter(())
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    @property
    def last_contained_log_timestamp(self) -> int:
        """Milliseconds: of the last batch of the log that the snapshot replaces."""
        return self.header.last_contained_log_timestamp

    def batches(self) -> Iterator[BatchView]:
        """Yield the data batches, once; what is left of them if some were read.

        Raises CorruptLog, Closed.
        """
        while (found := self._next()) is not None:
            if not found.is_control:
                yield found

    def records(self) -> Iterator[Record]:
        """Yield the data records, once; offsets count from its header, at 0. Raises CorruptLog."""
        while (found := self._next()) is not None:
            if found.is_control:
                continue
            try:
                yield from found.records()
            except CorruptBatch as error:
                raise self._corrupt(error.reason) from None

    def check(self) -> int:
        """Read everything that is left; how many data records that was. Raises CorruptLog."""
        return sum(found.record_count for found in self.batches())

    def close(self) -> None:
        """Give the file back; batches in use stay valid. A state machine may: the replica reads
        what is left of it nevertheless. Raises nothing."""
        if self._lent:
            return
        self._closed = True
        self._file.close()

    @contextmanager
    def lent(self) -> Iterator[SnapshotReader]:
        """Do not close meanwhile: a state machine has it, and all of it must be read. Raises
        nothing."""
        before, self._lent = self._lent, True
        try:
            yield self
        finally:
            self._lent = before

    def __enter__(self) -> SnapshotReader:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    # --- inside -----------------------------------------------------------------------------------

    def _begin(self) -> None:
        first = self._next(begun=False)
        records = self._decode(first) if first is not None and first.is_control else []
        if not records or not isinstance(records[0], SnapshotHeader):
            raise self._corrupt("it does not begin with a snapshot's header", 0)
        self.header = records[0]
        self._take(records[1:])

    def _next(self, begun: bool = True) -> BatchView | None:
        """Return the next batch, looked into if it is a control batch; None at the end."""
        if self._closed:
            raise Closed(f"{self.path} was closed")
        found = next(self._checked, None)
        while found is None:
            if self._file_position >= self.size and self._at >= len(self._held):
                if self.footer is None:
                    raise self._corrupt("it ends without a snapshot's footer")
                return None
            self._checked = self._check_some()
            found = next(self._checked, None)
        if self.footer is not None:
            raise self._corrupt("a batch follows the snapshot's footer")
        if found.is_control and begun:
            self._take(self._decode(found))
        self.position += found.size
        self.end_offset = found.end_offset
        return found

    def _check_some(self) -> Iterator[BatchView]:
        """Return the whole batches of what is held, after reading until there is at least one."""
        epoch = -1 if self.snapshot_id is None else self.snapshot_id.epoch
        while True:
            held, at = self._held, self._at
            end, _, reached, fault = scan.walk(
                held, at, len(held), self.end_offset, epoch, verify_crc=True
            )
            if end > at:
                if self.snapshot_id is not None and reached != epoch:
                    raise self._corrupt(f"a batch is of epoch {reached}")
                self._at = end
                return record_batch.batches(held, at, end)
            left = len(held) - at
            cut = fault == scan.INCOMPLETE or left < limits.BATCH_HEADER_BYTES
            if self._file_position >= self.size or not cut:
                raise self._corrupt(scan.fault_text(fault))
            self._held, self._at = held[at:] + self._read(), 0

    def _read(self) -> bytes:
        try:
            piece: bytes = self._file.read_at(self._file_position, PIECE_BYTES)
        except StorageError as error:
            self.failed = error
            raise
        if not piece:
            raise self._corrupt("it is shorter than it was")
        self._file_position += len(piece)
        return piece

    def _decode(self, found: BatchView) -> list[ControlRecord]:
        try:
            return [decode_control(record) for record in found.records()]
        except CorruptBatch as error:
            raise self._corrupt(error.reason) from None
        except UnsupportedVersion as error:
            raise self._corrupt(str(error)) from None

    def _take(self, records: list[ControlRecord]) -> None:
        for record in records:
            if self.footer is not None:
                raise self._corrupt("a record follows the snapshot's footer")
            if isinstance(record, SnapshotFooter):
                self.footer = record
            elif isinstance(record, KRaftVersion | KRaftVoters):
                self.controls = (*self.controls, record)
            elif isinstance(record, SnapshotHeader):
                raise self._corrupt("a second snapshot's header")

    def _corrupt(self, reason: str, position: int = -1) -> CorruptLog:
        at = self.position if position < 0 else position
        text = f"{self.path} is damaged at byte {at}: {reason}"
        self.failed = CorruptLog(text, self.path, at, self.end_offset)
        return self.failed


def open_snapshot(disk: Disk, log_path: str, snapshot_id: OffsetAndEpoch) -> SnapshotReader:
    """Return the finished snapshot with this id.

    Raises FileNotFoundError, StorageError, CorruptLog.
    """
    return SnapshotReader(disk, snapshot_path(log_path, snapshot_id))
