"""Replicas of one host that have other shared-memory layouts: another version of kraftfast."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from kraftfast.link.hello import LAYOUT, Hello, decode_hello, encode_hello
from kraftfast.link.memory_file import send_with_fds
from kraftfast.link.ring_link import SOCKET_NAME, OwnDoorbell, close_all
from kraftfast.node.node_config import VoterConfig
from kraftfast.node.tcp.socket_peer import SocketPeer
from tests.node.inside import Inside


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """The directory of replica 2, which listens on a port, too."""
    found = tmp_path / "2"
    found.mkdir()
    return found


@pytest.fixture
def replica(tmp_path: Path, place: Path) -> Iterator[Inside]:
    neighbour = VoterConfig(2, "127.0.0.1", 1, directory=str(place))
    made = Inside(tmp_path / "quorum", voters=2, neighbours=[neighbour])
    yield made
    made.close()


def other(hello: Hello) -> bytes:
    """What a process of another version says."""
    return msgspec.json.encode(msgspec.structs.replace(hello, layout=LAYOUT + 1))


@pytest.mark.parametrize("kind", ["peer", "producer", "watch", "events"])
def test_who_would_map_memory_is_refused(replica: Inside, kind: str) -> None:
    bell = OwnDoorbell()
    with replica.local() as sock:
        said = Hello(kind=kind, cluster_id=replica.cluster_id, node_id=2)
        send_with_fds(sock, other(said), [bell.file.fd, bell.bell.far_fd])
        answer = decode_hello(replica.message(sock))
    assert answer.layout == LAYOUT
    assert f"layout {LAYOUT + 1}, not {LAYOUT}" in answer.error
    assert not replica.loop.door.producers and not replica.loop.door.watchers
    bell.close()


def test_who_maps_nothing_is_answered(replica: Inside) -> None:
    with replica.local() as sock:
        sock.send(other(Hello(kind="status")))
        assert json.loads(replica.message(sock))["node_id"] == 1


def forgets(replica: Inside) -> bool:
    return 2 not in replica.loop.ring_peers.directories


def is_reached_over_sockets(replica: Inside) -> bool:
    return isinstance(replica.node.links.get(2), SocketPeer) and forgets(replica)


def test_a_replica_that_offers_goes_on_over_sockets(replica: Inside) -> None:
    """It is refused, and this one reaches it as a replica on another host."""
    offer_of_another_cluster = Hello(kind="peer", cluster_id="another", node_id=2)
    for offer in (
        offer_of_another_cluster,
        msgspec.structs.replace(offer_of_another_cluster, cluster_id=replica.cluster_id),
    ):
        assert not forgets(replica)
        with replica.local() as sock:
            sock.send(other(offer))
            assert decode_hello(replica.message(sock)).error
    assert is_reached_over_sockets(replica)


def test_a_replica_that_refuses_goes_on_over_sockets(
    place: Path, request: pytest.FixtureRequest
) -> None:
    """And it is offered rings again once it has started again, which its poke says."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(str(place / SOCKET_NAME))
        listener.listen()
        listener.setblocking(False)
        replica: Inside = request.getfixturevalue("replica")
        with accepted(replica, listener) as sock:
            close_all(replica.passed(sock)[1])
            sock.send(other(Hello(error="another layout", cluster_id=replica.cluster_id)))
            replica.until(lambda: is_reached_over_sockets(replica))
        with replica.local() as sock:
            own = replica.loop.ring_peers.hello("poke")
            poke = msgspec.structs.replace(own, node_id=2, directory=str(place))
            sock.send(encode_hello(poke))
            with accepted(replica, listener) as again:
                data, fds = replica.passed(again)
                assert decode_hello(data).kind == "peer"
                close_all(fds)


def accepted(replica: Inside, listener: socket.socket) -> socket.socket:
    found: list[socket.socket] = []

    def offered() -> bool:
        try:
            found.append(listener.accept()[0])
        except BlockingIOError:
            return False
        return True

    replica.until(offered)
    found[0].setblocking(False)
    return found[0]
