"""Between the core's messages and Kafka's: one topic and one partition, wrapped and unwrapped.

What is the same on both sides under whatever name is in ``generated``, which is made from the
tables; here is what decides something.

Where a request does not name exactly our partition, ``partition_known`` is False and the core
answers in Kafka's order of checks. Fields: KIP-595, KIP-853, KIP-996.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.translation import generated
from kraftfast.node.translation import translate_membership as membership
from kraftfast.node.translation import translate_snapshot as snapshot
from kraftfast.node.translation.wire_values import (
    Partition,
    endpoints_from_wire,
    error_code,
    identity_fields,
    identity_from_wire,
)
from kraftfast.types import METADATA_PARTITION, Endpoint, OffsetAndEpoch, ReplicaKey
from kraftfast.wire import messages as wire
from kraftfast.wire.fetch import PartitionFetch, PartitionFetched
from kraftfast.wire.frame import WireMessage
from kraftfast.wire.primitives import Buffer

API_OF: dict[type, wire.ApiKey] = {
    core.VoteRequest: wire.ApiKey.VOTE,
    core.BeginQuorumEpochRequest: wire.ApiKey.BEGIN_QUORUM_EPOCH,
    core.EndQuorumEpochRequest: wire.ApiKey.END_QUORUM_EPOCH,
    core.FetchRequest: wire.ApiKey.FETCH,
    **membership.API_OF,
    **snapshot.API_OF,
}
"""The API that carries each core request."""

LeaderTold = core.VoteResponse | core.QuorumEpochResponse | core.FetchResponse
IN_MEMORY = 1
"""The value of our Durability tag in Fetch for acknowledgements from memory."""


# --- requests that we send ------------------------------------------------------------------------


def request_to_wire(request: core.Request | WireMessage, partition: Partition) -> WireMessage:
    """Return the wire message of a core request (but Fetch, see :func:`fetch_to_wire`).

    An InitProducerId has no other form: it is sent as it is.
    """
    return _TO_WIRE[type(request)](request, partition)


def _begin(request: core.BeginQuorumEpochRequest, partition: Partition) -> WireMessage:
    told = _told_endpoints(wire.BeginQuorumEpochRequest, request)
    return generated.begin_quorum_epoch_request_to_wire(request, partition, leader_endpoints=told)


def _told_endpoints(
    kind: WireMessage, request: core.BeginQuorumEpochRequest | core.EndQuorumEpochRequest
) -> list[WireMessage]:
    """Return the leader's own endpoints, with its directory."""
    told = identity_fields(request.leader_identity)
    return [
        kind.LeaderEndpoint(name, host, port, **told)
        for name, host, port in request.leader_endpoints
    ]


def _end(request: core.EndQuorumEpochRequest, partition: Partition) -> WireMessage:
    kind, keys = wire.EndQuorumEpochRequest, request.preferred_candidates
    successors = {
        "preferred_successors": [key.id for key in keys],
        "preferred_candidates": [kind.PreferredCandidate(*key) for key in keys],
    }
    told = _told_endpoints(kind, request)
    return generated.end_quorum_epoch_request_to_wire(
        request, partition, successors, leader_endpoints=told
    )


_TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    core.VoteRequest: generated.vote_request_to_wire,
    core.BeginQuorumEpochRequest: _begin,
    core.EndQuorumEpochRequest: _end,
    **membership.TO_WIRE,
    **snapshot.TO_WIRE,
}


def fetch_to_wire(request: core.FetchRequest, partition: Partition) -> PartitionFetch:
    """Return a Fetch as Kafka's raft follower sends it."""
    return generated.fetch_request_to_wire(
        request,
        partition,
        durability=IN_MEMORY if request.in_memory else 0,
        observer_endpoints=[
            wire.FetchRequest.ObserverEndpoint(*each) for each in request.observer_endpoints
        ],
        observer_kraft_versions=list(request.observer_kraft_versions),
    )


# --- requests that we get -------------------------------------------------------------------------


def _only_partition(topics: list[WireMessage], name: str, partition: Partition) -> WireMessage:
    """Return the one partition of the one topic, if it is ours, else None."""
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        return None
    fields = topics[0].partitions[0]
    if getattr(topics[0], name) != partition.topic or fields.partition_index != METADATA_PARTITION:
        return None
    return fields


def vote_from_wire(message: WireMessage, partition: Partition) -> core.VoteRequest:
    """Return a Vote; ``partition_known`` False if it does not name our partition alone."""
    fields = _only_partition(message.topics, "topic_name", partition)
    if fields is None:
        return core.VoteRequest(
            0, core.NO_REPLICA, 0, 0, cluster_id=message.cluster_id, partition_known=False
        )
    return generated.vote_request_from_wire(message, fields)


def begin_from_wire(message: WireMessage, partition: Partition) -> core.BeginQuorumEpochRequest:
    """Return a BeginQuorumEpoch."""
    fields = _only_partition(message.topics, "topic_name", partition)
    if fields is None:
        return core.BeginQuorumEpochRequest(
            0, -1, cluster_id=message.cluster_id, partition_known=False
        )
    return generated.begin_quorum_epoch_request_from_wire(
        message,
        fields,
        leader_endpoints=endpoints_from_wire(message.leader_endpoints),
        leader_identity=identity_from_wire(message.leader_endpoints),
    )


def end_from_wire(message: WireMessage, partition: Partition) -> core.EndQuorumEpochRequest:
    """Return an EndQuorumEpoch; version 0 names successors by id alone."""
    fields = _only_partition(message.topics, "topic_name", partition)
    if fields is None:
        return core.EndQuorumEpochRequest(
            0, -1, cluster_id=message.cluster_id, partition_known=False
        )
    candidates = [
        ReplicaKey(c.candidate_id, c.candidate_directory_id) for c in fields.preferred_candidates
    ]
    successors = candidates or [ReplicaKey(id) for id in fields.preferred_successors]
    return generated.end_quorum_epoch_request_from_wire(
        message,
        fields,
        preferred_candidates=tuple(successors),
        leader_endpoints=endpoints_from_wire(message.leader_endpoints),
        leader_identity=identity_from_wire(message.leader_endpoints),
    )


def fetch_from_wire(message: WireMessage, partition: Partition) -> core.FetchRequest:
    """Return a Fetch, from the fast path's fields or, in another shape, from the whole message."""
    if not isinstance(message, PartitionFetch):
        return core.FetchRequest(
            -1, core.NO_REPLICA, 0, 0, cluster_id=message.cluster_id, partition_known=False
        )
    known = message.topic_id == partition.topic_id and message.partition == METADATA_PARTITION
    request = generated.fetch_request_from_wire(
        message,
        in_memory=message.durability == IN_MEMORY,
        partition_known=known,
        observer_endpoints=endpoints_from_wire(message.observer_endpoints),
        observer_kraft_versions=tuple(message.observer_kraft_versions),
    )
    request.max_bytes = max(request.max_bytes, 0)  # at least one batch, whatever was asked for
    return request


REQUEST_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Request]] = {
    wire.ApiKey.VOTE: vote_from_wire,
    wire.ApiKey.BEGIN_QUORUM_EPOCH: begin_from_wire,
    wire.ApiKey.END_QUORUM_EPOCH: end_from_wire,
    **membership.REQUEST_FROM_WIRE,
    **snapshot.REQUEST_FROM_WIRE,
}


# --- responses ------------------------------------------------------------------------------------

_ELECTIONS: dict[int, tuple[Callable[..., WireMessage], Callable[..., core.Response]]] = {
    wire.ApiKey.VOTE: (generated.vote_response_to_wire, generated.vote_response_from_wire),
    wire.ApiKey.BEGIN_QUORUM_EPOCH: (
        generated.begin_quorum_epoch_response_to_wire,
        generated.begin_quorum_epoch_response_from_wire,
    ),
    wire.ApiKey.END_QUORUM_EPOCH: (
        generated.end_quorum_epoch_response_to_wire,
        generated.end_quorum_epoch_response_from_wire,
    ),
}
_RESPONSE_TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    **membership.RESPONSE_TO_WIRE,
    **snapshot.RESPONSE_TO_WIRE,
}
_RESPONSE_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Response]] = {
    **membership.RESPONSE_FROM_WIRE,
    **snapshot.RESPONSE_FROM_WIRE,
}


def response_to_wire(
    api_key: int, response: core.Response | snapshot.Slice, partition: Partition, version: int
) -> WireMessage:
    """Return the wire message of a core response, but Fetch's.

    Version 0 of Vote, BeginQuorumEpoch and EndQuorumEpoch has no place for the leader's endpoints.
    """
    kind: WireMessage = wire.RESPONSES[api_key]
    encode = _RESPONSE_TO_WIRE.get(type(response))
    if encode is not None:
        return encode(response, kind, partition, version)
    assert isinstance(response, core.VoteResponse | core.QuorumEpochResponse)
    if response.error:
        return kind(error_code=response.error, topics=[])
    nodes = _node_endpoints(kind, response, partition) if version else []
    return _ELECTIONS[api_key][0](response, partition, node_endpoints=nodes)


def _node_endpoints(
    kind: WireMessage, response: LeaderTold, partition: Partition
) -> list[WireMessage]:
    for name, host, port in response.leader_endpoints:
        if name == partition.listener and response.leader_id >= 0:
            told = identity_fields(response.leader_identity)
            return [kind.NodeEndpoint(node_id=response.leader_id, host=host, port=port, **told)]
    return []


def response_from_wire(api_key: int, message: WireMessage, partition: Partition) -> WireMessage:
    """Return a core response from an answer, but Fetch's.

    One to Vote, BeginQuorumEpoch or EndQuorumEpoch that has neither our partition nor an error
    counts as UNKNOWN_SERVER_ERROR.
    """
    decode = _RESPONSE_FROM_WIRE.get(api_key)
    if decode is not None:
        return decode(message, partition)
    kind = core.VoteResponse if api_key == wire.ApiKey.VOTE else core.QuorumEpochResponse
    if message.error_code:
        return kind(error=error_code(message.error_code))
    fields = _only_partition(message.topics, "topic_name", partition)
    if fields is None:
        return kind(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    return _ELECTIONS[api_key][1](
        message,
        fields,
        leader_endpoints=_leader_endpoints(message.node_endpoints, fields.leader_id, partition),
        leader_identity=_leader_identity(message.node_endpoints, fields.leader_id),
    )


def _leader_endpoints(
    nodes: list[WireMessage], leader_id: int, partition: Partition
) -> tuple[Endpoint, ...]:
    return tuple(
        Endpoint(partition.listener, node.host, node.port)
        for node in nodes
        if node.node_id == leader_id
    )


def _leader_identity(nodes: list[WireMessage], leader_id: int) -> core.LeaderIdentity:
    return identity_from_wire(node for node in nodes if node.node_id == leader_id)


def fetched_to_wire(
    response: core.FetchResponse, partition: Partition, records: Buffer | None, version: int
) -> PartitionFetched:
    """Return the answer to a Fetch with its records (None or bytes-like)."""
    fetched = generated.fetch_response_to_wire(
        response,
        partition,
        error_code=response.error,
        records=records if records is not None else b"",
    )
    if version < 12:
        return fetched  # nothing of Raft can be said
    fetched.leader_id, fetched.leader_epoch = response.leader_id, response.leader_epoch
    if response.diverging is not None:
        fetched.diverging_end_offset, fetched.diverging_epoch = response.diverging
    if response.snapshot_id is not None:
        fetched.snapshot_end_offset, fetched.snapshot_epoch = response.snapshot_id
    if version >= 17:
        fetched.node_endpoints = _node_endpoints(wire.FetchResponse, response, partition)
    return fetched


def fetched_from_wire(message: WireMessage, partition: Partition) -> core.FetchResponse:
    """Return a core answer; the records stay with ``message``."""
    if not isinstance(message, PartitionFetched):
        return core.FetchResponse(error=error_code(message.error_code or -1))
    if message.error_code:
        return core.FetchResponse(error=error_code(message.error_code))
    if message.topic_id != partition.topic_id or message.partition != METADATA_PARTITION:
        return core.FetchResponse(error=ErrorCode.UNKNOWN_SERVER_ERROR)
    return generated.fetch_response_from_wire(
        message,
        leader_id=message.leader_id,
        leader_epoch=message.leader_epoch,
        diverging=_place(message.diverging_end_offset, message.diverging_epoch),
        snapshot_id=_place(message.snapshot_end_offset, message.snapshot_epoch),
        leader_endpoints=_leader_endpoints(message.node_endpoints, message.leader_id, partition),
        leader_identity=_leader_identity(message.node_endpoints, message.leader_id),
        records_bytes=len(message.records) if message.records is not None else 0,
    )


def _place(offset: int, epoch: int) -> OffsetAndEpoch | None:
    return None if offset < 0 and epoch < 0 else OffsetAndEpoch(offset, epoch)
