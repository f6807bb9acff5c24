"""A voter whose address is wrong, or where nobody listens: it is told, once, and not at once."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from kraftfast.node.node_config import VoterConfig
from kraftfast.node.tcp import socket_peer
from tests.node.inside import Inside
from tests.node.test_foreign_cluster import Foreigner

pytestmark = pytest.mark.processes


def free_port() -> int:
    """A port on which nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


@pytest.mark.parametrize(
    "host, why",
    [("127.0.0.1", "Connection refused"), ("nobody.invalid", "its name has no address")],
)
def test_a_server_that_is_not_there_is_told_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, why: str
) -> None:
    monkeypatch.setattr(socket_peer, "UNREACHED_MS", 300)
    there = VoterConfig(2, host, free_port())
    replica = Inside(tmp_path / "q", voters=2, neighbours=[there], election_timeout_ms=20)
    told: list[dict[str, str]] = []
    tell = replica.node.tell
    replica.node.tell = lambda event, **fields: (
        told.append(fields) if event == "peer_unreached" else tell(event, **fields)
    )
    try:
        link = replica.node.links[2]
        replica.until(lambda: link.missed_ms >= 0)
        assert told == [], "it may be about to start"
        replica.until(lambda: bool(told))
        assert told == [{"who": "replica 2", "address": f"{host}:{there.port}", "why": why}]
        first = replica.node.now_ms()
        replica.until(lambda: replica.node.now_ms() - first > 1000)
        assert len(told) == 1
    finally:
        replica.close()


def test_it_is_told_again_after_it_was_reached(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(socket_peer, "UNREACHED_MS", 300)
    server = Foreigner()
    there = VoterConfig(2, "127.0.0.1", server.port)
    replica = Inside(tmp_path / "q", voters=2, neighbours=[there], election_timeout_ms=20)

    def is_reached() -> bool:
        server.look()
        return bool(link.ready)

    try:
        link = replica.node.links[2]
        link.missed_ms, link.unreached = 0, True
        replica.until(is_reached)
        assert not link.unreached and link.missed_ms < 0
        server.close()
        replica.until(lambda: any("cannot be reached" in line for line in replica.lines))
    finally:
        server.close()
        replica.close()
