"""The consumer of a quorum that is reached over TCP: Kafka's Fetch, of the leader."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator
from typing import Any, NoReturn

from kraftfast import limits
from kraftfast.client.cluster import Cluster, KnownLeader
from kraftfast.client.connection import Connection
from kraftfast.client.consumer.consumer import RETRY_S, SEARCH_S, RecordStream
from kraftfast.client.search import Search
from kraftfast.client.timing import FOREVER_S, deadline_after
from kraftfast.errors import (
    CorruptBatch,
    ErrorCode,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    OffsetOutOfRange,
    OutOfResources,
    PeerGone,
    RequestRefused,
    TimedOut,
    UnsupportedVersion,
)
from kraftfast.record.batch import batches
from kraftfast.types import METADATA_PARTITION, ZERO_UUID
from kraftfast.wire import fetch
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.messages import ApiKey

FETCH_BYTES = 1024 * 1024
ANSWER_OVERHEAD_BYTES = 64 * 1024
WAIT_MS_MAX = 500
GRACE_S = 2.0
"""Beyond the time that a Fetch may wait, until the server counts as gone."""
DAMAGED_S = 0.2
"""Until the leader is looked for again whose log is damaged: another one is to lead soon."""

WITHOUT_TOPIC_IDS = 12
ANOTHER_LEADER = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Answers after which the leader is looked for again."""


class RemoteConsumer(RecordStream):
    """Read what is committed from the leader; see :class:`RecordStream`.

    ``cluster``: its servers. ``from_offset``: where to begin. ``follow``: wait for more at the end.
    While one answer (``fetch_bytes``, but always one whole batch) is being read, the next one is
    fetched: so much is held at most. Every batch's CRC is checked.

    Raises OffsetOutOfRange where the log starts later, NoQuorum if there is no leader within
    ``timeout`` seconds, CorruptBatch, RequestRefused. A leader whose log is damaged at ``position``
    lets another one lead; CorruptBatch if none has the records that long.
    """

    # cluster: the servers. _connection, _leader: of the leader that is read from, or None.
    # _ahead: batches that came and were not read to their end, from offset _ahead_from on.
    # _asked: the offset of the Fetch that is under way, -1 if none is.
    # _answer_due: until when its answer must come, or the leader is gone.
    # _damaged: (offset, until when) at which leaders' logs are damaged; (-1, 0.0): none.

    def __init__(
        self,
        cluster: Cluster,
        from_offset: int = 0,
        *,
        follow: bool = False,
        timeout: float = 10.0,
        fetch_bytes: int = FETCH_BYTES,
    ) -> None:
        deadline = deadline_after(timeout, now=cluster.host.monotonic)
        super().__init__(from_offset, follow, cluster.host)
        self.cluster, self.timeout, self.fetch_bytes = cluster, timeout, fetch_bytes
        self._connection: Connection | None = None
        self._leader: KnownLeader | None = None
        self._ahead: deque[Any] = deque()
        self._ahead_from = from_offset
        self._asked = -1
        self._answer_due, self._damaged = 0.0, (-1, 0.0)
        self._high_watermark = self._beyond_end = -1
        try:
            self._attach(deadline)
        except BaseException:
            self.close()  # no caller gets it
            raise

    @property
    def high_watermark(self) -> int:
        self._check_open()
        return self._high_watermark

    # --- reading ----------------------------------------------------------------------------------

    def _is_beyond_end(self) -> bool:
        return self._beyond_end == self.position

    def _committed(self) -> Iterator[Any]:
        while True:
            if not self._next_ahead():
                deadline = self._deadline(self.timeout)
                try:
                    if not self._fill(0, deadline):
                        return
                except TimedOut as error:
                    raise NoQuorum(f"the leader does not answer: {error}") from None
            yield self._ahead[0]

    def wait(self, timeout: float | None = None) -> bool:
        self._check_open()
        deadline = answer_by = self._deadline(FOREVER_S if timeout is None else timeout)
        if self.host.monotonic() >= deadline:  # it asks once all the same
            answer_by = self.host.monotonic() + GRACE_S
        while not self._next_ahead():
            left = max(0.0, deadline - self.host.monotonic())
            try:
                if self._fill(min(WAIT_MS_MAX, int(left * 1000)), answer_by):
                    break
            except TimedOut:
                return False
            if self.host.monotonic() >= deadline:
                break
        return bool(self._ahead)

    def _next_ahead(self) -> bool:
        """Return whether the next batch is there; drop what lies before ``position``."""
        ahead = self._ahead
        if self.position < self._ahead_from:  # its owner went back
            ahead.clear()
        while ahead and ahead[0].end_offset <= self.position:
            ahead.popleft()
        self._ahead_from = self.position
        return bool(ahead)

    def _fill(self, wait_ms: int, deadline: float) -> bool:
        """Get batches at ``position``: False if there are none within ``wait_ms``.

        Raises TimedOut if there is no answer, NoQuorum if there is no leader until the deadline, or
        if no server answers for long (``SEARCH_S``, or ``timeout`` of the class).
        """
        while True:
            try:
                connection = self._connection
                if connection is None:
                    connection = self._attach(deadline, max(SEARCH_S, self.timeout))
                early = self._asked == self.position
                if not early:
                    self._take_back(connection)
                    self._ask(connection, wait_ms)
                found = self._take(self._receive(connection, deadline))
                if found or not early:  # an early question may have missed what came since
                    return found
            except TimedOut:
                if self.host.monotonic() >= deadline:
                    raise
                self._detach()
            except (PeerGone, MalformedFrame, UnsupportedVersion, NotLeader) as error:
                self._detach()
                if self.host.monotonic() >= deadline:
                    raise NoQuorum(f"no leader could be read from: {error}") from None
                self.host.sleep(RETRY_S)
            except BaseException:
                self._detach()
                raise

    def _take(self, answer: PartitionFetched) -> bool:
        """Look at an answer: True if it holds something at ``position``."""
        code = answer.partition_error_code or answer.error_code
        if code in ANOTHER_LEADER:
            raise NotLeader("the server does not lead", answer.leader_id)
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            start = answer.log_start_offset
            self._high_watermark = max(self._high_watermark, answer.high_watermark)
            if start > self.position:
                raise OffsetOutOfRange(
                    f"the log starts at offset {start}, beyond offset {self.position}", start
                )
            self._beyond_end = self.position
            self.host.sleep(RETRY_S)
            return False
        if code == ErrorCode.CORRUPT_MESSAGE:
            self._wait_for_sound_leader(answer)
        if code != ErrorCode.NONE:
            raise RequestRefused(f"the leader refuses to be read from: error {code}", code)
        self._high_watermark = max(self._high_watermark, answer.high_watermark)
        expected, self._damaged = -1, (-1, 0.0)
        for batch in batches(answer.records or b"", partial=True):
            if batch.base_offset < expected or not batch.crc_ok():
                raise CorruptBatch(
                    f"what the leader sends at offset {batch.base_offset} does not check"
                )
            expected = batch.end_offset
            if batch.end_offset > answer.high_watermark:
                break  # I20: Kafka's controllers hand out more, a deposed one what will be cut
            if batch.end_offset > self.position:
                self._ahead.append(batch)
        if self._ahead and self._connection is not None:
            self._ask(
                self._connection, WAIT_MS_MAX if self.follow else 0, self._ahead[-1].end_offset
            )
        return bool(self._ahead)

    def _wait_for_sound_leader(self, answer: PartitionFetched) -> NoReturn:
        """Pause, and have the leader looked for again. Raises NotLeader, CorruptBatch in the end.

        What it says is no end of the log: a reader must not take it for that.
        """
        offset, until = self._damaged
        why = f"the leader's log is damaged at offset {self.position}"
        now = self.host.monotonic()
        if offset != self.position:
            self._damaged = self.position, now + max(SEARCH_S, self.timeout)
        elif now >= until:
            raise CorruptBatch(why)
        self.host.sleep(DAMAGED_S)
        raise NotLeader(why, answer.leader_id)

    # --- the wire ---------------------------------------------------------------------------------

    def _attach(self, deadline: float, silence_s: float = math.inf) -> Connection:
        """Find the leader.

        Raises NoQuorum when the deadline passes without one, or ``silence_s`` without a server that
        answers.
        """
        self._check_open()
        self._detach()
        search = Search(deadline, self._leader is not None, self.host.monotonic)
        answer_by = self.host.monotonic() + silence_s
        while True:
            try:
                self._connection, self._leader = self.cluster.find_leader(min(deadline, answer_by))
                cap = max(self.fetch_bytes, limits.BATCH_BYTES_MAX) + ANSWER_OVERHEAD_BYTES
                self._connection.splitter.frame_bytes_max = cap
                return self._connection
            except (NotLeader, NoQuorum, OutOfResources) as error:
                now = self.host.monotonic()
                if isinstance(error, NotLeader):  # a server said so
                    answer_by = now + silence_s
                if search.is_over(error) or now >= answer_by:
                    if isinstance(error, OutOfResources):
                        raise
                    raise NoQuorum(f"no leader could be found: {error}") from None
                self.host.sleep(RETRY_S)

    def _detach(self) -> None:
        self._asked = -1
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _version(self, connection: Connection) -> int:
        assert self._leader is not None
        by_name = self._leader.topic_id is None
        return connection.version_of(ApiKey.FETCH, WITHOUT_TOPIC_IDS if by_name else None)

    def _ask(self, connection: Connection, wait_ms: int, offset: int = -1) -> None:
        assert self._leader is not None
        self._asked = offset if offset >= 0 else self.position
        self._answer_due = self.host.monotonic() + wait_ms / 1000 + GRACE_S
        request = PartitionFetch(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=self.fetch_bytes,
            partition_max_bytes=self.fetch_bytes,
            topic=self.cluster.topic,
            topic_id=self._leader.topic_id or ZERO_UUID,
            partition=METADATA_PARTITION,
            current_leader_epoch=self._leader.epoch,
            fetch_offset=self._asked,
        )
        number = connection.next_correlation_id()
        data = fetch.encode_request(
            self._version(connection), number, connection.CLIENT_ID, request
        )
        connection.send(data, self._answer_due)

    def _take_back(self, connection: Connection) -> None:
        """Skip the answer to a Fetch for an offset that is not wanted any longer."""
        if self._asked >= 0:
            self._receive(connection, self._answer_due)

    def _receive(self, connection: Connection, deadline: float) -> PartitionFetched:
        """Return the answer to the Fetch under way. Raises TimedOut if it has not come."""
        data = connection.receive(min(deadline, self._answer_due))
        self._asked = -1
        number, answer = fetch.decode_response(self._version(connection), data)
        if number != connection.correlation_id - 1 & 0x7FFFFFFF:
            raise MalformedFrame("an answer to another request")
        if not isinstance(answer, PartitionFetched):
            if answer.error_code == ErrorCode.NONE:
                raise MalformedFrame("an answer without the partition that was asked for")
            return PartitionFetched(error_code=answer.error_code)
        return answer

    def disown(self) -> None:
        """Do nothing: the connection closes itself."""
        super().disown()
        self._connection = None
        self._ahead.clear()

    def close(self) -> None:
        self._detach()
        self._ahead.clear()
        super().close()
