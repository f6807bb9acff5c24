"""Nothing that a stranger sends ends a process, moves an epoch or holds memory (S6, S7, S10).

What Kafka does with the same is in the recorded hostile scenarios.
"""

from __future__ import annotations

import base64
import json
import os
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraftfast import limits
from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode, PeerGone
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.link.memory_file import send_with_fds
from kraftfast.link.ring_link import SOCKET_NAME, OwnDoorbell, RingOffer
from kraftfast.link.unix_socket import connect
from kraftfast.node.tcp.sockets import SERVED_HERE
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC, Endpoint, ReplicaKey, uuid_text
from kraftfast.wire import frame
from kraftfast.wire.messages import (
    REQUESTS,
    ApiKey,
    ApiVersionsRequest,
    DescribeQuorumRequest,
    MetadataRequest,
)
from kraftfast.wire.versions import SERVED
from tests.node.kit import TIMEOUT_S, Stranger

pytestmark = pytest.mark.processes
NOBODY = ReplicaKey(99, bytes(range(16)))


def followers(quorum: LocalQuorum) -> list[int]:
    leader = quorum.wait_leader(TIMEOUT_S)
    return [id for id in quorum.directories if id != leader]


def rss_bytes(quorum: LocalQuorum, id: int) -> int:
    return int(quorum.status(id)["rss_bytes"])


# --- frames ---------------------------------------------------------------------------------------


def a_request(api_key: int, version: int, body: bytes = b"") -> bytes:
    data = struct.pack(">hhih", api_key, version, 1, -1) + b"\0" + body
    return struct.pack(">i", len(data)) + data


MALFORMED: dict[str, bytes] = {
    "a negative length": b"\xff\xff\xff\xff",
    "the smallest length": b"\x80\0\0\0",
    "the largest length": b"\x7f\xff\xff\xff" + bytes(100),
    "above the cap before a greeting": struct.pack(">i", 8 * 1024 + 1) + bytes(100),
    "no header": b"\0\0\0\0",
    "half a header": b"\0\0\0\4\0\x12\0\3",
    "text": b"GET / HTTP/1.1\r\nHost: here\r\n\r\n",
    "TLS": bytes.fromhex("16030100c8010000c40303") + bytes(200),
    "an unknown API": a_request(999, 0),
    "an API that is not served": a_request(ApiKey.FETCH_SNAPSHOT, 1, bytes(50)),
    "a version that is not served": a_request(ApiKey.VOTE, 99, bytes(50)),
    "a negative version": a_request(ApiKey.FETCH, -1, bytes(50)),
    "a body of nothing": a_request(ApiKey.VOTE, 2),
    "a body of ones": a_request(ApiKey.BEGIN_QUORUM_EPOCH, 1, b"\xff" * 100),
    "a fetch of ones": a_request(ApiKey.FETCH, 17, b"\xff" * 100),
    "a produce of ones": a_request(ApiKey.PRODUCE, 11, b"\xff" * 100),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_what_does_not_decode_is_hung_up_on(unmoved: LocalQuorum, name: str) -> None:
    leader = unmoved.wait_leader(TIMEOUT_S)
    with Stranger(unmoved, leader) as stranger:
        stranger.send(MALFORMED[name])
        assert stranger.receive() is None


@pytest.mark.parametrize("size", [limits.FRAME_BYTES_MAX + 1, 2**31 - 1, -1])
def test_an_oversized_length_after_the_greeting(unmoved: LocalQuorum, size: int) -> None:
    """Nothing is allocated for a length that is only claimed."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    before = rss_bytes(unmoved, leader)
    with Stranger(unmoved, leader) as stranger:
        stranger.greet()
        stranger.send(struct.pack(">i", size) + bytes(1000))
        assert stranger.receive() is None
    assert rss_bytes(unmoved, leader) < before + (16 << 20)


def test_a_length_that_is_claimed_and_never_sent(unmoved: LocalQuorum) -> None:
    """Each of a hundred that claim the largest frame gets a turn's worth, not what it claims."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    before = rss_bytes(unmoved, leader)
    strangers = [Stranger(unmoved, leader) for _ in range(100)]
    for stranger in strangers:
        stranger.greet()
        stranger.send(struct.pack(">i", limits.FRAME_BYTES_MAX) + bytes(1000))
    assert rss_bytes(unmoved, leader) < before + 100 * 2 * limits.TURN_BYTES_MAX
    for stranger in strangers:
        stranger.sock.close()


def test_a_future_greeting_is_answered_in_the_first_version(unmoved: LocalQuorum) -> None:
    with Stranger(unmoved, 1) as stranger:
        stranger.send(a_request(ApiKey.API_VERSIONS, 99, bytes(10)))
        answer = stranger.receive()
        assert answer is not None
        assert answer[4:6] == struct.pack(">h", ErrorCode.UNSUPPORTED_VERSION)
        stranger.greet()


EVERY_VERSION = [
    (api_key, version)
    for api_key in sorted(SERVED_HERE)
    for version in range(SERVED[api_key].first, SERVED[api_key].last + 1)
]


@pytest.mark.parametrize(("api_key", "version"), EVERY_VERSION)
def test_every_version_is_answered(unmoved: LocalQuorum, api_key: int, version: int) -> None:
    """Also where the answer has more to say than an old version has fields for."""
    for id in unmoved.directories:
        body = REQUESTS[api_key]()
        if api_key == ApiKey.API_VERSIONS:
            body = ApiVersionsRequest("stranger", "1") if version >= 3 else body
        elif api_key == ApiKey.PRODUCE:
            body.acks = -1  # with 0 there is no answer
        elif hasattr(body, "topics") and hasattr(type(body), "Topic"):
            topic = type(body).Topic()
            for field in ("topic_name", "topic", "name"):
                if hasattr(topic, field):
                    setattr(topic, field, METADATA_TOPIC)
            if hasattr(topic, "partitions"):
                topic.partitions = [type(body).Partition()]
            body.topics = [topic]
        with Stranger(unmoved, id) as stranger:
            stranger.send(frame.encode_request(api_key, version, 5, "stranger", body))
            answer = stranger.receive()
            assert answer is not None and answer[:4] == struct.pack(">i", 5)
            frame.decode_response(api_key, version, answer)


@pytest.mark.parametrize("version", [10, 11, 12])
@pytest.mark.parametrize("topic_id", [bytes(range(16)), bytes(16)], ids=["unknown id", "no id"])
def test_a_topic_without_a_name(unmoved: LocalQuorum, version: int, topic_id: bytes) -> None:
    """Kafka refuses it below version 12, where the answer has no room for a null name."""
    kind = MetadataRequest
    body = kind(topics=[kind.Topic(topic_id=topic_id, name=None)])
    for id in unmoved.directories:
        with Stranger(unmoved, id) as stranger:
            stranger.send(frame.encode_request(ApiKey.METADATA, version, 6, "stranger", body))
            data = stranger.receive()
            assert data is not None
            topic = frame.decode_response(ApiKey.METADATA, version, data)[1].topics[0]
            assert topic.topic_id == topic_id and not topic.name
            refusal = ErrorCode.UNKNOWN_TOPIC_ID if version >= 12 else ErrorCode.INVALID_REQUEST
            assert topic.error_code == refusal


def test_a_name_that_no_topic_can_have(unmoved: LocalQuorum) -> None:
    """Clients fail at once; for a topic that may be made yet they wait, Java's a minute."""
    kind = MetadataRequest
    names = ["", ".", "..", "a topic", "naïve", "x" * 250, "a/b", "x" * 249, "...", "fine_-.0"]
    body = kind(topics=[kind.Topic(name=name) for name in names])
    for id in unmoved.directories:
        with Stranger(unmoved, id) as stranger:
            stranger.send(frame.encode_request(ApiKey.METADATA, 9, 6, "stranger", body))
            data = stranger.receive()
            assert data is not None
            topics = frame.decode_response(ApiKey.METADATA, 9, data)[1].topics
            assert [topic.name for topic in topics] == names
            assert [topic.error_code for topic in topics] == (
                7 * [ErrorCode.INVALID_TOPIC_EXCEPTION] + 3 * [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
            )


def test_a_topic_that_is_named_often_is_described_once(unmoved: LocalQuorum) -> None:
    """As in Kafka: a small request would have an answer twenty times as large."""
    kind = MetadataRequest
    for names in (["other", METADATA_TOPIC, "other"], [METADATA_TOPIC] * 1000):
        body = kind(topics=[kind.Topic(name=name) for name in names])
        with Stranger(unmoved, unmoved.wait_leader(TIMEOUT_S)) as stranger:
            stranger.send(frame.encode_request(ApiKey.METADATA, 9, 6, "stranger", body))
            data = stranger.receive()
            assert data is not None
            topics = frame.decode_response(ApiKey.METADATA, 9, data)[1].topics
            assert [topic.name for topic in topics] == list(dict.fromkeys(names))


# --- messages of the protocol ---------------------------------------------------------------------


def a_vote(cluster_id: str, epoch: int) -> core.VoteRequest:
    return core.VoteRequest(epoch, NOBODY, epoch - 1, 1 << 40, cluster_id=cluster_id)


def a_begin(cluster_id: str, epoch: int) -> core.BeginQuorumEpochRequest:
    endpoints = (Endpoint("CONTROLLER", "127.0.0.1", 1),)
    return core.BeginQuorumEpochRequest(epoch, NOBODY.id, endpoints, cluster_id=cluster_id)


def an_end(cluster_id: str, epoch: int) -> core.EndQuorumEpochRequest:
    return core.EndQuorumEpochRequest(epoch, NOBODY.id, (NOBODY,), cluster_id=cluster_id)


def a_fetch(cluster_id: str, epoch: int) -> core.FetchRequest:
    return core.FetchRequest(epoch, NOBODY, 0, 0, cluster_id=cluster_id)


@pytest.mark.parametrize("make", [a_vote, a_begin, an_end, a_fetch], ids=lambda make: make.__name__)
def test_another_cluster_is_refused(
    unmoved: LocalQuorum, make: Callable[[str, int], object]
) -> None:
    leader = unmoved.wait_leader(TIMEOUT_S)
    epoch = unmoved.status(leader)["epoch"]
    for id in unmoved.directories:
        with Stranger(unmoved, id) as stranger:
            stranger.greet()
            answer = stranger.ask(make("AAAAAAAAAAAAAAAAAAAAAA", epoch + 10))
            assert answer.error == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_a_second_leader_of_the_same_epoch_is_refused(unmoved: LocalQuorum) -> None:
    """Kafka's process dies of it."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    epoch, cluster_id = unmoved.status(leader)["epoch"], unmoved.description.cluster_id
    for id in unmoved.directories:
        for other in [NOBODY.id, *followers(unmoved)]:
            if other == id:
                continue
            with Stranger(unmoved, id) as stranger:
                stranger.greet()
                request = a_begin(cluster_id, epoch)
                request.leader_id = other
                answer = stranger.ask(request)
                assert answer.partition_error == ErrorCode.INVALID_REQUEST, (id, other)
                assert answer.leader_id == leader and answer.leader_epoch == epoch


def test_votes_of_a_stranger_far_ahead_are_refused(unmoved: LocalQuorum) -> None:
    """With a log that nobody would vote for, or beyond the bound; a pre-vote at any epoch."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    epoch, cluster_id = unmoved.status(leader)["epoch"], unmoved.description.cluster_id
    far = epoch + limits.EPOCH_JUMP_MAX + 1
    for id in unmoved.directories:
        with Stranger(unmoved, id) as stranger:
            stranger.greet()
            short = core.VoteRequest(epoch + 10, NOBODY, 0, 0, cluster_id=cluster_id)
            answer = stranger.ask(short)
            assert not answer.vote_granted  # the answer is of the sender's epoch
            for ahead in range(20, 1000, 20):  # a long log helps no more, nor many of them
                assert not stranger.ask(a_vote(cluster_id, epoch + ahead)).vote_granted
            for request in (a_vote(cluster_id, far), a_begin(cluster_id, far)):
                assert stranger.ask(request).partition_error == ErrorCode.INVALID_REQUEST
            ask = core.VoteRequest(
                epoch + 10, NOBODY, epoch + 9, 1 << 40, True, cluster_id=cluster_id
            )
            assert not stranger.ask(ask).vote_granted


def test_what_kafka_was_hurt_by(unmoved: LocalQuorum, golden: Path) -> None:
    """The recorded probes, byte for byte, and the same addressed to this quorum."""
    manifest = json.loads((golden / "frames" / "manifest.json").read_text())
    probes = [
        each for each in manifest
        if each["scenario"].startswith("hostile") and each["direction"] == "request"
        and str(each["request_by"]).startswith("probe")
    ]  # fmt: skip
    assert len(probes) >= 8
    leader = unmoved.wait_leader(TIMEOUT_S)
    epoch, cluster_id = unmoved.status(leader)["epoch"], unmoved.description.cluster_id
    for probe in probes:
        raw = (golden / "frames" / probe["file"]).read_bytes()
        for id in unmoved.directories:
            with Stranger(unmoved, id) as stranger:
                stranger.greet()
                stranger.send(raw)
                assert stranger.receive() is not None, probe["what"]
        header, message = frame.decode_request(raw[4:])
        message.cluster_id = cluster_id
        for topic in message.topics:
            for partition in topic.partitions:
                name = "replica_epoch" if hasattr(partition, "replica_epoch") else "leader_epoch"
                setattr(partition, name, epoch)
                if hasattr(partition, "leader_id"):
                    partition.leader_id = NOBODY.id  # in the leader's name it would be obeyed
                if hasattr(partition, "last_offset"):
                    partition.last_offset_epoch, partition.last_offset = 0, 0
        again = frame.encode_request(header.api_key, header.version, 9, "stranger", message)
        for id in unmoved.directories:
            with Stranger(unmoved, id) as stranger:
                stranger.greet()
                stranger.send(again)
                assert stranger.receive() is not None, probe["what"]


# --- the local socket -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b'{"kind": 1}', b"\xff" * 1000, b'{"kind":"query"}']
)
def test_hellos_that_make_no_sense(unmoved: LocalQuorum, data: bytes) -> None:
    path = os.path.join(unmoved.directories[1], SOCKET_NAME)
    with connect(path, TIMEOUT_S) as sock:
        send_with_fds(sock, data, [])
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass


def frame_of(api_key: int, version: int, body: bytes = b"") -> str:
    return base64.b64encode(a_request(api_key, version, body)[4:]).decode()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "no base64!",
        frame_of(ApiKey.DESCRIBE_QUORUM, 2)[:8],
        frame_of(ApiKey.DESCRIBE_QUORUM, 99),
        frame_of(ApiKey.DESCRIBE_QUORUM, 2, bytes(100)),
        frame_of(ApiKey.ADD_RAFT_VOTER, 1),
        frame_of(ApiKey.FETCH, 17, bytes(60)),
        frame_of(ApiKey.VOTE, 2, bytes(60)),
        frame_of(ApiKey.PRODUCE, 9, bytes(60)),
        frame_of(999, 0),
    ],
)
def test_local_requests_that_make_no_sense(unmoved: LocalQuorum, text: str) -> None:
    """Or are not for that door: hung up on, and nothing else happens."""
    path = os.path.join(unmoved.directories[1], SOCKET_NAME)
    with connect(path, TIMEOUT_S) as sock:
        send_with_fds(sock, encode_hello(Hello(kind="request", args=text)), [])
        assert sock.recv(1 << 16) == b""


def test_a_barrier_of_another_cluster(unmoved: LocalQuorum) -> None:
    """Neither for a replica that asks, nor for a client."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    kind = DescribeQuorumRequest
    with Stranger(unmoved, leader) as stranger:
        stranger.greet()
        for from_replica in (True, False):
            for cluster, error in (
                ("another", ErrorCode.INCONSISTENT_CLUSTER_ID),
                (unmoved.description.cluster_id, ErrorCode.NONE),
                (None, ErrorCode.NONE),
            ):
                body = kind(read_barrier=kind.ReadBarrier(10_000, from_replica, cluster))
                api_key = ApiKey.DESCRIBE_QUORUM
                stranger.send(frame.encode_request(api_key, 2, 7, "stranger", body))
                data = stranger.receive()
                assert data is not None
                answer = frame.decode_response(api_key, 2, data)[1]
                assert answer.error_code == error
                assert (answer.barrier_offset >= 0) == (error is ErrorCode.NONE)


@pytest.mark.parametrize("target", [-1, 1, 2, 3])
def test_a_description_moves_nothing(unmoved: LocalQuorum, target: int) -> None:
    """Who may read the quorum's state must not hand its leadership over by that."""
    leader = unmoved.wait_leader(TIMEOUT_S)
    kind = DescribeQuorumRequest
    body = kind(topics=[kind.Topic(METADATA_TOPIC, [kind.Partition(0)])])
    data = frame.encode_request(ApiKey.DESCRIBE_QUORUM, 2, 7, "stranger", body)
    tagged = data[4:-1] + b"\1" + b"\x97\x4e" + b"\4" + struct.pack(">i", target)
    with Stranger(unmoved, leader) as stranger:
        stranger.greet()
        stranger.send(struct.pack(">i", len(tagged)) + tagged)
        answer = stranger.receive()
        assert answer is not None
        found = frame.decode_response(ApiKey.DESCRIBE_QUORUM, 2, answer)[1]
        assert found.topics[0].partitions[0].leader_id == leader


def test_a_greeting_that_is_for_somebody_else(unmoved: LocalQuorum) -> None:
    """KIP-1242: whoever says whom he means is told if it is another."""
    cluster_id = unmoved.description.cluster_id
    for cluster, node_id, error in (
        (cluster_id, 1, ErrorCode.NONE),
        (cluster_id, 2, ErrorCode.REBOOTSTRAP_REQUIRED),
        ("another", 1, ErrorCode.REBOOTSTRAP_REQUIRED),
    ):
        with Stranger(unmoved, 1) as stranger:
            body = ApiVersionsRequest("stranger", "1", cluster, node_id)
            stranger.send(frame.encode_request(ApiKey.API_VERSIONS, 5, 1, "stranger", body))
            data = stranger.receive()
            assert data is not None
            assert frame.decode_response(ApiKey.API_VERSIONS, 5, data)[1].error_code == error


def peer(**fields: object) -> Hello:
    given: dict[str, Any] = {"kind": "peer", "node_id": 2, "durability": "majority", **fields}
    return Hello(**given)


def test_rings_with_replicas_that_are_none_of_ours(tmp_path: Path) -> None:
    """Another cluster, another durability, from nowhere: each is told why (D3, R5)."""
    with LocalQuorum(tmp_path / "q", 3, segment_bytes=8 << 20, stride_bytes=2 << 20) as quorum:
        ours, doorbell = quorum.description.cluster_id, OwnDoorbell()
        identity = {"directory_id": uuid_text(bytes(range(16)))}
        refusals = {
            peer(cluster_id="another"): f"cluster id another, not {ours}",
            peer(cluster_id=ours, durability="memory"): "durability memory, not majority",
            peer(cluster_id=ours, node_id=9, **identity): "does not say where it lives",
            peer(cluster_id=ours, node_id=9, directory="q/9", **identity): "replica 9 in q/9",
            peer(cluster_id=ours, node_id=1, directory="/q/1", **identity): "does not say where",
            peer(cluster_id=ours, node_id=-2, directory="/q/9", **identity): "replica -2 in",
            peer(cluster_id=ours, directory_id="no id"): "no id",
        }
        for hello, reason in refusals.items():
            sock = connect(os.path.join(quorum.directories[1], SOCKET_NAME), TIMEOUT_S)
            offer = RingOffer(sock, doorbell, hello, 1 << 16, 1 << 16)
            with pytest.raises(PeerGone, match=reason):
                offer.finish(*offer.receive())
            sock.close()
        doorbell.close()
        deadline = time.monotonic() + TIMEOUT_S
        while quorum.status(1)["links"] != [2, 3]:  # a leader needs only one of them
            assert time.monotonic() < deadline, "the links between replicas do not stand"
            time.sleep(0.05)
