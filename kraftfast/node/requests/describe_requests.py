"""What clients and tools may ask of a quorum: Metadata, DescribeCluster, DescribeQuorum.

The codes of Metadata, and what clients do on them: UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_TOPIC_ID
(all wait for the topic: Java a minute, librdkafka half of one), INVALID_TOPIC_EXCEPTION (Java and
librdkafka fail at once), LEADER_NOT_AVAILABLE of the partition (all ask again),
LISTENER_NOT_FOUND (they ask again; it names a mistake in the configuration). Of FindCoordinator and
InitProducerId: see there.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from kraftfast.errors import ErrorCode
from kraftfast.types import METADATA_PARTITION, NO_NODE, NO_OFFSET, ZERO_UUID
from kraftfast.wire import messages as wire

if TYPE_CHECKING:
    from typing import TypeVar

    from kraftfast.core.describe_quorum import ReplicaDescription
    from kraftfast.node.node import Node
    from kraftfast.node.ports import AskingOperator
    from kraftfast.types import Endpoint, Voter

    Described = wire.DescribeQuorumResponse
    T = TypeVar("T", Described.CurrentVoter, Described.Observer, Described.TargetVoter)

AUTHORIZED_OPERATIONS_UNKNOWN = -(2**31)
NAMELESS_TOPIC_VERSION = 12  # of Metadata, whose answer may name a topic by its id alone
KEYS_VERSION = 4  # of FindCoordinator, that asks for several at once
GROUP, TRANSACTION = 0, 1  # key types of FindCoordinator
IN_SYNC_MS_MAX = 30_000  # replica.lag.time.max.ms
LIBRDKAFKA = re.compile("rdkafka|confluent")  # how clients built on it name their software
TOPIC_NAME = re.compile(r"[a-zA-Z0-9._-]{1,249}")  # Topic.LEGAL_CHARS, MAX_NAME_LENGTH
NO_COORDINATOR = "there are no consumer groups and no transactions"
LISTENER_NOT_FOUND_VERSION = 6  # of Metadata
NODES_VERSION = 2  # of DescribeQuorum, that has nodes and directory ids


def leader_of(node: Node) -> int:
    """Return the leader, -1 if none is known: a replica that has resigned does not."""
    leader_id = int(node.core.leader_id)
    if leader_id == node.config.node_id and node.core.role != "leader":
        return NO_NODE
    return leader_id


def in_sync(node: Node) -> list[int]:
    """Return the voters that have caught up lately; only the leader knows, others name all."""
    if node.core.role != "leader":
        return list(node.voters.ids)
    now_ms = node.now_ms()
    return [
        each.key.id
        for each in node.core.describe(now_ms).voters
        if each.key.id == node.config.node_id
        or 0 <= each.last_caught_up_ms
        and now_ms - each.last_caught_up_ms <= IN_SYNC_MS_MAX
    ]


def advertised(node: Node, listener: str) -> list[tuple[int, str, int]]:
    """Return (id, host, port) of every voter that clients of this listener can be sent to.

    That is the voter's listener of the same name, as in Kafka: the others may be out of the
    client's reach. Kafka's rest on brokers that register every listener. Static voters are known by
    one listener alone, and the listener of an observer may be no voter's: then that one is named,
    since a client that learns of no leader could never append.
    """
    places = [(voter.id, known_endpoints(node, voter)) for voter in node.voters]
    same = {id: each for id, known in places for each in known[::-1] if each.name == listener}
    static = node.core.kraft_version == 0
    if static or not same:
        same = {id: known[0] for id, known in places if known} | same
    return [(id, each.host, each.port) for id, each in sorted(same.items())]


def known_endpoints(node: Node, voter: Voter) -> tuple[Endpoint, ...]:
    """Return the endpoints of a voter that can be connected to; its own replica knows all."""
    own = node.config.endpoints if voter.id == node.config.node_id else ()
    return tuple(each for each in (*voter.endpoints, *own) if each.port)


def metadata(
    node: Node, message: wire.MetadataRequest, version: int, listener: str
) -> wire.MetadataResponse:
    """Return one topic with one partition; brokers are the voters.

    A topic without a name is refused below the version that can express it, as in Kafka's
    ``KafkaApis``: the answer has an empty name there, since it has no room for a null. A name that
    no topic can have gets a final error: clients wait for a topic that is unknown, Java's a
    minute. A topic that is named often is answered once.
    """
    kind = wire.MetadataResponse
    asked = message.topics
    brokers = advertised(node, listener)
    ids = {id for id, *_ in brokers}
    if asked is None or (version == 0 and not asked):  # it wants all
        topics = [_our_topic(node, version, ids)]
    else:
        once: dict[str | bytes, wire.MetadataRequest.Topic] = {}
        for entry in asked:
            once.setdefault(entry.topic_id if entry.name is None else entry.name, entry)
        topics = [_topic(node, entry, version, ids) for entry in once.values()]
    return kind(
        brokers=[kind.Broker(node_id=id, host=host, port=port) for id, host, port in brokers],
        cluster_id=node.cluster_id,
        controller_id=leader_of(node),
        topics=topics,
    )


def _our_topic(node: Node, version: int, reachable: set[int]) -> wire.MetadataResponse.Topic:
    """Return the topic; a leader without the client's listener is no leader for that client."""
    kind = wire.MetadataResponse
    leader = leader_of(node)
    error = ErrorCode.NONE if leader >= 0 else ErrorCode.LEADER_NOT_AVAILABLE
    if leader >= 0 and leader not in reachable:
        told = version >= LISTENER_NOT_FOUND_VERSION
        error = ErrorCode.LISTENER_NOT_FOUND if told else ErrorCode.LEADER_NOT_AVAILABLE
        leader = NO_NODE
    ids = list(node.voters.ids)
    partition = kind.Partition(
        error_code=error,
        partition_index=METADATA_PARTITION,
        leader_id=leader,
        leader_epoch=node.core.epoch,
        replica_nodes=ids,
        isr_nodes=in_sync(node),
    )
    return kind.Topic(
        name=node.partition.topic, topic_id=node.partition.topic_id, partitions=[partition]
    )


def _topic(
    node: Node, entry: wire.MetadataRequest.Topic, version: int, reachable: set[int]
) -> wire.MetadataResponse.Topic:
    kind = wire.MetadataResponse
    nameless = version >= NAMELESS_TOPIC_VERSION
    if entry.name is None and not nameless:
        return kind.Topic(error_code=ErrorCode.INVALID_REQUEST, name="", topic_id=entry.topic_id)
    if entry.name is None:
        if entry.topic_id == node.partition.topic_id:
            return _our_topic(node, version, reachable)
        return kind.Topic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=entry.topic_id)
    if entry.name == node.partition.topic:
        return _our_topic(node, version, reachable)
    legal = TOPIC_NAME.fullmatch(entry.name) and entry.name not in (".", "..")
    error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if legal else ErrorCode.INVALID_TOPIC_EXCEPTION
    return kind.Topic(error_code=error, name=entry.name)


def find_coordinator(
    node: Node, request: AskingOperator, message: wire.FindCoordinatorRequest
) -> wire.FindCoordinatorResponse:
    """Refuse every key by an error that no client retries: there is no coordinator.

    A transactional id is not permitted: librdkafka retries whatever else it is told until its time
    is out.

    It is served because librdkafka does not compress with lz4 where it is not. But librdkafka
    asks also for consumers that only assign partitions, reports the error to them, and waits for
    a coordinator when they close. It is told this server, which serves no JoinGroup and no
    OffsetCommit, as it knows from ApiVersions: it fails these calls at once, and reports that.
    What it asks without looking is answered (``no_committed_offsets``).
    """
    kind = wire.FindCoordinatorResponse
    version = request.version
    answer: dict[str, Any] = {"node_id": NO_NODE, "port": -1}
    answer["error_code"] = ErrorCode.UNSUPPORTED_VERSION
    if message.key_type == TRANSACTION:
        answer["error_code"] = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    if version:
        answer["error_message"] = NO_COORDINATOR
    if message.key_type == GROUP and LIBRDKAFKA.search(request.software):
        for own in advertised(node, request.listener):
            if own[0] == node.config.node_id:
                answer = dict(zip(("node_id", "host", "port"), own))
    if version < KEYS_VERSION:
        return kind(**answer)
    keys = message.coordinator_keys
    return kind(coordinators=[kind.Coordinator(key=key, **answer) for key in keys])


def no_committed_offsets(message: wire.OffsetFetchRequest) -> wire.OffsetFetchResponse:
    """Answer OffsetFetch: no group has committed anything here, so consumers start by their reset.

    Served for librdkafka, which asks its coordinator for partitions that are assigned without an
    offset, and up to 2.16 reads through a null pointer where that API is not served.
    """
    kind = wire.OffsetFetchResponse
    return kind(
        topics=[
            kind.Topic(
                name=topic.name,
                partitions=[
                    kind.Partition(partition_index=index, committed_offset=NO_OFFSET, metadata="")
                    for index in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ]
    )


def describe_cluster(
    node: Node, message: wire.DescribeClusterRequest, listener: str
) -> wire.DescribeClusterResponse:
    """Return the members of the cluster; the voters are its controllers and its brokers."""
    kind = wire.DescribeClusterResponse
    return kind(
        endpoint_type=message.endpoint_type,
        cluster_id=node.cluster_id,
        controller_id=leader_of(node),
        brokers=[
            kind.Broker(broker_id=id, host=host, port=port)
            for id, host, port in advertised(node, listener)
        ],
        cluster_authorized_operations=AUTHORIZED_OPERATIONS_UNKNOWN,
    )


def describe_quorum(
    node: Node, message: wire.DescribeQuorumRequest, version: int
) -> wire.DescribeQuorumResponse:
    """Answer with Kafka's order of checks, and its texts (``KafkaRaftClient``).

    Nodes and directory ids are told from version 2 on.
    """
    kind = wire.DescribeQuorumResponse
    ours = all(
        topic.topic_name == node.partition.topic and part.partition_index == METADATA_PARTITION
        for topic in message.topics
        for part in topic.partitions
    )
    if not ours:
        error = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _describe_error(message, error, "This server does not host this topic-partition.")
    if node.core.role != "leader":
        text = (
            "For requests intended only for the leader, this error indicates that the broker is "
            "not the current leader. For requests intended for any replica, this error indicates "
            "that the broker is not a replica of the topic partition."
        )
        return _describe_error(message, ErrorCode.NOT_LEADER_OR_FOLLOWER, text)
    description = node.core.describe(node.now_ms())
    to_wall_ms = node.host.wall_ms() - node.now_ms()
    told = version >= NODES_VERSION
    partition = kind.Partition(
        partition_index=METADATA_PARTITION,
        error_message="",
        leader_id=description.leader_id,
        leader_epoch=description.epoch,
        high_watermark=description.high_watermark,
        current_voters=[
            _replica(kind.CurrentVoter, each, to_wall_ms, told) for each in description.voters
        ],
        observers=[
            _replica(kind.Observer, each, to_wall_ms, told) for each in description.observers
        ],
    )
    partition.uncommitted_voters = description.uncommitted_voter_change
    if description.target is not None:
        known = {each.key.id: each for each in (*description.observers, *description.voters)}
        partition.target_voters = [
            _replica(kind.TargetVoter, known[id], to_wall_ms, told)
            if id in known
            else kind.TargetVoter(replica_id=id, log_end_offset=-1)
            for id in description.target
        ]
    if description.ended_target is not None:
        partition.ended_target = list(description.ended_target)
    nodes = [
        kind.Node(
            node_id=voter.id, listeners=[kind.Listener(*endpoint) for endpoint in voter.endpoints]
        )
        for voter in node.voters
        if told
    ]
    topic = kind.Topic(topic_name=node.partition.topic, partitions=[partition])
    return kind(error_message="", topics=[topic], nodes=nodes)


def _replica(kind: type[T], each: ReplicaDescription, to_wall_ms: int, told: bool) -> T:
    def wall(at_ms: int) -> int:
        return at_ms + to_wall_ms if at_ms >= 0 else -1

    return kind(
        replica_id=each.key.id,
        replica_directory_id=each.key.directory_id if told else ZERO_UUID,
        log_end_offset=each.log_end_offset,
        last_fetch_timestamp=wall(each.last_fetch_ms),
        last_caught_up_timestamp=wall(each.last_caught_up_ms),
    )


def _describe_error(
    message: wire.DescribeQuorumRequest, error: ErrorCode, text: str
) -> wire.DescribeQuorumResponse:
    kind = wire.DescribeQuorumResponse
    return kind(
        error_message="",
        topics=[
            kind.Topic(
                topic_name=topic.topic_name,
                partitions=[
                    kind.Partition(
                        partition_index=part.partition_index,
                        error_code=error,
                        error_message=text,
                        leader_id=0,
                        leader_epoch=0,
                        high_watermark=0,
                    )
                    for part in topic.partitions
                ],
            )
            for topic in message.topics
        ],
    )
