"""A client of any version of Kafka's protocol, which asks for what few ask, and for what is not.

It speaks by ``client/connection.py``. What it is told is held to what is committed.
"""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.client.connection import Connection
from kraftfast.errors import ErrorCode
from kraftfast.record import pure
from kraftfast.sim.clients.clients import ACKNOWLEDGED, UNKNOWN, Told
from kraftfast.sim.clients.remote_clients import CALL_S, RemoteClient
from kraftfast.sim.require import expect
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from kraftfast.sim.world import World

ASKS_MAX = 30
ELSEWHERE = "elsewhere"
TIMESTAMPS = (-1, -2, -3, -4, -5, -9, 0, 1, 500, 10**13)
"""Latest, earliest, of the largest timestamp, and others that are or are no times."""


class Stranger(RemoteClient):
    """See the module. Its chance is its own."""

    def __init__(self, world: World, id: int) -> None:
        self.chance = Random(world.seed * 2 + 1 + (1 << 54))
        self._number = 0
        super().__init__(world, id)

    def act(self) -> None:
        machine = self.chance.choice(self.world.machines)
        place = machine.endpoints[0]
        connection = Connection((place.host, place.port), self.host.monotonic() + CALL_S, self.host)
        try:
            for _ in range(self.chance.randint(1, ASKS_MAX)):
                if not self.running:
                    return
                getattr(self, f"_{self.chance.choice(ASKED)}")(connection)
                self.world.count("asked by strangers")
                self.host.sleep(self.chance.random() * 0.02)
        finally:
            if self.alive:
                connection.close()

    def _ask(self, connection: Connection, api: ApiKey, body: Any) -> Any:
        """Ask in some version. Raises KraftfastError where the connection is over."""
        latest = connection.version_of(api)
        oldest = wire.SERVED[api].first
        deadline = self.host.monotonic() + CALL_S
        return connection.ask(api, body, deadline, self.chance.randint(oldest, latest))

    def _topic(self) -> str:
        return METADATA_TOPIC if self.chance.random() < 0.85 else ELSEWHERE

    def _partition(self) -> int:
        return 0 if self.chance.random() < 0.9 else 7

    def _epoch(self) -> int:
        process = self.world.leader()
        known = process.core.epoch if process is not None else 0
        return self.chance.choice((-1, -1, known, known - 1, known + 1))

    def _list_offsets(self, connection: Connection) -> None:
        kind, chance = wire.ListOffsetsRequest, self.chance
        parts = [
            kind.Partition(self._partition(), self._epoch(), chance.choice(TIMESTAMPS))
            for _ in range(chance.choice((1, 1, 2, 3)))
        ]
        level, timeout_ms = chance.choice((0, 1)), chance.choice((0, 1, 500))
        topics = [kind.Topic(self._topic(), parts)]
        answer = self._ask(connection, ApiKey.LIST_OFFSETS, kind(-1, level, topics, timeout_ms))
        for topic in answer.topics:
            for part in topic.partitions:
                expect(
                    part.error_code != 0 or part.offset <= self.world.oracle.committed_end,
                    f"I20: a client is told of offset {part.offset}, committed is "
                    f"{self.world.oracle.committed_end}",
                )

    def _end_of_epoch(self, connection: Connection) -> None:
        kind = wire.OffsetForLeaderEpochRequest
        part = kind.Partition(self._partition(), self._epoch(), self._epoch())
        body = kind(-1, [kind.Topic(self._topic(), [part])])
        self._ask(connection, ApiKey.OFFSET_FOR_LEADER_EPOCH, body)

    def _metadata(self, connection: Connection) -> None:
        kind, chance = wire.MetadataRequest, self.chance
        topics = chance.choice((None, [], [kind.Topic(name=self._topic())],
                                [kind.Topic(topic_id=METADATA_TOPIC_ID)]))  # fmt: skip
        self._ask(connection, ApiKey.METADATA, kind(topics=topics))
        self._ask(connection, ApiKey.DESCRIBE_CLUSTER,
                  wire.DescribeClusterRequest(endpoint_type=chance.choice((1, 2, 3))))  # fmt: skip

    def _groups(self, connection: Connection) -> None:
        self._ask(connection, ApiKey.FIND_COORDINATOR, wire.FindCoordinatorRequest())
        self._ask(connection, ApiKey.OFFSET_FETCH, wire.OffsetFetchRequest())

    def _producer_id(self, connection: Connection) -> None:
        kind, chance = wire.InitProducerIdRequest, self.chance
        body = kind(
            transactional_id=chance.choice((None, None, "")),
            producer_id=chance.choice((-1, -1, 5)),
            producer_epoch=chance.choice((-1, 0)),
        )
        self._ask(connection, ApiKey.INIT_PRODUCER_ID, body)

    def _quorum(self, connection: Connection) -> None:
        kind = wire.DescribeQuorumRequest
        parts = [kind.Partition(self._partition()) for _ in range(self.chance.choice((0, 1, 2)))]
        topics = [kind.Topic(self._topic(), parts)] * self.chance.choice((0, 1, 2))
        self._ask(connection, ApiKey.DESCRIBE_QUORUM, kind(topics=topics))
        self._ask(connection, ApiKey.LIST_PARTITION_REASSIGNMENTS,
                  wire.ListPartitionReassignmentsRequest())  # fmt: skip

    def _fetch(self, connection: Connection) -> None:
        kind, chance = wire.FetchRequest, self.chance
        end = self.world.oracle.committed_end
        part = kind.Partition(
            partition=self._partition(),
            current_leader_epoch=self._epoch(),
            fetch_offset=chance.choice((0, end, end // 2, end + 100, -1)),
            last_fetched_epoch=chance.choice((-1, -1, 1)),
            partition_max_bytes=chance.choice((1, 1_000_000)),
        )
        name = self._topic()
        its_id = METADATA_TOPIC_ID if name == METADATA_TOPIC else bytes(range(16))
        body = kind(
            cluster_id=None,
            max_wait_ms=chance.choice((0, 5, 50)),
            min_bytes=chance.choice((0, 1, 100_000)),
            max_bytes=chance.choice((1, 1_000_000)),
            isolation_level=chance.choice((0, 1)),
            session_id=chance.choice((0, 0, 0, 9)),
            session_epoch=chance.choice((-1, -1, 0, 3)),
            topics=[kind.Topic(name, its_id, [part])] * chance.choice((1, 1, 1, 0, 2)),
        )
        self._ask(connection, ApiKey.FETCH, body)

    def _produce(self, connection: Connection) -> None:
        """What is acknowledged to ``acks=all`` is committed; of all else it learns nothing."""
        kind, chance, world = wire.ProduceRequest, self.chance, self.world
        self._number += 1
        value = b"t%d:%d:" % (self.id, self._number)
        told = Told(world, value, (-self.id, self._number))
        told.outcome = UNKNOWN
        world.history.append(told)
        records = bytearray(pure.encode_batch(pure.values_to_records([value], 0, 0)))
        if chance.random() < 0.2:
            records[chance.randrange(len(records))] ^= 1 << chance.randrange(8)
        acks, data = chance.choice((-1, -1, -1, 1, 0, 5)), kind.PartitionData
        part = data(self._partition(), bytes(records) if chance.random() < 0.95 else None)
        body = kind(
            transactional_id=chance.choice((None,) * 9 + ("name",)),
            acks=acks,
            timeout_ms=chance.choice((1, 1_000)),
            topic_data=[kind.TopicData(self._topic(), METADATA_TOPIC_ID, [part])],
        )
        if acks == 0:
            return  # it would be answered nothing
        answer = self._ask(connection, ApiKey.PRODUCE, body)
        for topic in answer.responses:
            for part in topic.partition_responses:
                if acks == -1 and part.error_code == ErrorCode.NONE:
                    told.base_offset, told.end_offset = part.base_offset, part.base_offset + 1
                    told.outcome = ACKNOWLEDGED
                    world.note_acknowledged(told)


ASKED = (
    "list_offsets", "list_offsets", "end_of_epoch", "metadata", "groups", "producer_id", "quorum",
    "fetch", "fetch", "produce", "produce",
)  # fmt: skip
