"""FetchSnapshot (59) between the core's messages and Kafka's; see ``translate``."""

from __future__ import annotations

from collections.abc import Callable

from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.translation import generated
from kraftfast.node.translation.wire_values import Partition, error_code
from kraftfast.types import METADATA_PARTITION, Endpoint, ReplicaKey
from kraftfast.wire import messages as wire
from kraftfast.wire.frame import WireMessage


class Slice:
    """An answer with the bytes that belong to it."""

    __slots__ = ("response", "data")

    def __init__(self, response: core.FetchSnapshotResponse, data: bytes) -> None:
        self.response, self.data = response, data


def slice_of(message: WireMessage) -> bytes:
    """Return a copy of the bytes of an answer: the frame it came in is used again."""
    for topic in message.topics:
        for fields in topic.partitions:
            return bytes(fields.unaligned_records)
    return b""


def _from_wire(message: WireMessage, partition: Partition) -> core.FetchSnapshotRequest:
    """Check as Kafka does: exactly one partition of one topic, then whether it is ours."""
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        return core.FetchSnapshotRequest(
            0,
            ReplicaKey(message.replica_id),
            core.NOWHERE,
            0,
            cluster_id=message.cluster_id,
            partition_known=False,
        )
    topic = message.topics[0]
    fields = topic.partitions[0]
    return generated.fetch_snapshot_request_from_wire(
        message,
        fields,
        ours=topic.name == partition.topic and fields.partition == METADATA_PARTITION,
    )


def _response_to_wire(
    answer: Slice | core.FetchSnapshotResponse,
    kind: WireMessage,
    partition: Partition,
    version: int,
) -> WireMessage:
    """Return the response of a refusal (a response alone), or of a slice.

    Version 0 has no endpoints.
    """
    response, data = (answer.response, answer.data) if isinstance(answer, Slice) else (answer, b"")
    if response.error:
        return kind(error_code=response.error, topics=[])
    nodes = [
        kind.NodeEndpoint(node_id=response.leader_id, host=host, port=port)
        for name, host, port in response.leader_endpoints
        if name == partition.listener and response.leader_id >= 0
    ]
    return generated.fetch_snapshot_response_to_wire(
        response,
        partition,
        {"unaligned_records": data},
        node_endpoints=nodes[:1] if version else [],
    )


def _response_from_wire(message: WireMessage, partition: Partition) -> core.FetchSnapshotResponse:
    """Return the response; one without our partition or an error counts as UNKNOWN_SERVER_ERROR."""
    if message.error_code:
        return core.FetchSnapshotResponse(error=error_code(message.error_code))
    topics = [each for each in message.topics if each.name == partition.topic]
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return core.FetchSnapshotResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    fields = topics[0].partitions[0]
    leader_id = fields.current_leader.leader_id
    return generated.fetch_snapshot_response_from_wire(
        message,
        fields,
        leader_endpoints=tuple(
            Endpoint(partition.listener, node.host, node.port)
            for node in message.node_endpoints
            if node.node_id == leader_id
        ),
        records_bytes=len(fields.unaligned_records),
    )


API_OF: dict[type, wire.ApiKey] = {core.FetchSnapshotRequest: wire.ApiKey.FETCH_SNAPSHOT}
TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    core.FetchSnapshotRequest: generated.fetch_snapshot_request_to_wire
}
REQUEST_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Request]] = {
    wire.ApiKey.FETCH_SNAPSHOT: _from_wire
}
RESPONSE_TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    Slice: _response_to_wire,
    core.FetchSnapshotResponse: _response_to_wire,
}
RESPONSE_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Response]] = {
    wire.ApiKey.FETCH_SNAPSHOT: _response_from_wire
}
