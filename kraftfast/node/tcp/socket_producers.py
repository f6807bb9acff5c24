"""Producers over sockets: Kafka's Produce.

A Produce is answered once its records are committed, whatever its ``acks`` says beyond 0: the
quorum has no weaker promise to give. With ``acks=0`` there is no answer: what cannot be appended
ends the connection, as in Kafka, for the producer learns by nothing else that it must look for the
leader.
"""

from __future__ import annotations

import struct
from collections import deque
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core.log_view import NEVER_MS
from kraftfast.errors import (
    CorruptBatch,
    ErrorCode,
    RecordsRefused,
    RecordTooLarge,
    UnsupportedCodec,
)
from kraftfast.log.small_files.id_ranges import can_be_given
from kraftfast.node.failures import contained
from kraftfast.node.requests.describe_requests import leader_of
from kraftfast.record.batch import batch_at, check_batches
from kraftfast.record.checksum import crc32c
from kraftfast.record.shapes import CODEC_MASK, LOG_APPEND_TIME, TRANSACTIONAL
from kraftfast.types import METADATA_PARTITION
from kraftfast.wire import messages as wire
from kraftfast.wire import produce as wire_produce
from kraftfast.wire.produce import PartitionProduce, PartitionProduced

if TYPE_CHECKING:
    from kraftfast.log.log import Log
    from kraftfast.node.node import Node
    from kraftfast.node.tcp.session import SessionRequest
    from kraftfast.wire.primitives import Buffer

QUEUED_BYTES_MAX = 64 * 1024 * 1024
TOPIC_ID_VERSION = 13
PRESENT = (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER)
"""After these a batch is in the log."""

START_TOLD = frozenset(
    {
        *PRESENT,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.INVALID_RECORD,
        ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
        ErrorCode.UNKNOWN_PRODUCER_ID,
    }
)
"""With these Kafka tells the log start offset. Its Java producer waits for it: as long as it is
not told, UNKNOWN_PRODUCER_ID makes it send the same batch again, until its time is out."""
REFUSAL_TEXTS = {
    ErrorCode.INVALID_RECORD: "a producer id goes with an epoch and a sequence, none below 0"
}
"""What the log means by an error that has several meanings."""
JAVA = "apache-kafka-java"  # how it names its software
MESSAGE_VERSION = 8  # of Produce: from which on an answer can hold a text
MAX_TIMESTAMP_AT, CRC_AT, CRC_FROM, LENGTH_AT = 35, 17, 21, 8  # in the header of a batch

CURRENT_LEADER_VERSION = 10  # of Produce: before it an answer cannot name the leader


class QueuedBatch:
    """A batch that was checked and waits to be appended, or to be committed."""

    __slots__ = ("request", "message", "batch", "base_offset", "end_offset", "deadline_ms")

    def __init__(
        self,
        request: SessionRequest,
        message: PartitionProduce,
        batch: Buffer,
        deadline_ms: int,
    ) -> None:
        self.request, self.message, self.batch = request, message, batch
        self.deadline_ms = deadline_ms
        self.base_offset = self.end_offset = -1


class SocketProducers:
    """What producers over sockets do with the log."""

    # node: whose. queued: to be appended, in order of arrival; queued_bytes: their sizes.
    # appended: to be committed, in the order of taking; duplicates wait for their originals.
    # committed_offset: everything below may be acknowledged.
    # next_ms: when the first of all these has waited long enough, or earlier.

    def __init__(self, node: Node) -> None:
        self.node = node
        self.queued: deque[QueuedBatch] = deque()
        self.queued_bytes = 0
        self.appended: deque[QueuedBatch] = deque()
        self.committed_offset = 0
        self.next_ms = NEVER_MS

    # --- Produce ----------------------------------------------------------------------------------

    @contained
    def produce(
        self, request: SessionRequest, message: PartitionProduce | wire.ProduceRequest
    ) -> None:
        """Check a batch down to its last record (a stranger's could kill all readers), queue it."""
        if not isinstance(message, PartitionProduce):
            if message.acks == 0 and message.topic_data:
                self._hang_up(request, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif message.acks == 0:
                request.finish([])
            else:
                request.respond(self._refuse_all(message))
            return
        error, text = self._check_target(message, request.version), None
        batch = message.records
        if error is ErrorCode.NONE:
            error, batch, text = self._check_records(batch)
        if error is not ErrorCode.NONE:
            self._answer(request, message, error, -1, text)
            return
        deadline_ms = self.node.now_ms() + max(message.timeout_ms, 0)
        self.queued.append(QueuedBatch(request, message, batch, deadline_ms))
        self.queued_bytes += len(batch)
        self.next_ms = min(self.next_ms, deadline_ms)

    def _check_target(self, message: PartitionProduce, version: int) -> ErrorCode:
        node = self.node
        by_id = version >= TOPIC_ID_VERSION
        if (
            (message.topic_id != node.partition.topic_id)
            if by_id
            else (message.topic != node.partition.topic)
        ):
            return ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if message.partition != METADATA_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if message.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUIRED_ACKS
        if node.witness:
            return ErrorCode.INVALID_RECORD
        if message.transactional_id is not None:
            return ErrorCode.INVALID_REQUEST
        if node.core.role != "leader":
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if node.log.error is not None and node.appends_held:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def has_room(self) -> bool:
        """Return whether more may be queued (I25)."""
        return self.queued_bytes < QUEUED_BYTES_MAX

    def _check_records(self, records: Buffer | None) -> tuple[ErrorCode, Buffer | None, str | None]:
        """Return what is wrong with a batch, the batch to be appended, and a text."""
        records = records or b""
        try:
            found = check_batches(
                records, records=self.node.directory.options.records, control=False
            )
        except UnsupportedCodec as error:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, None, str(error)
        except RecordsRefused as error:
            return ErrorCode.INVALID_RECORD, None, str(error)
        except CorruptBatch as error:
            return fault_code(records), None, str(error)
        if len(found) != 1:
            return ErrorCode.INVALID_RECORD, None, f"one batch is expected, not {len(found)}"
        if found[0].attributes & LOG_APPEND_TIME:
            return ErrorCode.INVALID_TIMESTAMP, None, "a producer must not say LogAppendTime"
        if found[0].attributes & TRANSACTIONAL:
            return ErrorCode.INVALID_RECORD, None, "there are no transactions"
        if found[0].attributes & ~CODEC_MASK:
            return ErrorCode.INVALID_RECORD, None, "a producer must not set a delete horizon"
        if found[0].largest_timestamp != found[0].max_timestamp:
            records = with_max_timestamp(records, found[0].largest_timestamp)
        return ErrorCode.NONE, records, None

    def drain(self, log: Log, epoch: int, bytes_max: int) -> None:
        """Append queued batches until there is none, no room, or about ``bytes_max`` are in."""
        taken = 0
        while self.queued and taken < bytes_max:
            entry = self.queued[0]
            entry.base_offset = log.end_offset
            try:
                if not log.append(entry.batch, epoch):
                    if not log.refusal:
                        break  # no room yet
                    self._next()
                    self._refused(entry, log)
                    continue
            except (ValueError, RecordTooLarge) as error:
                self._next()
                too_large = isinstance(error, RecordTooLarge)
                code = ErrorCode.MESSAGE_TOO_LARGE if too_large else ErrorCode.CORRUPT_MESSAGE
                self._answer(entry.request, entry.message, code)
                continue
            self._next()
            taken += len(entry.batch)
            entry.batch = b""
            if entry.message.acks == 0:
                entry.request.finish([])
                continue
            entry.end_offset = log.end_offset
            self.appended.append(entry)
        self.commit(self.committed_offset)

    def _refused(self, entry: QueuedBatch, log: Log) -> None:
        """Refuse what its producer may not append now; a duplicate waits for the original's commit.

        If the offset of the original is no longer known, answer DUPLICATE_SEQUENCE_NUMBER, which
        Kafka's clients treat as success.
        """
        if log.refusal != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            error, text = self._refusal_of(entry, ErrorCode(log.refusal))
            self._answer(entry.request, entry.message, error, -1, text)
            return
        entry.batch = b""
        entry.base_offset = log.producers.original_offset
        entry.end_offset = log.producers.original_end
        self.appended.append(entry)

    def _refusal_of(self, entry: QueuedBatch, error: ErrorCode) -> tuple[ErrorCode, str | None]:
        """Return the answer for a batch that its producer may not append: a code and a text.

        An id that was never given is refused in every epoch (``log/small_files/id_ranges.py``).
        Clients raise their own epoch at first; to the second UNKNOWN_PRODUCER_ID librdkafka
        ends, but Java's producer sends the same until its time is out, each time: it is told what
        ends it.
        """
        text = REFUSAL_TEXTS.get(error)
        if error is not ErrorCode.UNKNOWN_PRODUCER_ID:
            return error, text
        batch = batch_at(entry.batch)
        if not can_be_given(batch.producer_id, self.node.core.epoch):
            text = f"this quorum gave no producer the id {batch.producer_id}: begin again"
            if batch.producer_epoch > 0 and entry.request.software == JAVA:
                error = ErrorCode.PRODUCER_FENCED
        return error, text

    def _next(self) -> None:
        entry = self.queued.popleft()
        self.queued_bytes -= len(entry.batch)

    def commit(self, offset: int) -> None:
        """Answer what is committed below ``offset``."""
        self.committed_offset = offset
        appended = self.appended
        while appended and appended[0].end_offset <= offset:
            entry = appended.popleft()
            known = entry.base_offset >= 0
            error = ErrorCode.NONE if known else ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            self._answer(entry.request, entry.message, error, entry.base_offset)

    def refuse(self, error: int) -> None:
        """Refuse all that is queued: nothing of it was appended."""
        while self.queued:
            entry = self.queued[0]
            self._next()
            self._answer(entry.request, entry.message, ErrorCode(error))

    def left_leadership(self) -> None:
        """Answer that what is appended may or may not be committed: the code says just that."""
        self.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        while self.appended:
            entry = self.appended.popleft()
            self._answer(entry.request, entry.message, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    @contained
    def _answer(
        self,
        request: SessionRequest,
        message: PartitionProduce,
        error: ErrorCode,
        base_offset: int = -1,
        text: str | None = None,
    ) -> None:
        if message.acks == 0:
            if error in PRESENT:
                request.finish([])
            else:
                self._hang_up(request, error)
            return
        if request.session is None:
            return
        node = self.node
        tells_leader = error is ErrorCode.NOT_LEADER_OR_FOLLOWER
        tells_leader &= request.version >= CURRENT_LEADER_VERSION
        produced = PartitionProduced(
            topic=message.topic,
            topic_id=message.topic_id,
            partition=message.partition,
            error_code=error,
            base_offset=base_offset,
            log_start_offset=node.log.log_start_offset if error in START_TOLD else -1,
            error_message=text if request.version >= MESSAGE_VERSION else None,
            leader_id=leader_of(node) if tells_leader else -1,
            leader_epoch=node.core.epoch if tells_leader else -1,
        )
        request.finish(
            [wire_produce.encode_response(request.version, request.correlation_id, produced)]
        )

    def _hang_up(self, request: SessionRequest, error: ErrorCode) -> None:
        """Tell a producer that waits for no answer: it looks for the leader when it reconnects."""
        if request.session is not None:
            self.node.tell("produce_refused", host=request.session.host, error=error.name)
            request.hang_up()

    def _refuse_all(self, message: wire.ProduceRequest) -> wire.ProduceResponse:
        """Refuse each of several partitions, or of none: there is only one."""
        kind = wire.ProduceResponse
        return kind(
            responses=[
                kind.Response(
                    name=topic.name,
                    topic_id=topic.topic_id,
                    partition_responses=[
                        kind.PartitionResponse(
                            index=part.index,
                            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                            base_offset=-1,
                        )
                        for part in topic.partition_data
                    ],
                )
                for topic in message.topic_data
            ]
        )

    # --- time -------------------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Answer what has waited long enough."""
        if now_ms < self.next_ms:
            return
        for entry in [entry for entry in self.queued if entry.deadline_ms <= now_ms]:
            self.queued.remove(entry)
            self.queued_bytes -= len(entry.batch)
            self._answer(
                entry.request, entry.message, ErrorCode.NOT_ENOUGH_REPLICAS
            )  # not appended
        for entry in [entry for entry in self.appended if entry.deadline_ms <= now_ms]:
            self.appended.remove(entry)
            self._answer(
                entry.request, entry.message, ErrorCode.REQUEST_TIMED_OUT
            )  # may be committed
        waiting = (*self.queued, *self.appended)
        self.next_ms = min((entry.deadline_ms for entry in waiting), default=NEVER_MS)

    def due_ms(self, default: int) -> int:
        """Return when ``tend`` has something to do."""
        return min(self.next_ms, default)


def fault_code(records: Buffer) -> ErrorCode:
    """Return the error for a batch that does not check.

    Clients send again what was damaged on its way. What arrived as it was sent gets a final error:
    it would fail again.
    """
    size = int.from_bytes(records[LENGTH_AT : LENGTH_AT + 4], "big") + limits.BATCH_OVERHEAD_BYTES
    if len(records) >= size > limits.BATCH_BYTES_MAX:
        return ErrorCode.MESSAGE_TOO_LARGE
    told = int.from_bytes(records[CRC_AT : CRC_AT + 4], "big")
    whole = len(records) == size and crc32c(memoryview(records)[CRC_FROM:]) == told
    return ErrorCode.INVALID_RECORD if whole else ErrorCode.CORRUPT_MESSAGE


def with_max_timestamp(records: Buffer, timestamp: int) -> bytes:
    """Return a batch with the largest timestamp of its records, as Kafka's ``LogValidator``."""
    batch = bytearray(records)
    struct.pack_into(">q", batch, MAX_TIMESTAMP_AT, timestamp)
    struct.pack_into(">I", batch, CRC_AT, crc32c(memoryview(batch)[CRC_FROM:]))
    return bytes(batch)
