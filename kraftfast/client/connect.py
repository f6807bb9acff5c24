"""A quorum that is reached over TCP, as one object.

>>> with kraftfast.connect(addresses) as quorum, quorum.producer() as producer:    # "host:port,..."
...     offset = producer.append_wait(b"hello", timeout=5)
...     for record in quorum.consumer(from_offset=offset):
...         print(record.value)
...     len(quorum.describe().voters)
b'hello'
3
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from kraftfast.client.aio import AsyncProducer
from kraftfast.client.connection import Address
from kraftfast.client.producer import BATCH_BYTES, PAUSE_S, WINDOW_BATCHES, Producer
from kraftfast.client.remote import Cluster, RemoteConnector, parse_addresses
from kraftfast.client.remote_consumer import RemoteConsumer
from kraftfast.errors import ErrorCode, NoQuorum, NotLeader, PeerGone, RequestRefused, TimedOut
from kraftfast.types import METADATA_PARTITION, METADATA_TOPIC, Endpoint, Uuid
from kraftfast.wire.messages import ApiKey, DescribeQuorumRequest


@dataclass(frozen=True, slots=True)
class ReplicaState:
    """A replica as the leader sees it. Times: wall-clock milliseconds, -1 if it never fetched."""

    id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int
    endpoints: tuple[Endpoint, ...] = ()


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """What DescribeQuorum says (KIP-595, KIP-836): leader, epoch, and how far everyone is."""

    leader_id: int
    epoch: int
    high_watermark: int
    voters: tuple[ReplicaState, ...]
    observers: tuple[ReplicaState, ...]


class Quorum:
    """A quorum of servers; see :func:`connect`. Thread-safe; its clients are closed apart."""

    # cluster: its servers, and who leads.

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster

    @property
    def topic(self) -> str:
        """The name of the quorum's log."""
        return self.cluster.topic

    def producer(
        self,
        *,
        batch_bytes: int = BATCH_BYTES,
        window: int = WINDOW_BATCHES,
        timeout: float = 30.0,
    ) -> Producer:
        """A blocking producer; ``window``: batches under way, 64 at most. Raises NoQuorum."""
        return Producer(RemoteConnector(self.cluster, batch_bytes, window), timeout)

    def async_producer(self, **settings: Any) -> AsyncProducer:
        """An asyncio producer, for use inside a running loop; settings as :meth:`producer`."""
        return AsyncProducer(self.producer(**settings))

    def consumer(
        self, from_offset: int = 0, *, follow: bool = False, timeout: float = 10.0
    ) -> RemoteConsumer:
        """Committed records from ``from_offset`` on, in order. Raises NoQuorum."""
        return RemoteConsumer(self.cluster, from_offset, follow=follow, timeout=timeout)

    def describe(self, *, timeout: float = 10.0) -> QuorumInfo:
        """Who leads, and how far every replica is. Raises NoQuorum, RequestRefused."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._describe(deadline)
            except (NotLeader, NoQuorum, PeerGone, TimedOut) as error:
                if time.monotonic() >= deadline:
                    raise NoQuorum(f"no leader could be asked: {error}") from None
                time.sleep(PAUSE_S)

    def _describe(self, deadline: float) -> QuorumInfo:
        partition = DescribeQuorumRequest.Partition(METADATA_PARTITION)
        topic = DescribeQuorumRequest.Topic(self.topic, [partition])
        connection, _ = self.cluster.find_leader(deadline)
        try:
            answer = connection.ask(
                ApiKey.DESCRIBE_QUORUM, DescribeQuorumRequest([topic]), deadline
            )
        finally:
            connection.close()
        found = [part for topic in answer.topics for part in topic.partitions]
        code = answer.error_code or (
            found[0].error_code if found else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        if code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            raise NotLeader("the server does not lead")
        if code != ErrorCode.NONE:
            raise RequestRefused(f"the server does not describe the quorum: error {code}", code)
        endpoints = {
            node.node_id: tuple(
                Endpoint(each.name, each.host, each.port) for each in node.listeners
            )
            for node in answer.nodes
        }

        def state(each: Any) -> ReplicaState:
            return ReplicaState(
                each.replica_id,
                each.replica_directory_id,
                each.log_end_offset,
                each.last_fetch_timestamp,
                each.last_caught_up_timestamp,
                endpoints.get(each.replica_id, ()),
            )

        part = found[0]
        voters, observers = map(state, part.current_voters), map(state, part.observers)
        return QuorumInfo(
            part.leader_id, part.leader_epoch, part.high_watermark, tuple(voters), tuple(observers)
        )

    def close(self) -> None:
        """Nothing is open: every client has connections of its own."""

    def __enter__(self) -> Quorum:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()


def connect(
    addresses: str | Iterable[str | Address], topic: str = METADATA_TOPIC, *, timeout: float = 10.0
) -> Quorum:
    """A quorum by the addresses of some of its servers: ``"host:port,host:port"``.

    Raises InvalidOption for what is no address, NoQuorum if there is no leader within ``timeout``
    seconds, RequestRefused if the servers have no such ``topic``.
    """
    quorum = Quorum(Cluster(parse_addresses(addresses), topic))
    deadline = time.monotonic() + timeout
    while True:
        try:
            quorum.cluster.find_leader(deadline)[0].close()
            return quorum
        except (NotLeader, NoQuorum) as error:
            if time.monotonic() >= deadline:
                raise NoQuorum(f"no leader within {timeout} s: {error}") from None
            time.sleep(PAUSE_S)
