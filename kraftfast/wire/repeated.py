"""Messages that are said again and again over one connection: each is encoded or decoded once.

A round of read barriers is a question, a BeginQuorumEpoch to each voter and its answer. Within an
epoch they differ from those of the round before by their correlation ids alone, and each takes 20
to 40 us to encode or decode: together more than the wake-ups of the processes on the way.
"""

from __future__ import annotations

import struct

from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.schema import Message

REPEATED = frozenset({ApiKey.BEGIN_QUORUM_EPOCH, ApiKey.DESCRIBE_QUORUM})
REMEMBERED_BYTES_MAX = 1024
"""No larger message is remembered (I25)."""
_NUMBER = struct.Struct(">i")
REQUEST_NUMBER_AT = 8
"""Of the correlation id in a request's frame, behind length, API and version."""
RESPONSE_NUMBER_AT = 4


class Repeated:
    """Encodes and decodes the messages of one connection, as ``frame`` does.

    It remembers the last message of each API in ``REPEATED`` and direction, and never more. What
    was handed in or out must not be changed afterwards: it may be handed out again.
    """

    # _sent: (API, whether a request) -> (version, client id, body, its frame).
    # _came: (API, whether a request) -> (version, the body's bytes, body).

    def __init__(self) -> None:
        self._sent: dict[tuple[int, bool], tuple[int, str | None, Message, bytes]] = {}
        self._came: dict[tuple[int, bool], tuple[int, bytes, frame.WireMessage]] = {}

    def encode_request(
        self, api_key: int, version: int, number: int, client_id: str | None, body: Message
    ) -> bytes:
        """Return a whole frame. Raises as ``frame.encode_request``."""
        kept = self._sent.get((api_key, True))
        if kept is not None and kept[:3] == (version, client_id, body):
            return renumbered(kept[3], REQUEST_NUMBER_AT, number)
        data = frame.encode_request(api_key, version, number, client_id, body)
        self._remember_sent(api_key, True, version, client_id, body, data)
        return data

    def encode_response(self, api_key: int, version: int, number: int, body: Message) -> bytes:
        """Return a whole frame. Raises as ``frame.encode_response``."""
        kept = self._sent.get((api_key, False))
        if kept is not None and kept[0] == version and kept[2] == body:
            return renumbered(kept[3], RESPONSE_NUMBER_AT, number)
        data = frame.encode_response(api_key, version, number, body)
        self._remember_sent(api_key, False, version, None, body, data)
        return data

    def _remember_sent(
        self, api_key: int, asks: bool, version: int, client: str | None, body: Message, data: bytes
    ) -> None:
        if api_key in REPEATED and len(data) <= REMEMBERED_BYTES_MAX:
            self._sent[api_key, asks] = version, client, body, data

    def decode_request(self, header: frame.RequestHeader, data: frame.Frame) -> frame.WireMessage:
        """Decode the body of a request. Raises as ``frame.decode_request_body``."""
        api_key, version, start = header.api_key, header.version, header.body_start
        if api_key not in REPEATED or len(data) > REMEMBERED_BYTES_MAX:
            return frame.decode_request_body(header, data)
        rest = bytes(data[start:])
        kept = self._came.get((api_key, True))
        if kept is None or kept[0] != version or kept[1] != rest:
            body = frame.decode_request_body(header, data)
            kept = self._came[api_key, True] = version, rest, body
        return kept[2]

    def decode_response(self, api_key: int, version: int, data: frame.Frame) -> frame.WireMessage:
        """Decode the body of the response to a request of ``version``.

        Raises as ``frame.decode_response``.
        """
        if api_key not in REPEATED or len(data) > REMEMBERED_BYTES_MAX:
            return frame.decode_response(api_key, version, data)[1]
        rest = bytes(data[RESPONSE_NUMBER_AT:])
        kept = self._came.get((api_key, False))
        if kept is None or kept[0] != version or kept[1] != rest:
            body = frame.decode_response(api_key, version, data)[1]
            kept = self._came[api_key, False] = version, rest, body
        return kept[2]


def renumbered(data: bytes, at: int, number: int) -> bytes:
    """Return a frame with another correlation id, which stands ``at`` there."""
    return data[:at] + _NUMBER.pack(number) + data[at + _NUMBER.size :]
