"""Where logs begin and end, in which epochs, and up to where two of them are the same.

This is for readers of files alone: nothing in a log says how far it is committed.
"""

from __future__ import annotations

import contextlib
import errno
import os
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from kraftfast import limits
from kraftfast.errors import StorageError
from kraftfast.log import scan
from kraftfast.log.reading.copied_file import OPEN_END
from kraftfast.log.reading.held_segment import MAGIC, HeldSegment
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.regular import open_regular
from kraftfast.record.headers import decode_headers

GAPS_BYTES = (4 * 1024 * 1024, limits.BATCH_BYTES_MAX)
EPOCH_AT, MAGIC_AT = 12, 16
HIGH_WATERMARKS = "replication-offset-checkpoint"
CLEANED = "cleaner-offset-checkpoint"
CHECKPOINT_BYTES_MAX = 64 * 1024 * 1024
NOTHING_TO_FLUSH = (errno.EINVAL, errno.EROFS)
"""What a file system answers that cannot flush, as it takes no writes."""

EpochStart = tuple[int, int]
"""(epoch, offset of its first record that is there)."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The whole batches of one log. Invariant: epochs and their offsets must rise."""

    start_offset: int
    end_offset: int
    epochs: tuple[EpochStart, ...] = ()

    def index_at(self, offset: int) -> int:
        """Return the index in ``epochs`` of the record at ``offset``, -1 if it is not there."""
        if not self.start_offset <= offset < self.end_offset:
            return -1
        return bisect_right(self.epochs, offset, key=lambda entry: entry[1]) - 1

    def epoch_at(self, offset: int) -> int:
        """Return the epoch of the record at ``offset``, -1 if it is not there."""
        index = self.index_at(offset)
        return -1 if index < 0 else self.epochs[index][0]


def agreed_end(one: Extent, other: Extent) -> int:
    """Return up to where both logs hold the same records; 0 if they have none in common.

    Records of one epoch at one offset are the same, and so is all before them.

    >>> agreed_end(Extent(0, 9, ((1, 0), (2, 5))), Extent(0, 20, ((1, 0), (3, 7))))
    5
    """
    end = min(one.end_offset, other.end_offset)
    while end > max(one.start_offset, other.start_offset):
        epoch, start = one.epochs[one.index_at(end - 1)]
        other_epoch, other_start = other.epochs[other.index_at(end - 1)]
        if epoch == other_epoch:
            return end
        end = max(start, other_start)
    return 0


@dataclass(slots=True)
class _Walked:
    """What is known of one segment. Invariant: all before ``position`` must be whole batches."""

    identity: tuple[int, int]
    """Inode, and generation of the last page: another one means other bytes."""
    position: int = 0
    offset: int = 0
    epoch: int = -1
    epochs: list[EpochStart] = field(default_factory=list)
    places: list[tuple[int, int]] = field(default_factory=list)
    """(base offset, position) of batches, about ``SPAN_BYTES`` apart."""


class LogExtents:
    """The extent of one log, asked for again and again: only what came since is walked.

    Nothing stays open between calls. Raises StorageError.
    """

    # reader: lists the segments. gaps: offsets may be missing, as in a compacted topic.
    # _walked: by base offset.

    def __init__(self, log_path: str, gaps: bool = False) -> None:
        self.reader, self.gaps = LogReader(log_path), gaps
        self._walked: dict[int, _Walked] = {}

    def look(self, end_offset: int | None = None) -> Extent:
        """Return the extent up to ``end_offset`` at least, or up to the last batch whose CRC holds.

        Of earlier segments only those in which the epoch changes are walked.
        """
        while True:
            bases = [base for base, _ in self.reader.segments()]
            if end_offset is not None:
                bases = [base for base in bases if base < end_offset] or bases[:1]
            self._walked = {base: self._walked[base] for base in bases if base in self._walked}
            try:
                return self._look(bases, end_offset)
            except FileNotFoundError:  # given up meanwhile
                continue

    def places(self, base_offset: int) -> list[tuple[int, int]]:
        """Return places of batches in a segment, as far as it was walked."""
        known = self._walked.get(base_offset)
        return known.places if known else []

    def put_on_disk(self) -> None:
        """Flush all that stands there, and the names of the segments (D18).

        The process that wrote it may have died before it did.
        """
        log_path = self.reader.log_path
        for _, path in self.reader.segments():
            with contextlib.suppress(FileNotFoundError):  # given up meanwhile
                _flush(path, open_regular(path, os.O_RDONLY), os.fdatasync)
        try:
            fd = os.open(log_path, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise StorageError(f"cannot open {log_path}: {error.strerror}") from None
        _flush(log_path, fd, os.fsync)

    def _look(self, bases: list[int], end_offset: int | None) -> Extent:
        if not bases:
            return Extent(0, 0)
        epochs: list[EpochStart] = []
        end = bases[0]
        following = -1
        for index in range(len(bases) - 1, -1, -1):  # an earlier one may turn out to be the last
            base = bases[index]
            known = self._known(base)
            if following < 0 or known.epoch != following:
                bound = end_offset
                if following >= 0:
                    bound = bases[index + 1]
                self._walk(base, known, bound, end_offset is None and following < 0)
            if known.epochs:
                if following < 0:
                    end = known.offset
                following = known.epochs[0][0]
                epochs = known.epochs + epochs
        return Extent(bases[0], end, tuple(_starts(epochs)))

    def _known(self, base: int) -> _Walked:
        """Return what is known of a segment that is unchanged; its first epoch at least."""
        segment = HeldSegment(self.reader.log_path, base)
        identity = segment.identity[0], segment.generation
        known = self._walked.get(base)
        if known is None or known.identity != identity or known.position > segment.size:
            known = self._walked[base] = _Walked(identity, offset=base)
            epoch = _first_epoch(segment)
            if epoch >= 0:
                known.epoch, known.epochs = epoch, [(epoch, base)]
        return known

    def _walk(self, base: int, known: _Walked, bound: int | None, verify_crc: bool) -> None:
        segment = HeldSegment(self.reader.log_path, base)
        if (segment.identity[0], segment.generation) != known.identity:
            return
        step = self._step_over_gaps if self.gaps else self._step
        end_offset = OPEN_END if bound is None else bound
        fault = scan.WHOLE
        while fault == scan.WHOLE and known.offset < end_offset:
            began = known.position
            place = known.offset, began
            data, position, offset, last, fault = step(segment, known, end_offset, verify_crc)
            if position == began and fault == scan.WHOLE:  # the batch that holds the bound
                data, position, offset, last, fault = segment.walk(
                    began, known.offset, known.epoch if began else -1, bytes_max=1
                )
            if position == began:
                break
            if last != known.epoch or not known.epochs:
                _note_epochs(known, data, position - began)
            known.places.append(place)
            known.position, known.offset, known.epoch = position, offset, last
        if not known.position:  # no batch of this log stands there
            known.epochs = []

    def _step(
        self, segment: HeldSegment, known: _Walked, end_offset: int, verify_crc: bool
    ) -> tuple[bytes, int, int, int, int]:
        """Return (copy, position, offset, epoch, fault) a mebibyte further."""
        epoch = known.epoch if known.position else -1
        return segment.walk(
            known.position, known.offset, epoch, end_offset=end_offset, verify_crc=verify_crc
        )

    def _step_over_gaps(
        self, segment: HeldSegment, known: _Walked, end_offset: int, verify_crc: bool
    ) -> tuple[bytes, int, int, int, int]:
        limit = segment.limit
        for size in GAPS_BYTES:
            data = segment.read(known.position, max(0, min(size, limit - known.position)))
            rows = decode_headers(data, verify_crc=verify_crc).rows
            if len(rows) or len(data) < size:
                break
        before = np.concatenate([[known.offset], rows["end_offset"][:-1]])[: len(rows)]
        sound = rows["crc_ok"] & (rows["base_offset"] >= before)
        sound &= rows["base_offset"] < end_offset
        count = len(rows) if sound.all() else int(np.argmin(sound))
        if not count:
            return data, known.position, known.offset, known.epoch, scan.END
        last = rows[count - 1]
        end = int(last["position"] + last["size"])
        fault = scan.WHOLE if count == len(rows) else scan.END
        return data[:end], known.position + end, int(last["end_offset"]), int(last["epoch"]), fault


def _flush(path: str, fd: int, flush: Callable[[int], None]) -> None:
    """Flush a descriptor and close it."""
    try:
        flush(fd)
    except OSError as error:
        if error.errno not in NOTHING_TO_FLUSH:
            raise StorageError(f"cannot flush {path}: {error.strerror}") from None
    finally:
        os.close(fd)


def _first_epoch(segment: HeldSegment) -> int:
    """Return the epoch of a segment's first batch, -1 if it has none."""
    header = segment.read(0, limits.BATCH_HEADER_BYTES)
    if len(header) < limits.BATCH_HEADER_BYTES or header[MAGIC_AT] != MAGIC:
        return -1
    return int.from_bytes(header[EPOCH_AT:MAGIC_AT], "big")


def _note_epochs(known: _Walked, data: bytes, end: int) -> None:
    """Add the epochs that begin in some bytes."""
    rows = decode_headers(data, 0, end).rows
    before = known.epochs[-1][0] if known.epochs else -1
    changes = np.flatnonzero(np.diff(rows["epoch"], prepend=before))
    for row in rows[changes]:
        known.epochs.append((int(row["epoch"]), int(row["base_offset"])))


def _starts(epochs: list[EpochStart]) -> list[EpochStart]:
    """Leave one entry an epoch. What is left out is damage, which a reader finds.

    >>> _starts([(1, 0), (1, 40), (2, 50)])
    [(1, 0), (2, 50)]
    """
    found: list[EpochStart] = []
    for epoch, offset in epochs:
        if not found or epoch > found[-1][0]:
            found.append((epoch, offset))
    return found


def kafka_checkpoint(log_path: str, name: str) -> int | None:
    """Return what a Kafka broker stored about a partition's log beside it; None if nothing.

    Source: Kafka's ``OffsetCheckpointFile``, text of a line a partition.
    """
    parent, partition = os.path.split(os.path.abspath(log_path))
    try:
        path = os.path.join(parent, name)
        with open(path, encoding="ascii", opener=open_regular) as file:
            lines = file.read(CHECKPOINT_BYTES_MAX).splitlines()
        for topic, number, offset in (line.split(" ") for line in lines[2:]):
            if f"{topic}-{number}" == partition:
                return int(offset)
    except (OSError, ValueError, StorageError):
        return None
    return None
