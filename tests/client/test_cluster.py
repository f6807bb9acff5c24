"""Addresses, greetings, and who leads: against servers that say what they are told to."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import kraftfast
from kraftfast.client.cluster import Cluster, parse_addresses
from kraftfast.client.connection import Connection
from kraftfast.client.producer import own_threads
from kraftfast.client.producer.outcomes import Outcomes
from kraftfast.client.producer.producer import Producer
from kraftfast.client.remote_connector import RemoteConnector, connect_producer
from kraftfast.errors import (
    ErrorCode,
    InconsistentClusterId,
    InvalidOption,
    KraftfastError,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    PeerGone,
    RequestRefused,
    TimedOut,
    UnsupportedVersion,
)
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, MetadataRequest
from kraftfast.wire.versions import SERVED, Versions, api_versions_response
from tests.client.conftest import SMALL
from tests.client.kit import ScriptedServer, wait_until


@pytest.fixture
def servers() -> Iterator[list[ScriptedServer]]:
    servers = [ScriptedServer(), ScriptedServer()]
    for server in servers:
        server.leader = (2, servers[1].address)
    yield servers
    for server in servers:
        server.close()


def greeting(number: int) -> bytes:
    """A sound answer to the request of that number."""
    version = SERVED[ApiKey.API_VERSIONS].last
    answer = api_versions_response(version)
    return frame.encode_response(ApiKey.API_VERSIONS, version, number, answer)


def soon(seconds: float = 10.0) -> float:
    return time.monotonic() + seconds


def silent_address() -> tuple[str, int]:
    """An address at which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address: tuple[str, int] = sock.getsockname()
    return address


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        (" a:1 , b:2", [("a", 1), ("b", 2)]),
        ("[::1]:65535", [("::1", 65535)]),
        (["a:1", ("b", 2)], [("a", 1), ("b", 2)]),
    ],
)
def test_addresses(text: str, expected: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["", "a", "a:", ":1", "a:0", "a:65536", "a:-1", "a:x", "a:1,", [], [("a", "x")]]
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidOption):
        parse_addresses(text)


def test_the_leader_is_found_by_asking_anybody(servers: list[ScriptedServer]) -> None:
    cluster = Cluster([servers[0].address], METADATA_TOPIC)
    connection, leader = cluster.find_leader(soon())
    assert (leader.node_id, leader.address, leader.epoch) == (2, servers[1].address, 1)
    assert connection.address == servers[1].address and cluster.cluster_id == "a-cluster"
    assert cluster.addresses()[0] == servers[1].address, "who led is asked first the next time"
    connection.close()


@pytest.mark.parametrize("timeout", [0.5, 1.5])
@pytest.mark.parametrize(
    "said", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\0\0\0\0", b"\0\0\0\5hello"]
)
def test_the_port_of_another_service_is_called_so(said: bytes, timeout: float) -> None:
    """Also where the last attempt had too little time to see it."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = listener.accept()
                sock.settimeout(10)
                kept.append(sock)
                sock.recv(1000)
                time.sleep(0.02)
                sock.sendall(said)

    kept = list[socket.socket]()
    with socket.create_server(("127.0.0.1", 0)) as listener, contextlib.ExitStack() as undo:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        undo.callback(listener.shutdown, socket.SHUT_RDWR)
        with pytest.raises(NoQuorum) as caught:
            kraftfast.connect([listener.getsockname()[:2]], timeout=timeout)
        text = str(caught.value)
        assert f"127.0.0.1:{listener.getsockname()[1]} does not speak Kafka's protocol" in text
    thread.join(10)
    for sock in kept:
        sock.close()


def test_a_server_that_hangs_now_is_not_called_what_it_was(servers: list[ScriptedServer]) -> None:
    cluster = Cluster([servers[0].address], METADATA_TOPIC)
    servers[0].greeting_max = -1
    for _ in range(2):
        with pytest.raises(NoQuorum, match="no common version"):
            cluster.find_leader(soon())
    servers[0].mute = True
    with pytest.raises(NoQuorum, match="no common version"):
        cluster.find_leader(soon(0.05))
    with pytest.raises(NoQuorum, match="does not answer"):
        cluster.find_leader(soon())


def test_dead_and_silent_servers_are_passed_over_and_asked_last(
    servers: list[ScriptedServer],
) -> None:
    servers[0].mute = True
    dead = silent_address()
    cluster = Cluster([dead, servers[0].address, servers[1].address], METADATA_TOPIC)
    began = time.monotonic()
    cluster.find_leader(soon())[0].close()
    assert 0.5 < time.monotonic() - began < 5.0
    began = time.monotonic()
    cluster.find_leader(soon())[0].close()
    assert time.monotonic() - began < 0.9
    assert cluster.addresses()[1:] == [dead, servers[0].address], "who failed last is asked last"


def test_nobody_leads_and_nobody_answers_are_told_apart(servers: list[ScriptedServer]) -> None:
    for server in servers:
        server.leader = (-1, ("", 0))
    with pytest.raises(NotLeader):
        Cluster([servers[0].address], METADATA_TOPIC).find_leader(soon())
    with pytest.raises(NoQuorum):
        Cluster([silent_address(), silent_address()], METADATA_TOPIC).find_leader(soon())
    with pytest.raises(NoQuorum):
        connect_producer([silent_address()], METADATA_TOPIC, Outcomes(), 4096, 8)


def test_a_leader_that_two_servers_see_in_each_other_is_none(servers: list[ScriptedServer]) -> None:
    servers[0].leader, servers[1].leader = (2, servers[1].address), (1, servers[0].address)
    with pytest.raises(NotLeader):
        Cluster([servers[0].address], METADATA_TOPIC).find_leader(soon())


def test_another_cluster_and_another_topic_are_refused(servers: list[ScriptedServer]) -> None:
    cluster = Cluster([servers[0].address], METADATA_TOPIC)
    servers[1].cluster_id = "another"
    with pytest.raises(InconsistentClusterId):
        cluster.find_leader(soon())
    with pytest.raises(RequestRefused) as caught:
        Cluster([servers[0].address], "other-topic").find_leader(soon())
    assert caught.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_later_leader_is_heard_of(servers: list[ScriptedServer]) -> None:
    cluster = Cluster([silent_address(), servers[0].address], METADATA_TOPIC)
    assert not cluster.later_leader(1, 1, soon())
    servers[0].epoch = 2
    assert cluster.later_leader(1, 1, soon())
    servers[0].leader = (-1, ("", 0))
    assert not cluster.later_leader(1, 1, soon()), "an epoch without a leader is no use"


def test_a_producer_goes_from_a_silent_leader_to_a_later_one(
    servers: list[ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(own_threads, "LEADER_SILENCE_S", 0.3)
    old, new = servers
    for server in servers:
        server.leader = (1, old.address)
    old.on_produce = lambda _number, _request: "hold"
    cluster = Cluster([old.address, new.address], METADATA_TOPIC)
    with Producer(RemoteConnector(cluster, 4096, 8), idempotent=False) as producer:
        lost = producer.append(b"lost")
        wait_until(lambda: old.produced)
        new.leader, new.epoch = (2, new.address), 2
        old.mute = True
        with pytest.raises(KraftfastError):
            producer.wait(lost, timeout=20)
        producer.append_wait(b"found", timeout=20)
    assert new.values() == [[b"found"]]


# --- greetings --------------------------------------------------------------------------------


def test_versions_are_agreed_on() -> None:
    server = ScriptedServer(
        versions={ApiKey.PRODUCE: Versions(3, 7), ApiKey.METADATA: Versions(0, 5)}
    )
    connection = Connection(server.address, soon())
    assert (
        connection.version_of(ApiKey.PRODUCE) == 7 and connection.version_of(ApiKey.PRODUCE, 4) == 4
    )
    with pytest.raises(UnsupportedVersion):
        connection.version_of(ApiKey.FETCH)
    with pytest.raises(NoQuorum, match="does not take"):
        server.versions = {ApiKey.PRODUCE: Versions(0, 2), ApiKey.METADATA: SERVED[ApiKey.METADATA]}
        connect_producer([server.address], METADATA_TOPIC, Outcomes(), 4096, 8)
    server.close()


def test_a_version_that_is_not_common_names_the_server_and_the_api() -> None:
    """A quorum has several servers: which one is to be upgraded?"""
    server = ScriptedServer(versions={ApiKey.METADATA: SERVED[ApiKey.METADATA]})
    place = f"127.0.0.1:{server.address[1]}"
    connection = Connection(server.address, soon())
    with pytest.raises(UnsupportedVersion) as caught:
        connection.version_of(ApiKey.PRODUCE)
    said = f"{place}: no common version of API 0 (PRODUCE): ours {SERVED[ApiKey.PRODUCE]}"
    assert str(caught.value) == f"{said}, theirs none"
    connection.close()
    with pytest.raises(NoQuorum, match=f"{place}: no common version of API 0 "):
        connect_producer([server.address], METADATA_TOPIC, Outcomes(), 4096, 8)
    server.greeting_max = -1
    with pytest.raises(UnsupportedVersion, match=f"^{place}: no common version of API 18 "):
        Connection(server.address, soon())
    server.close()


def test_an_answer_that_does_not_decode_names_the_server(
    servers: list[ScriptedServer], monkeypatch: pytest.MonkeyPatch
) -> None:
    connection = Connection(servers[0].address, soon())

    def decode(*_arguments: object) -> object:
        raise MalformedFrame("a length of -7")

    monkeypatch.setattr(frame, "decode_response", decode)
    with pytest.raises(MalformedFrame) as caught:
        connection.ask(ApiKey.METADATA, MetadataRequest(topics=None), soon())
    assert str(caught.value) == f"127.0.0.1:{servers[0].address[1]}: a length of -7"


def test_a_server_that_does_not_know_our_greeting_is_greeted_again() -> None:
    server = ScriptedServer()
    server.greeting_max = 2
    connection = Connection(server.address, soon())
    assert connection.version_of(ApiKey.PRODUCE) == SERVED[ApiKey.PRODUCE].last
    server.close()


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (b"", PeerGone),
        (greeting(7), MalformedFrame),  # to another request
        (b"\x7f\0\0\0", MalformedFrame),  # a frame above the cap before the greeting (S6)
        (b"\0\0\0\x05\0\0\0\0\0", MalformedFrame),
    ],
)
def test_a_server_that_speaks_something_else(data: bytes, kind: type[KraftfastError]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            sock, _ = listener.accept()
            sock.recv(1 << 16)
            sock.sendall(data)
            sock.close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(kind):
            Connection(listener.getsockname(), soon())
        thread.join()


def test_a_connection_whose_answer_is_late_is_closed() -> None:
    """The next question there would meet that answer."""
    server = ScriptedServer()
    connection = Connection(server.address, soon())
    server.mute = True
    body = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    with pytest.raises(TimedOut):
        connection.ask(ApiKey.METADATA, body, soon(0.1))
    assert connection.fileno() == -1
    server.close()


def test_every_call_ends_in_time() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        began = time.monotonic()
        with pytest.raises(TimedOut):
            Connection(listener.getsockname(), soon(0.3))
        with pytest.raises(TimedOut):
            Connection(listener.getsockname(), soon(-1))
        cluster = Cluster([listener.getsockname()], METADATA_TOPIC)
        with pytest.raises(NoQuorum):
            Producer(RemoteConnector(cluster, 4096, 8), timeout=0.3)
        assert time.monotonic() - began < 5.0


def test_one_connection_too_many_is_told_soon(tmp_path: Path) -> None:
    """A server that refuses connections hangs up on them: all that came waited their whole time."""
    settings = SMALL | {"voters": 1, "transport": "socket", "connections_per_address_max": 3}
    with LocalQuorum(tmp_path / "q", **settings) as quorum:
        elsewhere = kraftfast.connect(list(quorum.addresses.values()))
        admin = elsewhere.admin()
        with contextlib.ExitStack() as crowd:
            for number in range(3):
                producer = crowd.enter_context(quorum.producer(idempotent=False, timeout=1000))
                assert producer.append_wait(b"%d" % number) > 0
            calls: list[Callable[[], Any]] = [
                lambda: quorum.producer(timeout=1000),
                lambda: quorum.producer(idempotent=False, connect=False).append(b"x", timeout=1000),
                lambda: elsewhere.consumer(timeout=1000),
                lambda: kraftfast.connect(list(quorum.addresses.values()), timeout=1000),
                lambda: admin.describe(timeout=1000),
                lambda: asyncio.run(in_a_loop(quorum)),
            ]
            for call in calls:
                with pytest.raises(NoQuorum, match="max.connections.per.ip.*close some of them"):
                    call()
        wait_until(lambda: admin.describe(timeout=5).leader_id == 1)
        with quorum.producer() as producer, quorum.producer(idempotent=False):
            assert producer.append_wait(b"room again") > 0
            with pytest.raises(NoQuorum, match="max.connections.per.ip"):
                quorum.producer(timeout=1000)  # its id would take one connection more


def test_how_many_connections_there_may_be_is_a_setting(tmp_path: Path) -> None:
    settings = SMALL | {"voters": 1, "transport": "socket", "connections_max": 3}
    with LocalQuorum(tmp_path / "q", **settings) as quorum, contextlib.ExitStack() as crowd:
        for _ in range(3):
            crowd.enter_context(quorum.producer(idempotent=False, timeout=1000))
        with pytest.raises(NoQuorum, match="connections_max"):
            quorum.producer(idempotent=False, timeout=1000)


async def in_a_loop(quorum: LocalQuorum) -> None:
    await quorum.async_producer(timeout=1000)
