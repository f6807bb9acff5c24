"""A voter behind a socket that falls silent, or answers what was not asked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import MalformedFrame
from kraftfast.node.node_config import VoterConfig
from kraftfast.node.tcp.socket_peer import SILENCE_MS_MAX
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey
from tests.node.inside import Inside
from tests.node.test_consumers import correlation_of
from tests.node.test_foreign_cluster import Foreigner

pytestmark = pytest.mark.processes


class Peer(Foreigner):
    """Answers the greeting, and every other request by ``other``; b"": not at all."""

    other: Callable[[int], bytes] = staticmethod(lambda _number: b"")

    def answer(self, data: bytes) -> bytes:
        header = frame.decode_request_header(data)
        if header.api_key == ApiKey.API_VERSIONS:
            return super().answer(data)
        return self.other(header.correlation_id)


@pytest.fixture
def peer() -> Iterator[Peer]:
    made = Peer()
    yield made
    made.close()


@pytest.fixture
def replica(tmp_path: Path, peer: Peer) -> Iterator[Inside]:
    there = VoterConfig(2, "127.0.0.1", peer.port)
    made = Inside(tmp_path / "q", voters=2, neighbours=[there], election_timeout_ms=20)
    yield made
    made.close()


def asked(replica: Inside, peer: Peer) -> Any:
    """The connection to it, once a request of the core is under way there."""

    def is_asked() -> bool:
        peer.look()
        link = replica.node.links.get(2)
        return (
            link is not None and bool(link.waiting) and bool(correlation_of(replica.node.core, 2))
        )

    replica.until(is_asked)
    return replica.node.links[2]


def test_a_silent_connection_is_given_up_and_its_requests_fail(replica: Inside, peer: Peer) -> None:
    link = asked(replica, peer)
    framed = link.framed
    link.tend(link.asked_ms + SILENCE_MS_MAX - 1)
    assert link.framed is framed
    correlation = correlation_of(replica.node.core, 2)
    link.tend(link.asked_ms + SILENCE_MS_MAX)
    assert link.framed is not framed
    assert correlation_of(replica.node.core, 2) != correlation, "the core was told"


def test_an_answer_to_nothing_ends_the_connection(replica: Inside, peer: Peer) -> None:
    peer.other = lambda number: (4).to_bytes(4, "big") + (number + 1000).to_bytes(4, "big")
    asked(replica, peer)

    def is_ended() -> bool:
        peer.look()
        return bool(replica.raised)

    replica.until(is_ended)
    assert isinstance(replica.raised[0], MalformedFrame)
    assert "nothing that was asked" in str(replica.raised[0])
