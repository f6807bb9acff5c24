"""What clients are told by the listener that they came by (S2), and how many may come (S10)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.errors import ErrorCode
from kraftfast.node.node_config import ListenerConfig
from kraftfast.node.requests.describe_requests import metadata
from kraftfast.node.translation.wire_values import Partition
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, Endpoint, Voter, VoterSet
from kraftfast.wire import frame
from kraftfast.wire.messages import (
    ApiKey,
    ApiVersionsRequest,
    DescribeClusterRequest,
    FindCoordinatorRequest,
    MetadataRequest,
)
from tests.node.inside import Inside

CLIENT = Endpoint("CLIENT", "clients.example", 19092)
LISTENER_ERRORS = {5: ErrorCode.LEADER_NOT_AVAILABLE, 6: ErrorCode.LISTENER_NOT_FOUND}
CONTROLLER = Endpoint("CONTROLLER", "127.0.0.1", 9)  # as the static voters have it


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Inside]:
    listeners = [
        ListenerConfig("CLIENT", "127.0.0.1", 0, CLIENT.host, CLIENT.port),
        ListenerConfig("CONTROLLER", "127.0.0.1", 0, "127.0.0.1", 9),
    ]
    inside = Inside(tmp_path, listeners=listeners, connections_per_address_max=3)
    yield inside
    inside.close()


def ask(replica: Inside, listener: str, version: int, body: Any, software: str = "") -> Any:
    """The answer to a request that comes by this listener."""
    with closing(replica.connect(listener)) as sock:
        if software:
            hello = frame.encode_request(
                ApiKey.API_VERSIONS, 3, 1, "c", ApiVersionsRequest(software, "1")
            )
            assert replica.exchange(sock, hello)
        key = body.API_KEY
        data = replica.exchange(sock, frame.encode_request(key, version, 2, "c", body))
        assert data is not None
        return frame.decode_response(key, version, data)[1]


def brokers(answer: Any) -> list[tuple[str, int]]:
    return [(each.host, each.port) for each in answer.brokers]


@pytest.mark.parametrize("at", [CLIENT, CONTROLLER])
def test_clients_are_told_the_listener_that_they_came_by(replica: Inside, at: Endpoint) -> None:
    answer = ask(replica, at.name, 12, MetadataRequest(topics=None))
    assert brokers(answer) == [(at.host, at.port)]
    assert answer.topics[0].partitions[0].leader_id == 1
    assert brokers(ask(replica, at.name, 0, DescribeClusterRequest())) == [(at.host, at.port)]


def test_others_learn_of_all_listeners_by_the_voter_set(replica: Inside) -> None:
    """The controller listener comes first: it is how replicas reach each other."""
    assert replica.node.config.endpoints == (CONTROLLER, CLIENT)


@pytest.mark.parametrize("version", [5, 6])
def test_a_leader_without_the_listener_is_none_for_its_clients(version: int) -> None:
    voters = VoterSet(
        Voter(id, bytes(16), (Endpoint(name, "h", id),), 0, 1)
        for id, name in ((1, "CLIENT"), (2, "CONTROLLER"))
    )
    node = SimpleNamespace(
        voters=voters,
        config=SimpleNamespace(node_id=3),
        core=SimpleNamespace(role="follower", leader_id=2, epoch=1, kraft_version=1),
        partition=Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER"),
        cluster_id="c",
    )
    for listener, leader, error in (
        ("CONTROLLER", 2, ErrorCode.NONE),
        ("CLIENT", -1, LISTENER_ERRORS[version]),
    ):
        answer = metadata(node, MetadataRequest(topics=None), version, listener)
        found = answer.topics[0].partitions[0]
        assert (found.leader_id, found.error_code) == (leader, error)
        assert brokers(answer) == [("h", 1 if listener == "CLIENT" else 2)]
    for kraft_version, listener in ((1, "OBSERVER"), (0, "CLIENT")):  # the only ways to the leader
        node.core.kraft_version = kraft_version
        answer = metadata(node, MetadataRequest(topics=None), version, listener)
        assert brokers(answer) == [("h", 1), ("h", 2)]
        assert answer.topics[0].partitions[0].leader_id == 2


@pytest.mark.parametrize("version", [0, 2, 4, 6])
@pytest.mark.parametrize("key_type", [0, 1])
def test_nobody_waits_for_a_coordinator(replica: Inside, version: int, key_type: int) -> None:
    """An error that no client retries; librdkafka, which reports it to consumers that only assign
    partitions, learns that this server serves no groups."""
    if key_type and not version:
        return  # this version has only groups
    asked = FindCoordinatorRequest(key_type=key_type, **(
        {"coordinator_keys": ["g"]} if version >= 4 else {"key": "g"}
    ))  # fmt: skip
    for software in ("", "kafka-python", "librdkafka", "confluent-kafka-python"):
        answer = ask(replica, "CLIENT", version, asked, software)
        found = answer.coordinators[0] if version >= 4 else answer
        if software in ("librdkafka", "confluent-kafka-python") and key_type == 0:
            assert (found.error_code, found.node_id, found.port) == (0, 1, CLIENT.port)
        else:
            refused = ErrorCode.UNSUPPORTED_VERSION
            if key_type:  # the one at which librdkafka's init_transactions() ends
                refused = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert (found.error_code, found.node_id) == (refused, -1)


def test_a_connection_too_many_is_refused_and_told(replica: Inside) -> None:
    inside = [replica.connect() for _ in range(3)]
    replica.until(lambda: len(replica.loop.sockets.sessions) == 3)
    late = replica.connect("CLIENT")
    replica.until(lambda: replica.lines)
    assert replica.lines == [
        "a connection from 127.0.0.1 is refused: max.connections.per.ip=3 are open"
    ]
    late.setblocking(True)
    assert late.recv(1) == b""
    for sock in (*inside, late):
        sock.close()
    replica.until(lambda: not replica.loop.sockets.sessions)
    assert ask(replica, "CLIENT", 12, MetadataRequest(topics=None)).brokers
