"""One connection to the leader of a quorum, kept between the triggers of a stream.

A Fetch at the stream's own offset tells all that a trigger asks for: how much is committed, where
the log starts, and the batch that comes next.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftfast import errors
from kraftfast.errors import ErrorCode, NoQuorum, NotLeader, RequestRefused
from kraftfast.spark.reading.uncompiled import need_compiled
from kraftfast.spark.spark_options import SparkLogOptions
from kraftfast.types import METADATA_PARTITION, ZERO_UUID, uuid_text

if TYPE_CHECKING:
    from kraftfast.client.cluster import Cluster, KnownLeader
    from kraftfast.client.connection import Connection
    from kraftfast.wire.fetch import PartitionFetched

RETRY_S = 0.05
OFFSET_NOT_AVAILABLE = 78
"""A new leader does not know yet how much is committed (KIP-207)."""
WITHOUT_TOPIC_IDS = 12
PASSING = (
    NoQuorum, NotLeader, errors.PeerGone, errors.TimedOut, errors.MalformedFrame,
    errors.UnsupportedVersion,
)  # fmt: skip
"""Failures after which the leader is looked for again, as long as there is time."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What the leader says when it is asked for an offset."""

    high_watermark: int
    """0 while it does not know."""
    log_start_offset: int
    epoch: int = -1
    """Of the record at the offset; -1 where there is none that is committed."""
    bytes_per_record: float = 1.0
    """In the batch that holds it."""
    end_offset: int = 0
    """Of that batch."""


def fetch_once(
    connection: Connection, leader: KnownLeader, topic: str, deadline: float, **fields: Any
) -> PartitionFetched:
    """Send one Fetch for the quorum's log and return the answer. Raises what ``PASSING`` names."""
    from kraftfast.wire import fetch
    from kraftfast.wire.messages import ApiKey

    by_name = leader.topic_id is None
    version = connection.version_of(ApiKey.FETCH, WITHOUT_TOPIC_IDS if by_name else None)
    request = fetch.PartitionFetch(
        topic=topic, topic_id=leader.topic_id or ZERO_UUID, partition=METADATA_PARTITION,
        current_leader_epoch=leader.epoch, **fields,
    )  # fmt: skip
    number = connection.next_correlation_id()
    connection.send(fetch.encode_request(version, number, connection.CLIENT_ID, request), deadline)
    _, answer = fetch.decode_response(version, connection.receive(deadline))
    if not isinstance(answer, fetch.PartitionFetched):
        raise errors.MalformedFrame("an answer without the partition that was asked for")
    return answer


class LeaderLine:
    """Asks the leader, any that there is, for ``timeout`` seconds at most. Not thread-safe."""

    # options: servers, topic, timeout. cluster: its servers, None before the first question.
    # connection, leader: the last ones asked. directories: of the voters then.

    def __init__(self, options: SparkLogOptions) -> None:
        self.options = options
        self.cluster: Cluster | None = None
        self.connection: Connection | None = None
        self.leader: KnownLeader | None = None
        self.directories: tuple[str, ...] = ()

    def look(self, offset: int) -> Seen:
        """Ask at an offset. Raises NoQuorum, RequestRefused, InconsistentClusterId."""
        deadline = time.monotonic() + self.options.timeout
        while True:
            try:
                if self.connection is None:
                    self._attach(deadline)
                return self._seen(self._fetch(offset, deadline), offset)
            except PASSING as error:
                self.close()
                if time.monotonic() >= deadline:
                    text = f"no leader within {self.options.timeout:g} s: {error}"
                    raise NoQuorum(text) from None
                time.sleep(RETRY_S)
            except BaseException:
                self.close()
                raise

    def identity(self) -> tuple[str, tuple[str, ...]]:
        """Return the cluster's id and the ids of its voters' directories, as of the last leader."""
        assert self.cluster is not None, "it is asked after a look"
        return self.cluster.cluster_id or "", self.directories

    def _attach(self, deadline: float) -> None:
        need_compiled("reading from servers")
        from kraftfast import limits
        from kraftfast.client.admin.quorum_info import question, read_answer
        from kraftfast.client.cluster import Cluster, parse_addresses
        from kraftfast.client.consumer.remote_consumer import ANSWER_OVERHEAD_BYTES
        from kraftfast.wire.messages import ApiKey

        if self.cluster is None:
            self.cluster = Cluster(parse_addresses(self.options.servers), self.options.topic)
        self.connection, self.leader = self.cluster.find_leader(deadline)
        self.connection.splitter.frame_bytes_max = limits.BATCH_BYTES_MAX + ANSWER_OVERHEAD_BYTES
        try:
            answer = self.connection.ask(
                ApiKey.DESCRIBE_QUORUM, question(self.options.topic), deadline
            )
            ids = [each.directory_id for each in read_answer(answer).voters]
        except (RequestRefused, errors.UnsupportedVersion):  # a broker's topic
            ids = []
        self.directories = tuple(sorted(uuid_text(id) for id in ids if id != ZERO_UUID))

    def _fetch(self, offset: int, deadline: float) -> PartitionFetched:
        connection, leader = self.connection, self.leader
        assert connection is not None and leader is not None
        return fetch_once(
            connection, leader, self.options.topic, deadline, min_bytes=0, max_wait_ms=0,
            fetch_offset=offset, max_bytes=1, partition_max_bytes=1,
        )  # fmt: skip

    def _seen(self, answer: PartitionFetched, offset: int) -> Seen:
        from kraftfast.client.consumer.remote_consumer import ANOTHER_LEADER
        from kraftfast.record.batch import batches

        code = answer.partition_error_code or answer.error_code
        if code in ANOTHER_LEADER:
            raise NotLeader("the server does not lead", answer.leader_id)
        end, start = max(0, answer.high_watermark), max(0, answer.log_start_offset)
        if code in (ErrorCode.OFFSET_OUT_OF_RANGE, OFFSET_NOT_AVAILABLE):
            return Seen(end, start)
        if code != ErrorCode.NONE:
            raise RequestRefused(f"the leader refuses to be read from: error {code}", code)
        for batch in batches(answer.records or b"", partial=True):
            if batch.base_offset <= offset < batch.end_offset <= end:
                size = batch.size / max(1, batch.record_count)
                return Seen(end, start, batch.leader_epoch, max(1.0, size), batch.end_offset)
        return Seen(end, start)

    def close(self) -> None:
        """Hang up. The next look calls again."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()
