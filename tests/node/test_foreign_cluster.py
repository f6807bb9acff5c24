"""A server of another cluster stands where a voter should: its answers, and what is told of it."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.errors import ErrorCode
from kraftfast.node.node_config import VoterConfig
from kraftfast.wire import frame
from kraftfast.wire.messages import RESPONSES, ApiKey
from kraftfast.wire.versions import api_versions_response
from tests.node.inside import Inside


class Foreigner:
    """A controller of Kafka's of another cluster: it refuses each request as a whole.

    So its answer to a Fetch names no topic, unlike those of a replica of this project.
    ``refused``: APIs of the requests, in order.
    """

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.setblocking(False)
        self.port = self.listening.getsockname()[1]
        self.accepted: list[tuple[socket.socket, bytearray]] = []
        self.refused: list[int] = []

    def look(self) -> None:
        """Answer what has come."""
        try:
            sock, _ = self.listening.accept()
            sock.setblocking(False)
            self.accepted.append((sock, bytearray()))
        except BlockingIOError:
            pass
        for sock, received in self.accepted:
            try:
                received += sock.recv(1 << 16)
            except (BlockingIOError, ConnectionError):
                continue
            while len(received) >= 4 and len(received) - 4 >= int.from_bytes(received[:4], "big"):
                end = 4 + int.from_bytes(received[:4], "big")
                sock.sendall(self.answer(bytes(received[4:end])))
                del received[:end]

    def answer(self, data: bytes) -> bytes:
        header = frame.decode_request_header(data)
        key, version, number = header.api_key, header.version, header.correlation_id
        if key == ApiKey.API_VERSIONS:
            return frame.encode_response(key, version, number, api_versions_response(version))
        self.refused.append(key)
        body: Any = RESPONSES[key](error_code=ErrorCode.INCONSISTENT_CLUSTER_ID)
        return frame.encode_response(key, version, number, body)

    def close(self) -> None:
        for sock, _ in self.accepted:
            sock.close()
        self.listening.close()


@pytest.fixture
def foreigner() -> Iterator[Foreigner]:
    made = Foreigner()
    yield made
    made.close()


def test_its_answers_are_told_once_and_end_no_connection(
    tmp_path: Path, foreigner: Foreigner
) -> None:
    there = VoterConfig(2, "127.0.0.1", foreigner.port)
    replica = Inside(tmp_path / "q", voters=2, neighbours=[there], election_timeout_ms=200)

    def asked() -> bool:
        foreigner.look()
        return len(foreigner.refused) > 3 and {ApiKey.FETCH, ApiKey.VOTE} == set(foreigner.refused)

    try:
        replica.until(asked)
        assert replica.raised == [] and len(foreigner.accepted) == 1
        place = f"127.0.0.1:{foreigner.port}"
        assert replica.lines == [f"replica 2: the server at {place} is of another cluster"]
    finally:
        replica.close()
