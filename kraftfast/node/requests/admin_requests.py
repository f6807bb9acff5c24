"""What operators ask of a quorum: its state, read barriers, upgrades, reassignments, transfers.

AddRaftVoter, RemoveRaftVoter and UpdateRaftVoter go to the core as they are; what is here may have
to be refused before the core sees it. The order of checks is that of Kafka's ``KafkaRaftClient``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.requests.describe_requests import (
    describe_cluster,
    describe_quorum,
    find_coordinator,
    no_committed_offsets,
)
from kraftfast.node.translation import translate_membership as membership
from kraftfast.wire import messages as wire
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraftfast.node.node import Node
    from kraftfast.node.ports import AskingOperator
    from kraftfast.wire.frame import WireMessage

    Reassigned = core.AlterPartitionReassignmentsResponse | core.ListPartitionReassignmentsResponse

NO_TRANSFER = -2
"""The default of TransferTo: nothing is to be handed over."""
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NOT_OURS = "This server does not host this topic-partition."


def take(node: Node, request: AskingOperator, message: WireMessage) -> bool:
    """Answer an operator's request, now or later; False for what is none."""
    handle = _HANDLERS.get(request.api_key)
    if handle is None:
        return False
    handle(node, request, message)
    return True


def _describe_quorum(
    node: Node, request: AskingOperator, message: wire.DescribeQuorumRequest
) -> None:
    """Answer with the quorum's state, or pass a read barrier on: reading is all it may do."""
    barrier = membership.barrier_from_wire(message)
    if barrier is not None and message.read_barrier.from_replica:
        node.step(ev.RequestReceived(request, barrier))
    elif barrier is not None:
        refused = _foreign(node, barrier.cluster_id)
        if refused:
            request.reply(core.ReadBarrierResponse(refused))
        else:
            node.step(ev.ReadBarrierRequested(request, barrier.timeout_ms))
    else:
        request.respond(describe_quorum(node, message, request.version))


def _foreign(node: Node, cluster_id: str | None) -> ErrorCode:
    foreign = cluster_id is not None and cluster_id != node.cluster_id
    return ErrorCode.INCONSISTENT_CLUSTER_ID if foreign else ErrorCode.NONE


def _update_features(
    node: Node, request: AskingOperator, message: wire.UpdateFeaturesRequest
) -> None:
    """Upgrade ``kraft.version``: no other feature has a level, and none goes back."""
    wanted = membership.features_from_wire(message, request.version)
    if wanted is None:
        text = "of all features there is only kraft.version here, and it is only ever upgraded"
        request.reply(core.UpdateFeaturesResponse(ErrorCode.INVALID_UPDATE_VERSION, text))
    else:
        node.step(ev.RequestReceived(request, wanted))


def _alter_reassignments(
    node: Node, request: AskingOperator, message: wire.AlterPartitionReassignmentsRequest
) -> None:
    """Reassign the quorum's own log, whose replicas are its voters (KIP-642); no other is here.

    With a tag of ours and without a topic it hands leadership over.
    """
    if message.transfer_to != NO_TRANSFER:
        _transfer(node, request, message)
        return
    found = membership.target_from_wire(message, node.partition)
    allowed = message.allow_replication_factor_change
    error, text = UNKNOWN, NOT_OURS
    if found is not None:
        target = found.target
        if allowed or target is None or len(target) == len(node.voters):
            source = Reassigning(request, allowed, node, target)
            node.step(ev.RequestReceived(source, found))
            return
        error = ErrorCode.INVALID_REPLICATION_FACTOR
        text = f"there are {len(node.voters)} voters, and their number is not to change"
    kind = wire.AlterPartitionReassignmentsResponse
    topics = [
        kind.Response(
            topic.name,
            [kind.Partition(part.partition_index, error, text) for part in topic.partitions],
        )
        for topic in message.topics
    ]
    request.respond(
        kind(allow_replication_factor_change=allowed, error_message=None, responses=topics)
    )


def _transfer(
    node: Node, request: AskingOperator, message: wire.AlterPartitionReassignmentsRequest
) -> None:
    if message.topics:
        text = "a request hands over or reassigns, not both"
        request.reply(core.TransferResponse(ErrorCode.INVALID_REQUEST, text))
    else:
        node.step(ev.TransferRequested(request, message.transfer_to))


class Reassigning:
    """An AlterPartitionReassignments: its answer repeats what it allowed."""

    __slots__ = ("request", "allowed", "node", "target")

    def __init__(
        self, request: AskingOperator, allowed: bool, node: Node, target: tuple[int, ...] | None
    ) -> None:
        self.request, self.allowed, self.node, self.target = request, allowed, node, target

    def failed(self, error: Exception) -> None:
        """End the session of the request."""
        self.request.failed(error)

    def reply(self, response: Reassigned) -> None:
        """Reply as the request itself does; report a reassignment that begins or is cancelled."""
        if response.error is ErrorCode.NONE:
            if self.target is None:
                self.node.tell("reassignment_cancelled")
            else:
                self.node.tell("reassignment_begun", target=sorted(self.target))
        body = membership.RESPONSE_TO_WIRE[type(response)](
            response,
            wire.AlterPartitionReassignmentsResponse,
            self.node.partition,
            self.request.version,
        )
        body.allow_replication_factor_change = self.allowed
        self.request.respond(body)


def _list_reassignments(
    node: Node, request: AskingOperator, message: wire.ListPartitionReassignmentsRequest
) -> None:
    """List the reassignment of the quorum's log; of other logs there is none."""
    topics = message.topics
    if topics is None or any(topic.name == node.partition.topic for topic in topics):
        node.step(ev.RequestReceived(request, core.ListPartitionReassignmentsRequest()))
    else:
        request.respond(wire.ListPartitionReassignmentsResponse(error_message=None))


def _describe_cluster(
    node: Node, request: AskingOperator, message: wire.DescribeClusterRequest
) -> None:
    request.respond(describe_cluster(node, message, request.listener))


def _find_coordinator(
    node: Node, request: AskingOperator, message: wire.FindCoordinatorRequest
) -> None:
    request.respond(find_coordinator(node, request, message))


def _offset_fetch(_node: Node, request: AskingOperator, message: wire.OffsetFetchRequest) -> None:
    request.respond(no_committed_offsets(message))


_HANDLERS: dict[int, Callable[[Node, AskingOperator, WireMessage], None]] = {
    ApiKey.DESCRIBE_QUORUM: _describe_quorum,
    ApiKey.UPDATE_FEATURES: _update_features,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _alter_reassignments,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _list_reassignments,
    ApiKey.DESCRIBE_CLUSTER: _describe_cluster,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.INIT_PRODUCER_ID: lambda node, *asked: node.producer_ids.serve(*asked),
}
