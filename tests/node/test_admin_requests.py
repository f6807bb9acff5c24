"""What operators ask: handed to the core, or refused before it sees it, in Kafka's codes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.requests import admin_requests
from kraftfast.node.translation.wire_values import Partition
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, VoterSet
from kraftfast.wire import messages as wire
from kraftfast.wire.versions import SERVED


class Asked:
    """A request, and what was answered."""

    def __init__(self, message: Any) -> None:
        self.api_key = type(message).API_KEY
        self.version = SERVED[self.api_key].last
        self.answers: list[Any] = []

    def respond(self, body: Any) -> None:
        body.encode(self.version)  # it can be said
        self.answers.append(body)

    def reply(self, response: Any) -> None:
        self.answers.append(response)


class Node:
    """What is needed of one; ``events``: what the core was handed."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.partition = Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
        self.voters = VoterSet.of(1, 2, 3)
        self.cluster_id = "ours"
        self.config = SimpleNamespace(node_id=1)
        self.tell = lambda _event, **_fields: None

    def step(self, event: Any) -> None:
        self.events.append(event)


def ask(message: Any) -> tuple[list[Any], Asked]:
    """(what the core was handed, the request)"""
    node, asked = Node(), Asked(message)
    assert admin_requests.take(node, asked, message)
    return node.events, asked


def reassignment(
    replicas: list[int] | None, allow: bool = True, topic: str = METADATA_TOPIC
) -> Any:
    kind = wire.AlterPartitionReassignmentsRequest
    partition = kind.Partition(0, replicas)
    return kind(5, allow, [kind.Topic(topic, [partition])])


@pytest.mark.parametrize(("replicas", "allow"), [([4, 5], True), ([4, 5, 6], False), (None, False)])
def test_a_reassignment_is_the_cores(replicas: list[int] | None, allow: bool) -> None:
    """And its answer repeats what was allowed."""
    (event,), asked = ask(reassignment(replicas, allow))
    target = None if replicas is None else tuple(replicas)
    assert event.request == core.AlterPartitionReassignmentsRequest(target, 5)
    event.source.reply(core.AlterPartitionReassignmentsResponse())
    (answer,) = asked.answers
    assert answer.allow_replication_factor_change is allow
    assert answer.responses[0].partitions[0].error_code == 0


def test_a_reassignment_that_is_refused_at_once() -> None:
    for message, error in (
        (reassignment([4, 5], False), ErrorCode.INVALID_REPLICATION_FACTOR),
        (reassignment([4, 5, 6], True, "t"), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ):
        events, asked = ask(message)
        assert not events
        (answer,) = asked.answers
        assert answer.responses[0].partitions[0].error_code == error


def test_what_is_listed() -> None:
    kind = wire.ListPartitionReassignmentsRequest
    for topics in (None, [kind.Topic(METADATA_TOPIC, [0])]):
        (event,), _ = ask(kind(topics=topics))
        assert event.request == core.ListPartitionReassignmentsRequest()
    events, asked = ask(kind(topics=[kind.Topic("t", [0])]))
    assert not events and asked.answers[0].topics == []


def test_upgrades() -> None:
    kind = wire.UpdateFeaturesRequest
    (event,), _ = ask(kind(feature_updates=[kind.FeatureUpdate("kraft.version", 1)]))
    assert event.request == core.UpdateFeaturesRequest(1)
    events, asked = ask(kind(feature_updates=[kind.FeatureUpdate("group.version", 1)]))
    assert not events and asked.answers[0].error is ErrorCode.INVALID_UPDATE_VERSION


def test_transfers_and_barriers() -> None:
    """A barrier of a replica and one of a client are two different things."""
    alter = wire.AlterPartitionReassignmentsRequest
    (event,), asked = ask(alter(transfer_to=-1))
    assert event == ev.TransferRequested(asked, -1)
    both = reassignment([1])
    both.transfer_to = 2
    events, asked = ask(both)
    assert not events and asked.answers[0].error is ErrorCode.INVALID_REQUEST
    kind = wire.DescribeQuorumRequest
    (event,), asked = ask(kind(read_barrier=kind.ReadBarrier(7, False, "ours")))
    assert event == ev.ReadBarrierRequested(asked, 7)
    (event,), asked = ask(kind(read_barrier=kind.ReadBarrier(7, True, "any")))
    assert event == ev.RequestReceived(asked, core.ReadBarrierRequest(7, "any"))
    events, asked = ask(kind(read_barrier=kind.ReadBarrier(7, False, "another")))
    assert not events
    assert asked.answers == [core.ReadBarrierResponse(ErrorCode.INCONSISTENT_CLUSTER_ID)]


def test_other_apis_are_for_somebody_else() -> None:
    asked = Asked(wire.MetadataRequest())
    assert not admin_requests.take(Node(), asked, wire.MetadataRequest())
