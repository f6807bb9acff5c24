"""Between the core's messages about membership and Kafka's (KIP-853, KIP-642, KIP-584).

A read barrier and a transfer have no API at Kafka: they travel in tagged fields, of DescribeQuorum
and of AlterPartitionReassignments, which do nothing at a server that does not know them. Fields:
KIP-853.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.translation import generated
from kraftfast.node.translation.wire_values import (
    Partition,
    endpoints_from_wire,
    error_code,
)
from kraftfast.types import METADATA_PARTITION, Endpoint
from kraftfast.wire import messages as wire
from kraftfast.wire.frame import WireMessage
from kraftfast.wire.versions import KRAFT_VERSION

UPGRADE = 1
"""UpgradeType of UpdateFeatures: the others go back, which kraft.version cannot."""

API_OF: dict[type, wire.ApiKey] = {
    core.AddRaftVoterRequest: wire.ApiKey.ADD_RAFT_VOTER,
    core.RemoveRaftVoterRequest: wire.ApiKey.REMOVE_RAFT_VOTER,
    core.UpdateRaftVoterRequest: wire.ApiKey.UPDATE_RAFT_VOTER,
    core.ReadBarrierRequest: wire.ApiKey.DESCRIBE_QUORUM,
    wire.InitProducerIdRequest: wire.ApiKey.INIT_PRODUCER_ID,
}
"""The API that carries what replicas ask each other."""


# --- requests that we send ------------------------------------------------------------------------


def _add(request: core.AddRaftVoterRequest, _partition: Partition) -> WireMessage:
    """Return the request as a replica that joins by itself sends it."""
    kind = wire.AddRaftVoterRequest
    listeners = [kind.Listener(*endpoint) for endpoint in request.endpoints]
    return generated.add_raft_voter_request_to_wire(request, listeners=listeners)


def _remove(request: core.RemoveRaftVoterRequest, _partition: Partition) -> WireMessage:
    """Return the request to remove the entry that a wiped disk left behind."""
    return generated.remove_raft_voter_request_to_wire(request)


def _update(request: core.UpdateRaftVoterRequest, _partition: Partition) -> WireMessage:
    """Return the request by which a voter reports where it is."""
    kind = wire.UpdateRaftVoterRequest
    listeners = [kind.Listener(*endpoint) for endpoint in request.endpoints]
    return generated.update_raft_voter_request_to_wire(request, listeners=listeners)


def _barrier(request: core.ReadBarrierRequest, _partition: Partition) -> WireMessage:
    """Return the request of a replica to its leader, for a reader of its own."""
    kind = wire.DescribeQuorumRequest
    barrier = kind.ReadBarrier(request.timeout_ms, True, request.cluster_id)
    return kind(topics=[], read_barrier=barrier)


TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    core.AddRaftVoterRequest: _add,
    core.RemoveRaftVoterRequest: _remove,
    core.UpdateRaftVoterRequest: _update,
    core.ReadBarrierRequest: _barrier,
    wire.InitProducerIdRequest: lambda request, _partition: request,
}


# --- requests that we get -------------------------------------------------------------------------


def add_from_wire(message: WireMessage, _partition: Partition) -> core.AddRaftVoterRequest:
    """Return the core's form of an AddRaftVoter."""
    endpoints = endpoints_from_wire(message.listeners)
    return generated.add_raft_voter_request_from_wire(message, endpoints=endpoints)


def remove_from_wire(message: WireMessage, _partition: Partition) -> core.RemoveRaftVoterRequest:
    """Return the core's form of a RemoveRaftVoter."""
    return generated.remove_raft_voter_request_from_wire(message)


def update_from_wire(message: WireMessage, _partition: Partition) -> core.UpdateRaftVoterRequest:
    """Return the core's form of an UpdateRaftVoter."""
    endpoints = endpoints_from_wire(message.listeners)
    return generated.update_raft_voter_request_from_wire(message, endpoints=endpoints)


REQUEST_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Request]] = {
    wire.ApiKey.ADD_RAFT_VOTER: add_from_wire,
    wire.ApiKey.REMOVE_RAFT_VOTER: remove_from_wire,
    wire.ApiKey.UPDATE_RAFT_VOTER: update_from_wire,
}


def barrier_from_wire(message: WireMessage) -> core.ReadBarrierRequest | None:
    """Return what a DescribeQuorum asks if it is a question for a read barrier."""
    barrier = message.read_barrier
    if barrier.timeout_ms < 0:
        return None
    return core.ReadBarrierRequest(barrier.timeout_ms, barrier.cluster_id)


def features_from_wire(message: WireMessage, version: int) -> core.UpdateFeaturesRequest | None:
    """Return the ``kraft.version`` that an UpdateFeatures asks for; None for what is no upgrade of
    it.

    Version 0 names no kind of upgrade: what would go back is refused by its number.
    """
    updates = message.feature_updates
    if len(updates) != 1 or updates[0].feature != KRAFT_VERSION:
        return None
    if version >= 1 and updates[0].upgrade_type != UPGRADE:
        return None
    return core.UpdateFeaturesRequest(
        updates[0].max_version_level, message.timeout_ms, message.validate_only
    )


def target_from_wire(
    message: WireMessage, partition: Partition
) -> core.AlterPartitionReassignmentsRequest | None:
    """Return the target of an AlterPartitionReassignments of this log alone, or None."""
    if len(message.topics) != 1 or len(message.topics[0].partitions) != 1:
        return None
    fields = message.topics[0].partitions[0]
    if message.topics[0].name != partition.topic or fields.partition_index != METADATA_PARTITION:
        return None
    target = None if fields.replicas is None else tuple(fields.replicas)
    return core.AlterPartitionReassignmentsRequest(target, message.timeout_ms)


# --- our answers ----------------------------------------------------------------------------------


def _added(
    response: core.AddRaftVoterResponse, _kind: WireMessage, _partition: Partition, _version: int
) -> WireMessage:
    return generated.add_raft_voter_response_to_wire(response)


def _removed(
    response: core.RemoveRaftVoterResponse, _kind: WireMessage, _partition: Partition, _version: int
) -> WireMessage:
    return generated.remove_raft_voter_response_to_wire(response)


def _updated(
    response: core.UpdateRaftVoterResponse, kind: WireMessage, partition: Partition, _version: int
) -> WireMessage:
    """Return the response, which names the leader."""
    host, port = "", 0
    for endpoint in response.leader_endpoints:
        if endpoint.name == partition.listener:
            host, port = endpoint.host, endpoint.port
    leader = kind.CurrentLeader(
        leader_id=response.leader_id, leader_epoch=response.leader_epoch, host=host, port=port
    )
    return kind(error_code=response.error or response.partition_error, current_leader=leader)


def _upgraded(
    response: core.UpdateFeaturesResponse, kind: WireMessage, _partition: Partition, version: int
) -> WireMessage:
    """Return the response; up to version 1 each feature is named when all went well."""
    results = []
    if version <= 1 and not response.error:
        results = [kind.Result(KRAFT_VERSION, ErrorCode.NONE, ErrorCode.NONE.name)]
    return kind(error_code=response.error, error_message=response.message, results=results)


def _reassigned(
    response: core.AlterPartitionReassignmentsResponse,
    kind: WireMessage,
    partition: Partition,
    _version: int,
) -> WireMessage:
    """Return the response; a replica that does not lead says so for the whole."""
    if response.error is ErrorCode.NOT_CONTROLLER:
        return kind(error_code=response.error, error_message=response.message, responses=[])
    fields = kind.Partition(METADATA_PARTITION, response.error, response.message)
    topic = kind.Response(partition.topic, [fields])
    return kind(error_code=ErrorCode.NONE, error_message=None, responses=[topic])


def _listed(
    response: core.ListPartitionReassignmentsResponse,
    kind: WireMessage,
    partition: Partition,
    _version: int,
) -> WireMessage:
    """Return the list, empty where nothing is under way."""
    topics = []
    if response.target is not None:
        voters, target = set(response.voter_ids), set(response.target)
        fields = kind.Partition(
            METADATA_PARTITION, sorted(voters), sorted(target - voters), sorted(voters - target)
        )
        topics = [kind.Topic(partition.topic, [fields])]
    return kind(error_code=response.error, error_message=response.message, topics=topics)


def _transferred(
    response: core.TransferResponse, kind: WireMessage, _partition: Partition, _version: int
) -> WireMessage:
    """Return that it was understood, and whether it was done."""
    return kind(error_code=response.error, error_message=response.message, transfer_to=-1)


def _passed(
    response: core.ReadBarrierResponse, kind: WireMessage, _partition: Partition, _version: int
) -> WireMessage:
    """Return an offset, or why there is none, and the leader."""
    return kind(
        error_code=response.error,
        barrier_offset=response.offset,
        barrier_leader_id=response.leader_id,
    )


RESPONSE_TO_WIRE: dict[type, Callable[..., WireMessage]] = {
    core.AddRaftVoterResponse: _added,
    core.RemoveRaftVoterResponse: _removed,
    core.UpdateRaftVoterResponse: _updated,
    core.UpdateFeaturesResponse: _upgraded,
    core.AlterPartitionReassignmentsResponse: _reassigned,
    core.ListPartitionReassignmentsResponse: _listed,
    core.TransferResponse: _transferred,
    core.ReadBarrierResponse: _passed,
}


# --- answers to us --------------------------------------------------------------------------------


def added_from_wire(message: WireMessage, _partition: Partition) -> core.AddRaftVoterResponse:
    """Return the core's form of an answer to AddRaftVoter."""
    return generated.add_raft_voter_response_from_wire(message)


def removed_from_wire(message: WireMessage, _partition: Partition) -> core.RemoveRaftVoterResponse:
    """Return the core's form of an answer to RemoveRaftVoter."""
    return generated.remove_raft_voter_response_from_wire(message)


def updated_from_wire(message: WireMessage, partition: Partition) -> core.UpdateRaftVoterResponse:
    """Return the answer to UpdateRaftVoter; without a leader's epoch it was not handled."""
    leader, code = message.current_leader, error_code(message.error_code)
    if leader.leader_epoch < 0:
        return core.UpdateRaftVoterResponse(error=code)
    endpoints = (Endpoint(partition.listener, leader.host, leader.port),) if leader.host else ()
    return core.UpdateRaftVoterResponse(
        partition_error=code,
        leader_id=leader.leader_id,
        leader_epoch=leader.leader_epoch,
        leader_endpoints=endpoints,
    )


def passed_from_wire(message: WireMessage, _partition: Partition) -> core.ReadBarrierResponse:
    """Return the answer to a read barrier; a leader that does not know the field has none."""
    code = error_code(message.error_code)
    if code is ErrorCode.NONE and message.barrier_offset < 0:
        code = ErrorCode.UNSUPPORTED_VERSION
    return core.ReadBarrierResponse(code, message.barrier_offset, message.barrier_leader_id)


RESPONSE_FROM_WIRE: dict[int, Callable[[WireMessage, Partition], core.Response]] = {
    wire.ApiKey.ADD_RAFT_VOTER: added_from_wire,
    wire.ApiKey.REMOVE_RAFT_VOTER: removed_from_wire,
    wire.ApiKey.UPDATE_RAFT_VOTER: updated_from_wire,
    wire.ApiKey.DESCRIBE_QUORUM: passed_from_wire,
    wire.ApiKey.INIT_PRODUCER_ID: lambda message, _partition: message,
}
