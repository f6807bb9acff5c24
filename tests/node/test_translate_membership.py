"""Membership through Kafka's bytes and back: its own frames, and messages of any content."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode
from kraftfast.node.translation import translate
from kraftfast.node.translation import translate_membership as membership
from kraftfast.node.translation.wire_values import Partition
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint, ReplicaKey
from kraftfast.wire import frame
from kraftfast.wire import messages as wire
from kraftfast.wire.fetch import decode_request, encode_request
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED

OURS = Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
FRAMES = Path(__file__).parents[1] / "wire" / "data"
IDS = st.integers(-1, 2**31 - 1)
DIRECTORIES = st.binary(min_size=16, max_size=16)
KEYS = st.builds(ReplicaKey, IDS, DIRECTORIES)
NAMES = st.text("ABCDEFGHIJ_09", min_size=1, max_size=9)
ENDPOINTS = st.lists(
    st.builds(Endpoint, NAMES, st.text(max_size=9), st.integers(0, 65535)), max_size=3
).map(tuple)
CLUSTERS = st.none() | st.text(max_size=9)
MESSAGES = st.none() | st.text(max_size=20)
CODES = st.sampled_from(ErrorCode)
VERSIONS = st.integers(0, 2**15 - 1)


def through_bytes(message: Any, version: int) -> Any:
    return type(message).decode(message.encode(version), version)


@pytest.mark.parametrize("name", sorted(path.name for path in FRAMES.glob("8*-request-*.bin")))
def test_requests_of_kafkas_come_back_as_they_were(name: str) -> None:
    """Its bytes, the core's message of them, and bytes again."""
    raw = (FRAMES / name).read_bytes()
    header, message = frame.decode_request(raw[4:])
    request = translate.REQUEST_FROM_WIRE[header.api_key](message, OURS)
    again = translate.request_to_wire(request, OURS)
    encoded = frame.encode_request(
        header.api_key, header.version, header.correlation_id, header.client_id, again
    )
    assert encoded == raw


@given(KEYS, ENDPOINTS, IDS, st.booleans(), CLUSTERS)
def test_add_and_remove(
    key: ReplicaKey, endpoints: tuple[Endpoint, ...], ms: int, committed: bool, cluster: str | None
) -> None:
    add = core.AddRaftVoterRequest(key, endpoints, ms, committed, cluster)
    message = through_bytes(translate.request_to_wire(add, OURS), 1)
    assert membership.add_from_wire(message, OURS) == add
    remove = core.RemoveRaftVoterRequest(key, cluster)
    message = through_bytes(translate.request_to_wire(remove, OURS), 0)
    assert membership.remove_from_wire(message, OURS) == remove


@given(KEYS, ENDPOINTS, IDS, VERSIONS, VERSIONS, CLUSTERS)
def test_update(
    key: ReplicaKey, endpoints: tuple[Endpoint, ...], epoch: int, low: int, high: int,
    cluster: str | None,
) -> None:  # fmt: skip
    update = core.UpdateRaftVoterRequest(epoch, key, endpoints, low, high, cluster)
    message = through_bytes(translate.request_to_wire(update, OURS), 0)
    assert membership.update_from_wire(message, OURS) == update


@given(st.integers(0, 2**31 - 1), CLUSTERS)
def test_read_barriers(timeout_ms: int, cluster: str | None) -> None:
    request = core.ReadBarrierRequest(timeout_ms, cluster)
    for version in range(3):
        message = through_bytes(translate.request_to_wire(request, OURS), version)
        assert message.read_barrier.from_replica
        assert membership.barrier_from_wire(message) == request
    assert membership.barrier_from_wire(wire.DescribeQuorumRequest()) is None


@given(CODES, MESSAGES, IDS, IDS, st.integers(0, 2**63 - 1))
def test_answers_to_replicas(
    error: ErrorCode, message: str | None, leader: int, epoch: int, offset: int
) -> None:
    def there_and_back(api_key: ApiKey, response: Any) -> Any:
        version = SERVED[api_key].last
        body = translate.response_to_wire(api_key, response, OURS, version)
        return translate.response_from_wire(api_key, through_bytes(body, version), OURS)

    added = core.AddRaftVoterResponse(error, message)
    assert there_and_back(ApiKey.ADD_RAFT_VOTER, added) == added
    removed = core.RemoveRaftVoterResponse(error, message)
    assert there_and_back(ApiKey.REMOVE_RAFT_VOTER, removed) == removed
    place = (Endpoint("CONTROLLER", "h", 9),)
    updated = core.UpdateRaftVoterResponse(ErrorCode.NONE, error, leader, epoch, place)
    back = there_and_back(ApiKey.UPDATE_RAFT_VOTER, updated)
    assert back == (updated if epoch >= 0 else core.UpdateRaftVoterResponse(error=error))
    passed = core.ReadBarrierResponse(error, offset if error is ErrorCode.NONE else -1)
    assert there_and_back(ApiKey.DESCRIBE_QUORUM, passed) == passed


def test_a_leader_that_knows_no_barrier_cannot_tell() -> None:
    silent = membership.passed_from_wire(wire.DescribeQuorumResponse(), OURS)
    assert silent.error is ErrorCode.UNSUPPORTED_VERSION


@given(st.lists(IDS, max_size=5), st.lists(IDS, max_size=5))
def test_what_is_under_way(voters: list[int], target: list[int]) -> None:
    listed = core.ListPartitionReassignmentsResponse(
        voter_ids=tuple(set(voters)), target=tuple(set(target))
    )
    key = ApiKey.LIST_PARTITION_REASSIGNMENTS
    (topic,) = through_bytes(translate.response_to_wire(key, listed, OURS, 0), 0).topics
    (part,) = topic.partitions
    after = (set(part.replicas) | set(part.adding_replicas)) - set(part.removing_replicas)
    assert (topic.name, part.partition_index) == (METADATA_TOPIC, 0)
    assert set(part.replicas) == set(voters) and after == set(target)
    none = core.ListPartitionReassignmentsResponse(voter_ids=(1,))
    assert translate.response_to_wire(key, none, OURS, 0).topics == []


def target_message(name: str = METADATA_TOPIC, index: int = 0, times: int = 1) -> Any:
    kind = wire.AlterPartitionReassignmentsRequest
    topic = kind.Topic(name, [kind.Partition(index, [4, 5])])
    return kind(timeout_ms=7, topics=[topic] * times)


def test_targets() -> None:
    found = membership.target_from_wire(through_bytes(target_message(), 1), OURS)
    assert found == core.AlterPartitionReassignmentsRequest((4, 5), 7)
    message = target_message()
    message.topics[0].partitions[0].replicas = None
    found = membership.target_from_wire(through_bytes(message, 0), OURS)
    assert found == core.AlterPartitionReassignmentsRequest(None, 7)
    for other in (target_message("t"), target_message(index=1), target_message(times=2)):
        assert membership.target_from_wire(other, OURS) is None
    key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
    refused = core.AlterPartitionReassignmentsResponse(ErrorCode.NOT_CONTROLLER, "no")
    assert translate.response_to_wire(key, refused, OURS, 1).error_code == ErrorCode.NOT_CONTROLLER
    refused = core.AlterPartitionReassignmentsResponse(ErrorCode.REQUEST_TIMED_OUT, "later")
    answer = through_bytes(translate.response_to_wire(key, refused, OURS, 1), 1)
    (part,) = answer.responses[0].partitions
    assert (answer.error_code, part.error_code, part.error_message) == (0, 7, "later")


@pytest.mark.parametrize(
    ("version", "kind", "feature", "understood"),
    [
        (2, 1, "kraft.version", True),
        (1, 1, "kraft.version", True),
        (0, 1, "kraft.version", True),
        (2, 2, "kraft.version", False),
        (2, 3, "kraft.version", False),
        (2, 1, "metadata.version", False),
    ],
)
def test_upgrades(version: int, kind: int, feature: str, understood: bool) -> None:
    message = wire.UpdateFeaturesRequest(timeout_ms=9, validate_only=version > 0)
    update = wire.UpdateFeaturesRequest.FeatureUpdate(feature, 1)
    update.upgrade_type = kind if version else 1
    message.feature_updates = [update]
    found = membership.features_from_wire(through_bytes(message, version), version)
    expected = core.UpdateFeaturesRequest(1, 9, version > 0)
    assert found == (expected if understood else None)
    message.feature_updates = []
    assert membership.features_from_wire(message, version) is None


def test_the_answer_to_an_upgrade_is_kafkas() -> None:
    """``golden/``: v1 names each feature, v2 only the whole."""
    done = core.UpdateFeaturesResponse()
    key = ApiKey.UPDATE_FEATURES
    (result,) = translate.response_to_wire(key, done, OURS, 1).results
    assert (result.feature, result.error_code, result.error_message) == ("kraft.version", 0, "NONE")
    assert translate.response_to_wire(key, done, OURS, 2).results == []


@given(ENDPOINTS, st.lists(VERSIONS, max_size=2), st.integers(13, 18))
def test_observers_tell_where_they_are(
    endpoints: tuple[Endpoint, ...], versions: list[int], version: int
) -> None:
    request = core.FetchRequest(3, ReplicaKey(4, bytes(range(16))), 5, 2)
    request.observer_endpoints, request.observer_kraft_versions = endpoints, tuple(versions)
    fields = translate.fetch_to_wire(request, OURS)
    raw = encode_request(version, 1, "c", fields)[4:]
    header = frame.decode_request_header(raw)
    message = decode_request(version, raw, header.body_start)
    back = translate.fetch_from_wire(message, OURS)
    assert back.observer_endpoints == endpoints
    assert back.observer_kraft_versions == tuple(versions)
