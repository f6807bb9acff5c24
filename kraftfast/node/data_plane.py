"""Producers and consumers over sockets: Kafka's Produce, Fetch and ListOffsets.

A Produce is answered once its records are committed, whatever its ``acks`` says beyond 0: the
quorum has no weaker promise to give. A consumer gets what is below the high watermark (I20).
"""

from __future__ import annotations

from collections import deque
from typing import Any

from kraftfast import limits
from kraftfast.errors import (
    CorruptBatch,
    ErrorCode,
    RecordsRefused,
    RecordTooLarge,
    UnsupportedCodec,
)
from kraftfast.log.index_files import offset_for_timestamp
from kraftfast.node.failures import contained
from kraftfast.record.batch import check_batches
from kraftfast.record.shapes import CODEC_MASK
from kraftfast.types import METADATA_PARTITION
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import messages as wire
from kraftfast.wire import produce as wire_produce
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.produce import PartitionProduce, PartitionProduced

QUEUED_BYTES_MAX = 64 * 1024 * 1024
ANSWER_BYTES_MAX = limits.BATCH_BYTES_MAX  # whatever a consumer asks for
CONSUMER_WAIT_MS_MAX = 60_000
NEVER_MS = 2**63 - 1
EARLIEST, LATEST, MAX_TIMESTAMP = -2, -1, -3
EARLIEST_LOCAL = -4
TOPIC_ID_VERSION = 13
CURRENT_LEADER_VERSION = 10  # of Produce: before it an answer cannot say who leads
LEADER_VERSION = 12  # of Fetch, that can tell who leads
EPOCH_VERSION = 4  # of ListOffsets, that can tell the epoch


class QueuedBatch:
    """A batch that was checked and waits to be appended, or to be committed."""

    __slots__ = ("request", "message", "batch", "base_offset", "end_offset", "deadline_ms")

    def __init__(
        self, request: Any, message: PartitionProduce, batch: Any, deadline_ms: int
    ) -> None:
        self.request, self.message, self.batch = request, message, batch
        self.deadline_ms = deadline_ms
        self.base_offset = self.end_offset = -1


class ParkedConsumer:
    """A consumer's Fetch that waits for records."""

    __slots__ = ("request", "message", "deadline_ms")

    def __init__(self, request: Any, message: PartitionFetch, deadline_ms: int) -> None:
        self.request, self.message, self.deadline_ms = request, message, deadline_ms


class DataPlane:
    """What clients over sockets do with the log."""

    # node: whose. queued: to be appended, in order of arrival; queued_bytes: their sizes.
    # appended: to be committed, in the order of taking; duplicates wait for their originals.
    # committed_offset: everything below may be acknowledged. parked: consumers that wait.
    # next_ms: when the first of all these has waited long enough, or earlier.

    def __init__(self, node: Any) -> None:
        self.node = node
        self.queued: deque[QueuedBatch] = deque()
        self.queued_bytes = 0
        self.appended: deque[QueuedBatch] = deque()
        self.committed_offset = 0
        self.parked: list[ParkedConsumer] = []
        self.next_ms = NEVER_MS

    # --- Produce ----------------------------------------------------------------------------------

    @contained
    def produce(self, request: Any, message: Any) -> None:
        """Check a batch down to its last record (a stranger's could kill all readers), queue it."""
        if not isinstance(message, PartitionProduce):
            request.respond(self._refuse_all(message))
            return
        error = self._check_target(message, request.version)
        batch = message.records
        if error is ErrorCode.NONE:
            error = self._check_records(batch)
        if error is not ErrorCode.NONE:
            self._answer(request, message, error)
            return
        deadline_ms = self.node.now_ms() + max(message.timeout_ms, 0)
        self.queued.append(QueuedBatch(request, message, batch, deadline_ms))
        self.queued_bytes += len(batch)
        self.next_ms = min(self.next_ms, deadline_ms)
        if message.acks == 0:
            request.finish([])

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
        if node.witness:
            return ErrorCode.INVALID_RECORD
        if message.acks not in (-1, 0, 1):
            return ErrorCode.INVALID_REQUEST
        if message.transactional_id is not None:
            return ErrorCode.INVALID_REQUEST
        if node.core.role != "leader":
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if self.queued_bytes >= QUEUED_BYTES_MAX:
            return ErrorCode.REQUEST_TIMED_OUT
        if node.log.error is not None and node.appends_held:
            return ErrorCode.KAFKA_STORAGE_ERROR
        return ErrorCode.NONE

    def _check_records(self, records: Any) -> ErrorCode:
        try:
            found = check_batches(
                records or b"", records=self.node.directory.options.records, control=False
            )
        except UnsupportedCodec:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        except RecordsRefused:
            return ErrorCode.INVALID_RECORD
        except RecordTooLarge:
            return ErrorCode.MESSAGE_TOO_LARGE
        except CorruptBatch:
            return ErrorCode.CORRUPT_MESSAGE
        if len(found) != 1 or found[0].attributes & ~CODEC_MASK:
            return ErrorCode.INVALID_RECORD  # of a transaction, say: none is ever finished here
        return ErrorCode.NONE

    def drain(self, log: Any, epoch: int, bytes_max: int) -> None:
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
            entry.batch = None
            entry.end_offset = log.end_offset
            self.appended.append(entry)
        self.commit(self.committed_offset)

    def _refused(self, entry: QueuedBatch, log: Any) -> None:
        """Its producer may not append this now; a duplicate waits until the original is committed.

        Where nobody knows any more where the original stands, Kafka's clients take the error for
        what it is: the batch is there.
        """
        if log.refusal != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            self._answer(entry.request, entry.message, ErrorCode(log.refusal))
            return
        entry.batch = None
        entry.base_offset = log.producers.original_offset
        entry.end_offset = log.producers.original_end
        self.appended.append(entry)

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

    def refuse(self, error: Any, _leader_id: int) -> None:
        """Nothing that is queued was appended."""
        while self.queued:
            entry = self.queued[0]
            self._next()
            self._answer(entry.request, entry.message, ErrorCode(error))

    def left_leadership(self, leader_id: int) -> None:
        """What is appended may or may not be committed: the code that says just that."""
        self.refuse(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader_id)
        while self.appended:
            entry = self.appended.popleft()
            self._answer(entry.request, entry.message, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)

    @contained
    def _answer(self, request: Any, message: Any, error: ErrorCode, base_offset: int = -1) -> None:
        if request.session is None or message.acks == 0:
            request.finish([])
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
            log_start_offset=node.log.log_start_offset if error is ErrorCode.NONE else -1,
            leader_id=node.core.leader_id if tells_leader else -1,
            leader_epoch=node.core.epoch if tells_leader else -1,
        )
        request.finish(
            [wire_produce.encode_response(request.version, request.correlation_id, produced)]
        )

    def _refuse_all(self, message: Any) -> Any:
        """Several partitions or none: each is refused, for there is only one."""
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

    # --- Fetch ------------------------------------------------------------------------------------

    def is_consumer(self, message: Any, version: int) -> bool:
        """Whether a Fetch comes from a client: no replica id, none of the fields of a replica."""
        if not isinstance(message, PartitionFetch):
            return version < TOPIC_ID_VERSION or not _names_replica(message)
        return message.replica_id < 0 and (
            message.last_fetched_epoch < 0 or message.current_leader_epoch < 0
        )

    @contained
    def fetch(self, request: Any, message: Any) -> None:
        """Answer a consumer, now or when there is something for it."""
        if not isinstance(message, PartitionFetch):
            request.respond(self._fetch_several(message, request.version))
            return
        error = self._check_fetch(message, request.version)
        if error is not ErrorCode.NONE:
            self._answer_fetch(request, message, error, None)
            return
        wait_ms = min(max(message.max_wait_ms, 0), CONSUMER_WAIT_MS_MAX)
        waits = message.fetch_offset >= self._readable_end() and wait_ms and message.min_bytes > 0
        if waits and len(self.parked) < limits.PARKED_FETCHES_MAX:  # I25
            deadline_ms = self.node.now_ms() + wait_ms
            self.parked.append(ParkedConsumer(request, message, deadline_ms))
            self.next_ms = min(self.next_ms, deadline_ms)
            return
        self._answer_fetch(request, message, ErrorCode.NONE, self._read(message))

    def _readable_end(self) -> int:
        return max(self.node.core.high_watermark, self.node.log.log_start_offset)

    def _check_fetch(self, message: PartitionFetch, version: int) -> ErrorCode:
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
        if node.core.role != "leader":
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if 0 <= message.current_leader_epoch < node.core.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if message.current_leader_epoch > node.core.epoch:
            return ErrorCode.UNKNOWN_LEADER_EPOCH
        if not node.log.log_start_offset <= message.fetch_offset <= self._readable_end():
            return ErrorCode.OFFSET_OUT_OF_RANGE
        return ErrorCode.NONE

    def _read(self, message: PartitionFetch) -> bytes | None:
        """The committed batches from an offset on, copied (D11)."""
        end_offset = self._readable_end()
        if message.fetch_offset >= end_offset:
            return None
        bound = min(message.max_bytes, message.partition_max_bytes, ANSWER_BYTES_MAX)
        found = self.node.log.locate(message.fetch_offset, max(bound, 1), end_offset)
        if found is None:
            return None
        segment, position, length = found
        return bytes(segment.file.view(position, position + length))

    @contained
    def _answer_fetch(
        self, request: Any, message: PartitionFetch, error: ErrorCode, records: Any
    ) -> None:
        node = self.node
        fetched = PartitionFetched(
            topic=message.topic,
            topic_id=message.topic_id,
            partition=message.partition,
            partition_error_code=error,
            high_watermark=node.core.high_watermark,
            last_stable_offset=node.core.high_watermark,
            log_start_offset=node.log.log_start_offset,
            records=records if records is not None else b"",
        )
        tells = error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if tells and request.version >= LEADER_VERSION:
            fetched.leader_id, fetched.leader_epoch = node.core.leader_id, node.core.epoch
        request.finish(wire_fetch.encode_response(request.version, request.correlation_id, fetched))

    def _fetch_several(self, message: Any, version: int) -> Any:
        """Several topics or none: an empty answer, or an error for each that is not ours.

        Whoever asks for our partition more than once gets its records once.
        """
        kind = wire.FetchResponse
        responses = []
        answered = False
        for topic in message.topics:
            parts = []
            for part in topic.partitions:
                one = PartitionFetch(
                    topic=topic.topic,
                    topic_id=topic.topic_id,
                    partition=part.partition,
                    current_leader_epoch=part.current_leader_epoch,
                    fetch_offset=part.fetch_offset,
                    max_bytes=message.max_bytes,
                    partition_max_bytes=part.partition_max_bytes,
                )
                error = self._check_fetch(one, version)
                records = None
                if error is ErrorCode.NONE and not answered:
                    records, answered = self._read(one), True
                parts.append(
                    kind.Partition(
                        partition_index=part.partition,
                        error_code=error,
                        high_watermark=self.node.core.high_watermark,
                        log_start_offset=self.node.log.log_start_offset,
                        records=records or b"",
                    )
                )
            responses.append(
                kind.Response(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        return kind(responses=responses)

    def committed(self, offset: int) -> None:
        """The high watermark moved: consumers that waited for it get their records."""
        if not self.parked:
            return
        parked, self.parked = self.parked, []
        for entry in parked:
            if entry.message.fetch_offset < offset:
                self.fetch(entry.request, entry.message)
            else:
                self.parked.append(entry)

    # --- ListOffsets ------------------------------------------------------------------------------

    def list_offsets(self, message: Any, version: int) -> Any:
        """The first, the last, or the first offset at or after a timestamp."""
        kind = wire.ListOffsetsResponse
        topics = []
        for topic in message.topics:
            answers = [self._list(kind, topic, part) for part in topic.partitions]
            if version < EPOCH_VERSION:
                for answer in answers:
                    answer.leader_epoch = -1
            topics.append(kind.Topic(name=topic.name, partitions=answers))
        return kind(topics=topics)

    def _list(self, kind: Any, topic: Any, part: Any) -> Any:
        node = self.node
        answer = kind.Partition(partition_index=part.partition_index)
        if topic.name != node.partition.topic or part.partition_index != METADATA_PARTITION:
            answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif node.core.role != "leader":
            answer.error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        elif part.timestamp in (EARLIEST, EARLIEST_LOCAL):
            answer.offset, answer.leader_epoch = node.log.log_start_offset, node.core.epoch
        elif part.timestamp == LATEST:
            answer.offset, answer.leader_epoch = self._readable_end(), node.core.epoch
        elif part.timestamp == MAX_TIMESTAMP or part.timestamp >= 0:
            found = offset_for_timestamp(node.log, part.timestamp, self._readable_end())
            if found is not None:
                answer.offset, answer.timestamp = found
                answer.leader_epoch = node.core.epoch
        else:
            answer.error_code = ErrorCode.UNSUPPORTED_VERSION
        return answer

    # --- time -------------------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Answer what has waited long enough."""
        if now_ms < self.next_ms:
            return
        due = [entry for entry in self.parked if entry.deadline_ms <= now_ms]
        self.parked = [entry for entry in self.parked if entry.deadline_ms > now_ms]
        for consumer in due:
            error = self._check_fetch(consumer.message, consumer.request.version)
            self._answer_fetch(consumer.request, consumer.message, error, None)
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
        waiting = (*self.parked, *self.queued, *self.appended)
        self.next_ms = min((entry.deadline_ms for entry in waiting), default=NEVER_MS)

    def due_ms(self, default: int) -> int:
        """When ``tend`` has something to do."""
        return min(self.next_ms, default)


def _names_replica(message: Any) -> bool:
    return message.replica_id >= 0 or message.replica_state.replica_id >= 0
