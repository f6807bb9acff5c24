"""Consumers over sockets: Kafka's Fetch, ListOffsets and OffsetForLeaderEpoch.

:class:`~kraftfast.node.tcp.partition_leader.PartitionLeader` decides what may be answered; here are
the messages, and the Fetches that wait (Kafka's ``DelayedFetch``); ``list_offsets.py`` has
ListOffsets.

The codes of a partition, in Kafka's order of checks, and what Java, librdkafka, kafka-python and
aiokafka do on them (F: Fetch, L: ListOffsets, E: OffsetForLeaderEpoch)::

    UNKNOWN_TOPIC_OR_PARTITION  FLE  another name or number: they refresh metadata, ask again
    UNKNOWN_TOPIC_ID            F    from v13 on: the same
    INVALID_REQUEST             L    named twice; UNSUPPORTED_VERSION: a timestamp of later versions
    FENCED_LEADER_EPOCH         FLE  a former epoch: they refresh; Java, kafka-python validate
    UNKNOWN_LEADER_EPOCH        FLE  this replica is behind: they ask again, all but Java refresh
    NOT_LEADER_OR_FOLLOWER      FLE  they refresh, ask again (from v12 on Fetch tells the leader)
    OFFSET_OUT_OF_RANGE         F    not in the log, committed or not: auto.offset.reset
    OFFSET_NOT_AVAILABLE        L    the epoch has committed nothing yet: they ask again; up to v4
                                     LEADER_NOT_AVAILABLE, for aiokafka stops at codes it lacks
    CORRUPT_MESSAGE             F    damaged here, and another replica is to lead: Java and
                                     librdkafka report it, librdkafka and ours ask again
    CORRUPT_MESSAGE, UNSUPPORTED_COMPRESSION_TYPE
                                L    a batch that cannot be searched: they report it, Java and
                                     kafka-python after the call's time is out
    FETCH_SESSION_ID_NOT_FOUND  F    of the whole answer: they send a full Fetch

Kafka has more, for what there is not: followers that serve (REPLICA_NOT_AVAILABLE), a log that goes
on after its disk failed (KAFKA_STORAGE_ERROR; here the replica ends, D9), rights, fetch sessions,
conversion to older formats, other storage, throttling.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core.log_view import NEVER_MS
from kraftfast.errors import CorruptLog, ErrorCode
from kraftfast.node.failures import contained
from kraftfast.node.requests.describe_requests import leader_of
from kraftfast.node.tcp.list_offsets import ListOffsets
from kraftfast.node.tcp.partition_leader import ANSWER_BYTES_MAX, PartitionLeader
from kraftfast.types import METADATA_PARTITION
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import messages as wire
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched

if TYPE_CHECKING:
    from kraftfast.node.node import Node
    from kraftfast.node.tcp.session import SessionRequest

WAIT_MS_MAX = 60_000
TOPIC_ID_VERSION = 13  # of Fetch, from which on topics have ids; replicas need them
SESSION_VERSION = 7  # of Fetch
LEADER_VERSION = 12  # of Fetch, that can name the leader


class ParkedFetch:
    """A consumer's Fetch that waits for records.

    ``whole``: the request, if it names several partitions, of which ``message`` is ours.
    ``counted_bytes`` of committed records lie between its position and ``counted_offset``.
    """

    __slots__ = ("request", "message", "whole", "deadline_ms", "counted_offset", "counted_bytes")

    def __init__(
        self,
        request: SessionRequest,
        message: PartitionFetch,
        deadline_ms: int,
        whole: wire.FetchRequest | None,
    ) -> None:
        self.request, self.message, self.deadline_ms = request, message, deadline_ms
        self.whole = whole
        self.counted_offset, self.counted_bytes = message.fetch_offset, 0


class Consumers:
    """What consumers over sockets are answered."""

    # node: whose. leader: what may be answered. offsets: ListOffsets. parked: Fetches that wait.
    # next_ms: when the first of them has waited long enough, or earlier.

    def __init__(self, node: Node) -> None:
        self.node = node
        self.leader = PartitionLeader(node)
        self.offsets = ListOffsets(node, self.leader)
        self.parked: list[ParkedFetch] = []
        self.next_ms = NEVER_MS

    # --- Fetch ------------------------------------------------------------------------------------

    def is_from_consumer(self, message: PartitionFetch | wire.FetchRequest, version: int) -> bool:
        """Return whether a Fetch comes from a consumer.

        A replica without an id sends both epochs and no bound for the partition; a consumer that
        sends both (KIP-320) bounds it, or has a version without topic ids.
        """
        if not isinstance(message, PartitionFetch):
            return version < TOPIC_ID_VERSION or not (
                message.replica_id >= 0 or message.replica_state.replica_id >= 0
            )
        return message.replica_id < 0 and (
            version < TOPIC_ID_VERSION
            or message.partition_max_bytes > 0
            or message.last_fetched_epoch < 0
            or message.current_leader_epoch < 0
        )

    @contained
    def fetch(self, request: SessionRequest, message: PartitionFetch | wire.FetchRequest) -> None:
        """Answer a consumer, now or when there is something for it."""
        if message.session_epoch > 0 and request.version >= SESSION_VERSION:
            # No session is ever opened here (KIP-227): this one is another server's.
            error = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
            request.respond(wire.FetchResponse(error_code=error))
            return
        wait_ms = min(max(message.max_wait_ms, 0), WAIT_MS_MAX)
        whole: wire.FetchRequest | None = None
        if not isinstance(message, PartitionFetch):
            whole, ours = message, self._ours(message, request.version)
            if ours is None:
                request.respond(self._fetch_several(whole, request.version))
                return
            message = ours
        parked = ParkedFetch(request, message, self.node.now_ms() + wait_ms, whole)
        if wait_ms and not self._is_due(parked) and self._has_room():
            self.parked.append(parked)
            self.next_ms = min(self.next_ms, parked.deadline_ms)
        else:
            self._answer(request, message, whole)

    def _ours(self, message: wire.FetchRequest, version: int) -> PartitionFetch | None:
        """Return what a Fetch of several partitions waits for, None if it has no sound one.

        As in Kafka, errors of the others do not end the wait.
        """
        for topic in message.topics:
            for part in topic.partitions:
                one = one_of(message, topic, part)
                if self._check(one, version) == (ErrorCode.NONE, None):
                    return one
        return None

    def _has_room(self) -> bool:
        """Return whether one more may wait (I25); those whose connections ended make room."""
        if len(self.parked) >= limits.PARKED_FETCHES_MAX:
            self.parked = [each for each in self.parked if each.request.session is not None]
        return len(self.parked) < limits.PARKED_FETCHES_MAX

    def _is_due(self, parked: ParkedFetch) -> bool:
        """Return whether there is something to say: an error, a divergence, or enough bytes."""
        message = parked.message
        error, diverging = self._check(message, parked.request.version)
        if error is not ErrorCode.NONE or diverging is not None:
            return True
        return self._has_enough(parked)

    def _has_enough(self, parked: ParkedFetch) -> bool:
        """Return whether ``fetch.min.bytes`` are there, or as much as one answer can hold."""
        message, leader = parked.message, self.leader
        if message.min_bytes <= 1:
            return message.min_bytes <= 0 or message.fetch_offset < leader.high_watermark
        wanted = min(message.min_bytes, bound(message))
        taken, parked.counted_offset, full = leader.measure(
            message.fetch_offset, parked.counted_offset, wanted - parked.counted_bytes
        )
        parked.counted_bytes += taken
        return full or parked.counted_bytes >= wanted

    def _check(
        self, message: PartitionFetch, version: int
    ) -> tuple[ErrorCode, tuple[int, int] | None]:
        """Return what is wrong with a Fetch, and where its sender's log diverges (KIP-320)."""
        partition = self.node.partition
        if version >= TOPIC_ID_VERSION:
            if message.topic_id != partition.topic_id:
                return ErrorCode.UNKNOWN_TOPIC_ID, None
        elif message.topic != partition.topic:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        if message.partition != METADATA_PARTITION:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
        error = self.leader.refusal(message.current_leader_epoch)
        if error is not ErrorCode.NONE:
            return error, None
        return self.leader.check_position(message.fetch_offset, message.last_fetched_epoch)

    @contained
    def _answer(
        self, request: SessionRequest, message: PartitionFetch, whole: wire.FetchRequest | None
    ) -> None:
        if whole is not None:
            request.respond(self._fetch_several(whole, request.version))
            return
        node, leader = self.node, self.leader
        error, diverging, records = self._read(message, request.version)
        fetched = PartitionFetched(
            topic=message.topic,
            topic_id=message.topic_id,
            partition=message.partition,
            partition_error_code=error,
            **leader.offsets_beside(error),
            records=records,
        )
        if diverging is not None:
            fetched.diverging_epoch, fetched.diverging_end_offset = diverging
        tells = error in (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
        if tells and request.version >= LEADER_VERSION:
            fetched.leader_id, fetched.leader_epoch = leader_of(node), node.core.epoch
        request.finish(wire_fetch.encode_response(request.version, request.correlation_id, fetched))

    def _fetch_several(self, message: wire.FetchRequest, version: int) -> wire.FetchResponse:
        """Answer for several topics or none: empty, or with an error for each that is not ours.

        A request that names our partition more than once gets its records once.
        """
        kind = wire.FetchResponse
        leader = self.leader
        responses = []
        answered = False
        for topic in message.topics:
            parts = []
            for part in topic.partitions:
                one = one_of(message, topic, part)
                error, diverging, records = self._read(one, version, not answered)
                answered = answered or bool(records)
                found = kind.Partition(
                    partition_index=part.partition,
                    error_code=error,
                    **leader.offsets_beside(error),
                    records=records,
                )
                if diverging is not None:
                    found.diverging_epoch = kind.DivergingEpoch(*diverging)
                parts.append(found)
            responses.append(
                kind.Response(topic=topic.topic, topic_id=topic.topic_id, partitions=parts)
            )
        return kind(responses=responses)

    def _read(
        self, message: PartitionFetch, version: int, wanted: bool = True
    ) -> tuple[ErrorCode, tuple[int, int] | None, bytes]:
        """Return what ``_check`` does, and the records that a Fetch gets if any are wanted."""
        error, diverging = self._check(message, version)
        if error is not ErrorCode.NONE or diverging is not None or not wanted:
            return error, diverging, b""
        try:
            return error, None, self.leader.read(message.fetch_offset, bound(message))
        except CorruptLog:
            return ErrorCode.CORRUPT_MESSAGE, None, b""

    def committed(self, _offset: int) -> None:
        """Answer the consumers that waited for records below the new high watermark."""
        if not self.parked:
            return
        parked, self.parked = self.parked, []
        for each in parked:
            if self._has_enough(each):
                self._answer(each.request, each.message, each.whole)
            else:
                self.parked.append(each)

    def left_leadership(self) -> None:
        """Answer all that wait: they must look for the next leader now."""
        parked, self.parked = self.parked, []
        for each in parked:
            self._answer(each.request, each.message, each.whole)
        self.offsets.left_leadership()

    # --- OffsetForLeaderEpoch ---------------------------------------------------------------------

    def end_offsets_for_epochs(
        self, message: wire.OffsetForLeaderEpochRequest
    ) -> wire.OffsetForLeaderEpochResponse:
        """Tell consumers where epochs end, so that they see whether their position was cut."""
        kind = wire.OffsetForLeaderEpochResponse
        partition = self.node.partition

        def end_of(
            topic: wire.OffsetForLeaderEpochRequest.Topic,
            part: wire.OffsetForLeaderEpochRequest.Partition,
        ) -> wire.OffsetForLeaderEpochResponse.Partition:
            answer = kind.Partition(partition=part.partition)
            if topic.topic != partition.topic or part.partition != METADATA_PARTITION:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                return answer
            answer.error_code = self.leader.refusal(part.current_leader_epoch)
            if answer.error_code == ErrorCode.NONE:
                found = self.leader.end_offset_for_epoch(part.leader_epoch)
                answer.leader_epoch, answer.end_offset = found
            return answer

        return kind(
            topics=[
                kind.Topic(
                    topic=topic.topic, partitions=[end_of(topic, part) for part in topic.partitions]
                )
                for topic in message.topics
            ]
        )

    # --- time -------------------------------------------------------------------------------------

    def tend(self, now_ms: int) -> None:
        """Answer those that have waited long enough, with what there is."""
        self.offsets.tend()
        if now_ms < self.next_ms:
            return
        due = [each for each in self.parked if each.deadline_ms <= now_ms]
        self.parked = [each for each in self.parked if each.deadline_ms > now_ms]
        for each in due:
            self._answer(each.request, each.message, each.whole)
        self.next_ms = min((each.deadline_ms for each in self.parked), default=NEVER_MS)

    def due_ms(self, now_ms: int) -> int:
        """Return when ``tend`` has something to do."""
        return now_ms + 1 if self.offsets.searching else self.next_ms


def one_of(
    message: wire.FetchRequest, topic: wire.FetchRequest.Topic, part: wire.FetchRequest.Partition
) -> PartitionFetch:
    """Return what a Fetch of several partitions asks of one."""
    return PartitionFetch(
        topic=topic.topic,
        topic_id=topic.topic_id,
        partition=part.partition,
        current_leader_epoch=part.current_leader_epoch,
        fetch_offset=part.fetch_offset,
        last_fetched_epoch=part.last_fetched_epoch,
        min_bytes=message.min_bytes,
        max_bytes=message.max_bytes,
        partition_max_bytes=part.partition_max_bytes,
    )


def bound(message: PartitionFetch) -> int:
    """Return how many record bytes one answer may hold, at least 1; one batch always fits."""
    return max(1, min(message.max_bytes, message.partition_max_bytes, ANSWER_BYTES_MAX))
