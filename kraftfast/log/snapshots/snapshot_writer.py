"""Writing a snapshot that is made here, in Kafka's format: Kafka loads it (KIP-630, KIP-853).

What is fetched is written by ``snapshot_files.begin_part`` and ``node/snapshots``.

The first batch is a control batch: SnapshotHeader, and from ``kraft.version`` 1 on KRaftVersion and
KRaftVoters as of the last record that the snapshot replaces. Data batches follow, then a control
batch with SnapshotFooter. Offsets begin at 0, the epoch of every batch is the snapshot's.
Source: KIP-630; Kafka's ``RecordsSnapshotWriter``.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.errors import Closed, InvalidOption, RecordTooLarge, StorageError
from kraftfast.log.snapshots import snapshot_files
from kraftfast.record.builder import BatchBuilder, Settings
from kraftfast.record.control import ControlRecord, SnapshotFooter, SnapshotHeader, control_batch
from kraftfast.types import KRaftVersion, KRaftVoters, OffsetAndEpoch, Tags

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.record.batch import RecordsMode

BATCH_BYTES = 256 * 1024
"""A data batch is closed before it is larger; a record that is larger stands alone."""


class SnapshotWriter:
    """One snapshot while it is written. It has no name before ``freeze``; for one thread.

    A ``StateMachine`` is handed one, which the replica freezes: ``freeze`` and ``abort`` raise
    InvalidOption there, and nothing is taken when it has returned. What could not be written once,
    fails from then on with the same error; a record that is refused is left out, and no more.

    ``disk``: a ``kraftfast.log.disk.Disk``. ``log_path``: the directory of the log.
    ``snapshot_id``: the offset that it ends at, exclusive, and the epoch of the record before it.
    ``last_contained_log_timestamp``: milliseconds, of the last batch that it replaces.
    ``controls``: KRaftVersion and KRaftVoters as of its end. ``header_tags``: what a later version
    would read in its header. ``records``: what the log takes. ``timestamp``: of its batches, in
    milliseconds; -1: now. Raises InvalidOption, StorageError, DiskFull.
    """

    snapshot_id: OffsetAndEpoch  # exclusive end offset, and the epoch of the record before it
    end_offset: int  # inside the snapshot: of the next record
    finished: bool  # frozen or aborted: nothing more is taken
    failed: StorageError | None  # what could not be written: nothing more is taken

    def __init__(
        self,
        disk: Disk,
        log_path: str,
        snapshot_id: OffsetAndEpoch,
        *,
        last_contained_log_timestamp: int,
        controls: Sequence[KRaftVersion | KRaftVoters] = (),
        header_tags: Tags = (),
        records: RecordsMode = "any",
        timestamp: int = -1,
    ) -> None:
        snapshot_files.snapshot_name(snapshot_id)  # it can have one
        self.snapshot_id = snapshot_id
        self.end_offset = 0
        self.finished = False
        self.failed = None
        self._lent = self._returned = False  # to a state machine, and by it
        self._disk, self._log_path = disk, log_path
        self._timestamp = timestamp if timestamp >= 0 else time.time_ns() // 1_000_000
        self._records = records
        header = SnapshotHeader(last_contained_log_timestamp, header_tags)
        first = self._control_batch([header, *controls])
        self._buffer = bytearray(BATCH_BYTES)
        self._file = snapshot_files.begin_part(disk, log_path, snapshot_id)
        try:
            self._put(first, 1 + len(controls))
            self._builder = self._open_batch(self._buffer)
        except BaseException as error:
            self.__exit__(type(error))  # the caller cannot: it has no writer yet
            raise

    @property
    def size(self) -> int:
        """Bytes written so far, without the batch that is still open."""
        return int(self._file.size)

    def append(
        self,
        value: bytes | None,
        key: bytes | None = None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> None:
        """Append one record.

        ``value``, ``key``: bytes, or None. ``headers``: pairs of a name and bytes, or None. Raises
        RecordsRefused, RecordTooLarge, DiskFull, Closed.
        """
        self._check_open()
        if self._returned:  # what is behind its footer is damage
            raise Closed(f"snapshot {self.snapshot_id}: StateMachine.snapshot() has returned")
        if self._builder.append(value, key, headers):
            return
        self._close_batch()
        if self._builder.append(value, key, headers):
            return
        large = bytearray(limits.BATCH_BYTES_MAX)
        builder = self._open_batch(large)
        if not builder.append(value, key, headers):
            raise RecordTooLarge(f"a record does not fit a batch of {limits.BATCH_BYTES_MAX} bytes")
        size = builder.finish()
        self._put(memoryview(large)[:size], 1)
        self._builder = self._open_batch(self._buffer)

    def extend(self, values: Iterable[bytes | None]) -> None:
        """Append many records with ``values`` alone. See :meth:`append`."""
        for value in values:
            self.append(value)

    def freeze(self, footer_tags: Tags = ()) -> None:
        """Put everything on disk under its name.

        ``footer_tags``: what a later version would read in its footer. Raises FlushFailed (D9),
        DiskFull, Closed.
        """
        self._check_own()
        self._check_open()
        self._close_batch()
        self._put(self._control_batch([SnapshotFooter(footer_tags)]), 1)
        with self._final():
            snapshot_files.finish_part(self._disk, self._file)
            snapshot_files.name_part(self._disk, self._file.path, self._log_path, self.snapshot_id)
        self.finished = True  # a part without a name is not left behind

    def abort(self) -> None:
        """Leave nothing; after ``freeze`` it does nothing. Raises StorageError."""
        self._check_own()
        if not self.finished:
            self.finished = True
            snapshot_files.drop_part(self._disk, self._file)

    @contextmanager
    def lent(self) -> Iterator[SnapshotWriter]:
        """Refuse ``freeze`` and ``abort`` meanwhile: a state machine has it.

        Its footer holds what the state machine does not know: the state of producers (I24). Raises
        InvalidOption: it was lent before.
        """
        if self._lent or self._returned:
            raise InvalidOption("a snapshot is lent once")
        self._lent = True
        try:
            yield self
        finally:
            self._lent, self._returned = False, True

    def __enter__(self) -> SnapshotWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None = None, *_exc: object) -> None:
        try:
            self.abort()
        except (StorageError, InvalidOption, OSError):
            if kind is None:  # else what failed first counts: it may be an fsync (D9)
                raise

    def _check_own(self) -> None:
        if self._lent:
            raise InvalidOption(
                "the replica itself ends a snapshot: StateMachine.snapshot() appends to it"
            )

    def _check_open(self) -> None:
        if self.finished:
            raise Closed(f"snapshot {self.snapshot_id} was finished")
        if self.failed is not None:
            raise self.failed.with_traceback(None)  # which keeps all that failed before (I25)

    @contextmanager
    def _final(self) -> Iterator[None]:
        """Let no failure be passed over: part of a batch may stand in the file, and an fsync that
        is tried again may succeed without the bytes (D9)."""
        try:
            yield
        except StorageError as error:
            self.failed = error
            raise

    def _control_batch(self, records: Sequence[ControlRecord]) -> bytes:
        return control_batch(
            records,
            timestamp=self._timestamp,
            base_offset=self.end_offset,
            leader_epoch=self.snapshot_id.epoch,
        )

    def _open_batch(self, buffer: bytearray) -> BatchBuilder:
        settings = Settings(
            self._timestamp,
            base_offset=self.end_offset,
            leader_epoch=self.snapshot_id.epoch,
            records=self._records,
        )
        return BatchBuilder(buffer, settings)

    def _close_batch(self) -> None:
        count = self._builder.record_count
        size = self._builder.finish()
        if size:
            self._put(memoryview(self._buffer)[:size], count)
        self._builder = self._open_batch(self._buffer)

    def _put(self, batch: bytes | memoryview, count: int) -> None:
        with self._final():
            self._file.write(batch)
        self.end_offset += count


def write_bootstrap(
    disk: Disk, log_path: str, controls: Sequence[KRaftVersion | KRaftVoters]
) -> None:
    """Write the snapshot that a directory is formatted with: who votes before there is a log
    (KIP-853).

    Raises InvalidOption, StorageError.
    """
    if not any(isinstance(each, KRaftVersion) for each in controls):
        raise InvalidOption("a bootstrap snapshot holds kraft.version")
    with SnapshotWriter(
        disk,
        log_path,
        snapshot_files.BOOTSTRAP,
        last_contained_log_timestamp=0,
        controls=controls,
    ) as writer:
        writer.freeze()
