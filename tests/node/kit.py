"""A stranger at the doors of a replica: over TCP with frames, over the local socket with hellos."""

from __future__ import annotations

import socket
from typing import Any

from kraftfast.node.translation import translate, wire_values
from kraftfast.quorum import LocalQuorum
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID
from kraftfast.wire import fetch, frame
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest
from kraftfast.wire.versions import SERVED

PARTITION = wire_values.Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")
TIMEOUT_S = 60.0
"""How long an answer or a hang-up may take on a busy machine."""


class Stranger:
    """One TCP connection to a replica."""

    def __init__(self, quorum: LocalQuorum, id: int) -> None:
        self.sock = socket.create_connection(quorum.addresses[id], TIMEOUT_S)
        self._received = b""

    def __enter__(self) -> Stranger:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.sock.close()

    def send(self, data: bytes) -> None:
        """Bytes as they are; the other side may hang up in the middle."""
        try:
            self.sock.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            pass

    def receive(self) -> bytes | None:
        """One frame without its length, None if the other side hung up."""
        while True:
            size = int.from_bytes(self._received[:4], "big")
            if len(self._received) >= 4 + size and len(self._received) >= 4:
                found, self._received = self._received[4 : 4 + size], self._received[4 + size :]
                return found
            try:
                data = self.sock.recv(1 << 16)
            except ConnectionResetError:
                return None
            if not data:
                return None
            self._received += data

    def greet(self) -> None:
        """ApiVersions, as everybody begins."""
        version = SERVED[ApiKey.API_VERSIONS].last
        body = ApiVersionsRequest(client_software_name="stranger", client_software_version="1")
        self.send(frame.encode_request(ApiKey.API_VERSIONS, version, 1, "stranger", body))
        assert self.receive() is not None

    def ask(self, request: Any) -> Any:
        """The core's answer to a core request."""
        api_key = translate.API_OF[type(request)]
        version = SERVED[api_key].last
        if api_key == ApiKey.FETCH:
            fields = translate.fetch_to_wire(request, PARTITION)
            self.send(fetch.encode_request(version, 7, "stranger", fields))
        else:
            body = translate.request_to_wire(request, PARTITION)
            self.send(frame.encode_request(api_key, version, 7, "stranger", body))
        data = self.receive()
        assert data is not None, f"hung up instead of an answer to {request}"
        if api_key == ApiKey.FETCH:
            return translate.fetched_from_wire(fetch.decode_response(version, data)[1], PARTITION)
        _, message = frame.decode_response(api_key, version, data)
        return translate.response_from_wire(api_key, message, PARTITION)


def standing(quorum: LocalQuorum) -> dict[int, tuple[int, int, int, str]]:
    """(pid, epoch, leader, role) of every replica: what no stranger changes."""
    return {
        id: (status["pid"], status["epoch"], status["leader_id"], status["role"])
        for id, status in quorum.statuses().items()
    }
