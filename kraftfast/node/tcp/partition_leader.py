"""The partition as its leader shows it to clients: what Kafka's ``Partition`` answers.

    log start offset <= last stable offset = high watermark <= log end offset

Between high watermark and log end there are records that may still be cut. Clients may name such
offsets, and get nothing from there (D11, I20). No transaction is ever open: all that is committed
is stable.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Generator
from typing import TYPE_CHECKING, Any

from kraftfast import limits
from kraftfast.errors import CorruptBatch, CorruptLog, ErrorCode, UnsupportedCodec
from kraftfast.log.reading.by_time import at_max_timestamp, at_timestamp
from kraftfast.log.reading.served import raise_damage, sound_part
from kraftfast.types import NO_EPOCH, NO_OFFSET

if TYPE_CHECKING:
    from kraftfast.node.node import Node

ANSWER_BYTES_MAX = limits.BATCH_BYTES_MAX
"""The most record bytes in one answer, whatever a client asks for; one batch always fits."""

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
LATEST_TIERED, EARLIEST_PENDING_UPLOAD = -5, -6
FIRST_VERSION = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""From which version of ListOffsets on each of its special timestamps has a meaning."""

OFFSETS_TOLD = ("high_watermark", "last_stable_offset", "log_start_offset")
NO_TIMESTAMP = -1
OffsetAt = tuple[int, int, int]
"""Offset, timestamp, epoch; -1 each where there is none."""
NOWHERE: OffsetAt = (NO_OFFSET, NO_TIMESTAMP, NO_EPOCH)


class PartitionLeader:
    """What a client may learn of the log of ``node``. Every answer is of this moment."""

    def __init__(self, node: Node) -> None:
        self.node = node

    # --- the offsets ------------------------------------------------------------------------------

    @property
    def log_start_offset(self) -> int:
        """The first offset that the log may still hold."""
        return int(self.node.log.log_start_offset)

    @property
    def high_watermark(self) -> int:
        """The end of what is known to be committed.

        A leader that has committed nothing in its epoch yet goes on from what it knew before, as
        Kafka's does: nothing below that is ever cut (D23).
        """
        core, log = self.node.core, self.node.log
        committed = min(core.uncuttable_offset, log.end_offset)
        return int(max(core.high_watermark, committed, log.log_start_offset))

    @property
    def last_stable_offset(self) -> int:
        """The end of what a consumer with ``isolation.level=read_committed`` may read."""
        return self.high_watermark

    @property
    def log_end_offset(self) -> int:
        """The end of the log, committed or not."""
        return int(self.node.log.end_offset)

    @property
    def lags(self) -> bool:
        """Whether records of earlier epochs may be committed that are not known to be (KIP-207)."""
        return bool(self.node.core.epoch_start_offset > self.high_watermark)

    def offsets_beside(self, error: ErrorCode) -> dict[str, Any]:
        """Return the offsets that a Fetch answer tells beside its error.

        None beside an error that sends the client elsewhere, as in Kafka: librdkafka takes an
        answer whose last stable offset is its position for the end of the partition, whatever the
        error, and a replica that does not lead may be behind. Our own consumers need the log start
        offset with OFFSET_OUT_OF_RANGE.
        """
        if error not in (ErrorCode.NONE, ErrorCode.OFFSET_OUT_OF_RANGE):
            return dict.fromkeys(OFFSETS_TOLD, NO_OFFSET)
        known = (self.high_watermark, self.last_stable_offset, self.log_start_offset)
        return dict(zip(OFFSETS_TOLD, known))

    # --- whether it answers -----------------------------------------------------------------------

    def refusal(self, current_leader_epoch: int) -> ErrorCode:
        """Return what is wrong with asking this replica in that epoch (-1: none is named).

        The epoch is compared before the role, as in Kafka: a client that is ahead of this replica
        must not look for another leader, one that is behind must.
        """
        core = self.node.core
        if current_leader_epoch != NO_EPOCH:
            if current_leader_epoch < core.epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if current_leader_epoch > core.epoch:
                return ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if core.role == "leader" else ErrorCode.NOT_LEADER_OR_FOLLOWER

    # --- Fetch ------------------------------------------------------------------------------------

    def check_position(
        self, offset: int, last_fetched_epoch: int
    ) -> tuple[ErrorCode, tuple[int, int] | None]:
        """Compare a position with the log: an error, and where it diverges (epoch, end offset)."""
        start_offset = self.log_start_offset
        if last_fetched_epoch != NO_EPOCH:
            epoch, end_offset = self.end_offset_for_epoch(last_fetched_epoch)
            if end_offset == NO_OFFSET or offset < start_offset:
                return ErrorCode.OFFSET_OUT_OF_RANGE, None
            if epoch < last_fetched_epoch or end_offset < offset:
                return ErrorCode.NONE, (epoch, end_offset)
        if not start_offset <= offset <= self.log_end_offset:
            return ErrorCode.OFFSET_OUT_OF_RANGE, None
        return ErrorCode.NONE, None

    def read(self, offset: int, bytes_max: int) -> bytes:
        """Return committed batches from an offset on: a copy of one segment's bytes (D11).

        At least one batch if there is one, else as many as fit ``bytes_max``. All that a start
        would check is checked, up to the first damaged batch (D10): no CRC covers base offsets, so
        a consumer would take records for those of other offsets. Raises CorruptLog, and tells it,
        if that is the first of all: an answer without records would pass for the end.
        """
        end_offset = self.high_watermark
        if offset >= end_offset:
            return b""
        log = self.node.log
        found = log.locate(offset, bytes_max, end_offset)
        try:
            # D20: no batch needs to begin there, and what a damaged one holds may look like one.
            if found is None or not found[0].leads_to(offset):
                raise_damage(log, log.segment_of(offset), offset)
            segment, position, length = found
            length, _ = sound_part(log, segment, position, length, offset, True)
        except CorruptLog as error:
            self.node.damage.report(self.node, error)
            raise
        return bytes(segment.file.view(position, position + length))

    def measure(self, start_offset: int, offset: int, bytes_max: int) -> tuple[int, int, bool]:
        """Return how many committed bytes follow ``offset``, up to where, and if no more can.

        It stops at the first batch that reaches ``bytes_max``. An answer from ``start_offset`` on
        holds bytes of one segment: no more can follow once another one is active.
        """
        log, end_offset, taken = self.node.log, self.high_watermark, 0
        full = start_offset < log.active.base_offset <= end_offset
        while taken < bytes_max and offset < end_offset and not full:
            found = log.locate(offset, bytes_max - taken, end_offset)
            if found is None:
                break
            segment, position, length = found
            taken += length
            offset = segment.offset_at(position + length)
            if offset < 0:  # behind the last batch
                offset = segment.end_offset
        return taken, offset, full

    # --- OffsetForLeaderEpoch ---------------------------------------------------------------------

    def end_offset_for_epoch(self, epoch: int) -> tuple[int, int]:
        """Return the largest epoch not above ``epoch`` that has records, and where it ends.

        (-1, -1) for an epoch that this leader does not know of. Kafka's
        ``LeaderEpochFileCache.endOffsetFor``; its leaders note their own epoch when they are
        elected, ours with the epoch's first record: until then it begins, and ends, at the log's
        end.
        """
        log, current = self.node.log, self.node.core.epoch
        if not 0 <= epoch <= current:
            return NO_EPOCH, NO_OFFSET
        if epoch == current:
            return epoch, int(log.end_offset)
        epochs = log.epochs
        found = bisect_right(epochs, epoch, key=lambda entry: entry[0])
        end_offset = epochs[found][1] if found < len(epochs) else log.end_offset
        return int(epochs[found - 1][0] if found else epoch), int(end_offset)

    def epoch_of(self, offset: int) -> int:
        """Return the epoch that the record at ``offset`` has or would have, -1 if unknown."""
        epochs = self.node.log.epochs
        found = bisect_right(epochs, offset, key=lambda entry: entry[1])
        return int(epochs[found - 1][0]) if found else NO_EPOCH

    # --- ListOffsets ------------------------------------------------------------------------------

    def offset_at(
        self, timestamp: int, version: int, consumer: bool
    ) -> Generator[int, None, tuple[ErrorCode, OffsetAt]]:
        """Answer ListOffsets, by turns: an error, and the place of a timestamp or a special one.

        A client that is no consumer is a replica by Kafka's rules, and sees the whole log.
        """
        if timestamp < 0 and version < FIRST_VERSION.get(timestamp, version + 1):
            return ErrorCode.UNSUPPORTED_VERSION, NOWHERE
        if timestamp in (LATEST_TIERED, EARLIEST_PENDING_UPLOAD):
            return ErrorCode.NONE, NOWHERE  # there is no other storage
        if timestamp in (EARLIEST, EARLIEST_LOCAL):
            start_offset = self.log_start_offset
            return ErrorCode.NONE, (start_offset, NO_TIMESTAMP, self.epoch_of(start_offset))
        end_offset = self.last_stable_offset if consumer else self.log_end_offset
        lags = consumer and self.lags
        if timestamp == LATEST:
            if lags:
                return ErrorCode.OFFSET_NOT_AVAILABLE, NOWHERE
            return ErrorCode.NONE, (end_offset, NO_TIMESTAMP, self.node.core.epoch)
        log = self.node.log
        try:
            if timestamp == MAX_TIMESTAMP:
                found = yield from at_max_timestamp(log, end_offset)
            else:
                found = yield from at_timestamp(log, timestamp, end_offset)
        except UnsupportedCodec:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, NOWHERE
        except CorruptBatch as error:
            self.node.tell("search_failed", why=error)
            return ErrorCode.CORRUPT_MESSAGE, NOWHERE
        except CorruptLog as error:
            self.node.damage.report(self.node, error)
            return ErrorCode.CORRUPT_MESSAGE, NOWHERE
        if found is not None:
            return ErrorCode.NONE, found
        return ErrorCode.OFFSET_NOT_AVAILABLE if lags else ErrorCode.NONE, NOWHERE
