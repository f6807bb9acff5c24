"""Fields of Kafka's answers and records that only a peer reads: they say what they should."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import messages as core
from kraftfast.core.config import QuorumConfig
from kraftfast.core.effects import AppendControl
from kraftfast.core.membership.joining import wanted_request
from kraftfast.errors import ErrorCode
from kraftfast.node.control_records import batch_of
from kraftfast.node.requests.describe_requests import describe_quorum
from kraftfast.node.translation import translate
from kraftfast.node.translation.wire_values import Partition, identity_from_wire
from kraftfast.record import pure
from kraftfast.record.control import decode_control
from kraftfast.types import (
    METADATA_TOPIC,
    METADATA_TOPIC_ID,
    Endpoint,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
    VoterSet,
)
from kraftfast.wire.messages import ApiKey, DescribeQuorumRequest

PARTITION = Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
LEADER: dict[str, Any] = {
    "leader_id": 3,
    "leader_epoch": 4,
    "leader_endpoints": (
        Endpoint("CLIENT", "c", 1),
        Endpoint("CONTROLLER", "leader.example", 9093),
    ),
}
ANSWERS = {
    ApiKey.VOTE: (1, core.VoteResponse(**LEADER)),
    ApiKey.BEGIN_QUORUM_EPOCH: (1, core.QuorumEpochResponse(**LEADER)),
    ApiKey.END_QUORUM_EPOCH: (1, core.QuorumEpochResponse(**LEADER)),
    ApiKey.FETCH: (17, core.FetchResponse(**LEADER)),
    ApiKey.FETCH_SNAPSHOT: (
        1, core.FetchSnapshotResponse(snapshot_id=OffsetAndEpoch(9, 2), **LEADER)
    ),
}  # fmt: skip


def answered(api_key: int, response: Any, version: int) -> Any:
    if api_key == ApiKey.FETCH:
        return translate.fetched_to_wire(response, PARTITION, None, version)
    return translate.response_to_wire(api_key, response, PARTITION, version)


@pytest.mark.parametrize("committed", (True, False))
@pytest.mark.parametrize("api_key", [key for key in ANSWERS if key != ApiKey.FETCH_SNAPSHOT])
def test_answers_say_who_the_leader_is(api_key: int, committed: bool) -> None:
    """Its directory, where its voters stand in its log, and whether such voters are committed."""
    version, response = ANSWERS[ApiKey(api_key)]
    identity = core.LeaderIdentity(b"d" * 16, OffsetAndEpoch(7, 2), committed)
    kind = type(response)
    response = kind(*(getattr(response, name) for name in kind.__match_args__))
    response.leader_identity = identity
    (node,) = answered(api_key, response, version).node_endpoints
    assert identity_from_wire([node]) == identity


def test_a_voter_says_whether_voters_are_committed() -> None:
    for committed in (True, False):
        response = core.VoteResponse(voters_committed=committed, **LEADER)
        message = translate.response_to_wire(ApiKey.VOTE, response, PARTITION, 1)
        told = translate.response_from_wire(ApiKey.VOTE, message, PARTITION)
        assert told.voters_committed == committed


@pytest.mark.parametrize("api_key", ANSWERS)
def test_answers_name_the_leaders_endpoint(api_key: int) -> None:
    """By the listener of the controllers, in the first version that has room for it and not before;
    of a leader that is not known nothing is told."""
    first, response = ANSWERS[ApiKey(api_key)]
    (node,) = answered(api_key, response, first).node_endpoints
    assert (node.node_id, node.host, node.port) == (3, "leader.example", 9093)
    assert not answered(api_key, response, first - 1).node_endpoints
    response.leader_id, kept = -1, response.leader_id
    assert not answered(api_key, response, first).node_endpoints
    response.leader_id = kept


def test_a_leader_change_names_voters_by_their_ids_alone() -> None:
    """As Kafka's leaders write it, under kraft.version 1 too: version 0, no directory ids."""
    change = LeaderChange.of(1, (1, 2), (2,))
    (found,) = pure.batch_at(batch_of(AppendControl(3, (change,)), 1)).records()
    told = decode_control(found)
    assert isinstance(told, LeaderChange) and told.version == 0
    assert told.voters == (ReplicaKey(1), ReplicaKey(2))
    assert told.granting_voters == (ReplicaKey(2),)


def test_an_automatic_join_may_take_as_long_as_a_request() -> None:
    places = (Endpoint("CONTROLLER", "h", 9093),)
    config = QuorumConfig(auto_join=True, request_timeout_ms=900, endpoints=places)
    state: Any = SimpleNamespace(
        config=config, local=ReplicaKey(4, b"d" * 16), kraft_version=1, was_voter=False,
        voters=VoterSet(()), cluster_id="c", is_voter=lambda: False,
        history=SimpleNamespace(ever_named=lambda _: False),
    )  # fmt: skip
    wanted: Any = wanted_request(state, SimpleNamespace())  # type: ignore[arg-type]
    assert isinstance(wanted, core.AddRaftVoterRequest) and not wanted.ack_when_committed
    assert wanted.timeout_ms == 900
    sent = translate.request_to_wire(wanted, PARTITION)
    assert (sent.timeout_ms, sent.voter_id, sent.voter_directory_id) == (900, 4, b"d" * 16)


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_follower_does_not_describe_the_quorum(version: int) -> None:
    """As Kafka's: it says that it does not lead, and not who does; tools ask Metadata for that."""
    node = SimpleNamespace(partition=PARTITION, core=SimpleNamespace(role="follower", leader_id=3))
    kind = DescribeQuorumRequest
    asked = kind(topics=[kind.Topic(topic_name=METADATA_TOPIC, partitions=[kind.Partition()])])
    answer = describe_quorum(node, asked, version)
    (part,) = answer.topics[0].partitions
    assert answer.error_code == 0 and part.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (part.leader_id, part.leader_epoch, part.high_watermark) == (0, 0, 0)
    assert not (part.current_voters or part.observers or answer.nodes)
