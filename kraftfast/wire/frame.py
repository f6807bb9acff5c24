"""Frames: an int32 length, a header, a message. Headers, and the splitting of a byte stream.

A request header is version 2 for flexible message versions, else 1; a response header 1 or 0,
but that of ApiVersions is always 0, since its reader cannot know yet what the other side speaks.
The client id stays an int16-length string even in header version 2. All integers big-endian.
Sources: KIP-482, KIP-511, Kafka's RequestHeader.json and ResponseHeader.json.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from kraftfast import limits
from kraftfast.errors import ErrorCode, MalformedFrame, UnencodableMessage, UnsupportedVersion
from kraftfast.wire import messages
from kraftfast.wire.messages import REQUESTS, RESPONSES, ApiKey
from kraftfast.wire.primitives import (
    UNENCODABLE,
    Buffer,
    Reader,
    Writer,
    read_tags,
    string_reader,
    string_writer,
)
from kraftfast.wire.schema import Message
from kraftfast.wire.versions import SERVED

Frame = bytes | memoryview
"""One frame without its length. Large ones are memoryviews, so that they are stored only once."""
WireMessage = Any
"""A message of ``wire.messages``, a struct in one, or the class of either: it is made from the
tables at import, and only the API's key tells which it is."""

LENGTH_BYTES = 4
FRAME_BYTES_MIN = 4  # every frame holds at least a correlation id
RECEIVE_BYTES = 64 * 1024  # frames up to here are cut out of one buffer, larger ones get their own
IDLE_BYTES = 1024  # that buffer until it is filled once: most connections of thousands are idle

_LENGTH = struct.Struct(">i")
_REQUEST = struct.Struct(">hhi")
_read_client_id = string_reader(flexible=False, nullable=True)
_write_client_id = string_writer(flexible=False, nullable=True)


class RequestHeader(NamedTuple):
    """What stands before a request's body."""

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body_start: int  # where in the frame the body begins

    @property
    def served(self) -> bool:
        """Whether we speak this version; only of ApiVersions is a header passed on if not."""
        return self.version in SERVED[self.api_key]


def decode_request_header(frame: Frame) -> RequestHeader:
    """Return the header of the request in ``frame``.

    Raises :class:`MalformedFrame`; :class:`UnsupportedVersion` for an API or version that we do
    not speak, except that an ApiVersions request of any version passes: where it is not
    ``served``, its body cannot be read and :func:`unsupported_api_versions` is the answer.
    """
    r = Reader(frame, 0, "request header")
    if len(frame) < _REQUEST.size:
        raise r.malformed("cut off")
    api_key, version, correlation_id = _REQUEST.unpack_from(frame)
    r.at = _REQUEST.size
    request = REQUESTS.get(api_key)
    if request is None or (version not in request.VERSIONS and api_key != ApiKey.API_VERSIONS):
        raise UnsupportedVersion(f"a request of API {api_key} version {version}")
    client_id = _read_client_id(r)
    if version in request.FLEXIBLE:
        read_tags(r, {}, [])
    return RequestHeader(api_key, version, correlation_id, client_id, r.at)


def request_bytes_max(begin: Frame) -> int:
    """Return how large a connection's first request may be, by its first bytes.

    A client need not ask for ApiVersions first: one that begins with a request that is known here
    is no stranger.
    """
    api_key, version, _ = _REQUEST.unpack_from(begin)
    request = REQUESTS.get(api_key)
    if api_key == ApiKey.API_VERSIONS or request is None or version not in request.VERSIONS:
        return limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS
    return limits.FRAME_BYTES_MAX


def decode_request(frame: Frame) -> tuple[RequestHeader, WireMessage]:
    """Header and body of a request. Raises as :func:`decode_request_header`, and
    :class:`UnsupportedVersion` for an ApiVersions request of an unknown version too."""
    header = decode_request_header(frame)
    return header, decode_request_body(header, frame)


def decode_request_body(header: RequestHeader, frame: Frame) -> WireMessage:
    """Return the body of the request whose header was decoded from ``frame``."""
    return REQUESTS[header.api_key].decode(frame, header.version, header.body_start)


def correlation_id(frame: Frame) -> int:
    """Return the correlation id of a response: it tells which request, and version, the rest
    answers.

    Raises :class:`MalformedFrame`.
    """
    if len(frame) < _LENGTH.size:
        raise MalformedFrame("a response of fewer bytes than its correlation id")
    return int(_LENGTH.unpack_from(frame)[0])


def decode_response_header(api_key: int, version: int, frame: Frame) -> tuple[int, int]:
    """Return correlation id of a response, and where its body begins.

    Raises :class:`MalformedFrame`.
    """
    number = correlation_id(frame)
    r = Reader(frame, LENGTH_BYTES, "response header")
    if _tagged_response_header(api_key, version):
        read_tags(r, {}, [])
    return number, r.at


def decode_response(api_key: int, version: int, frame: Frame) -> tuple[int, WireMessage]:
    """Return correlation id and body of the response to a request of ``version``.

    An ApiVersions response that says UNSUPPORTED_VERSION is read as version 0, whatever was
    asked, since that is how it is sent. Raises :class:`MalformedFrame`.
    """
    number, start = decode_response_header(api_key, version, frame)
    if api_key == ApiKey.API_VERSIONS:
        code = int.from_bytes(frame[start : start + 2], "big", signed=True)
        if code == ErrorCode.UNSUPPORTED_VERSION:
            version = 0
    return number, RESPONSES[api_key].decode(frame, version, start)


def encode_request(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Message
) -> bytes:
    """Return a whole frame, length included. Raises :class:`UnsupportedVersion` if ``body`` holds
    what
    ``version`` cannot say, :class:`UnencodableMessage` if a value does not fit its field."""
    return b"".join(request_pieces(api_key, version, correlation_id, client_id, body))


def request_pieces(
    api_key: int, version: int, correlation_id: int, client_id: str | None, body: Message
) -> list[Buffer]:
    """Return the frame of :func:`encode_request` as a list for ``sendmsg``, without copies."""
    assert api_key == body.API_KEY and type(body) is REQUESTS[api_key]
    out = Writer()
    try:
        out += _LENGTH.pack(0) + _REQUEST.pack(api_key, version, correlation_id)
        _write_client_id(out, client_id)
    except UNENCODABLE as error:
        raise UnencodableMessage(f"request header: {error}") from error
    if version in body.FLEXIBLE:
        out.append(0)  # no tagged fields
    return _finish(out, body, version)


def encode_response(api_key: int, version: int, correlation_id: int, body: Message) -> bytes:
    """Return a whole frame, length included. Raises as :func:`encode_request`."""
    return b"".join(response_pieces(api_key, version, correlation_id, body))


def response_pieces(api_key: int, version: int, correlation_id: int, body: Message) -> list[Buffer]:
    """Return the frame of :func:`encode_response` as a list for ``sendmsg``, without copies."""
    assert api_key == body.API_KEY and type(body) is RESPONSES[api_key]
    out = Writer()
    try:
        out += _LENGTH.pack(0) + _LENGTH.pack(correlation_id)
    except UNENCODABLE as error:
        raise UnencodableMessage(f"response header: {error}") from error
    if _tagged_response_header(api_key, version):
        out.append(0)  # no tagged fields
    return _finish(out, body, version)


def unsupported_api_versions(correlation_id: int) -> bytes:
    """The answer to an ApiVersions request of a version that we do not have: version 0 of the
    response, which everyone can read, with the range of ApiVersions itself. The client then asks
    again (KIP-511)."""
    body = messages.ApiVersionsResponse(
        error_code=ErrorCode.UNSUPPORTED_VERSION,
        api_keys=[
            messages.ApiVersionsResponse.ApiKey(ApiKey.API_VERSIONS, *SERVED[ApiKey.API_VERSIONS])
        ],
    )
    return encode_response(ApiKey.API_VERSIONS, 0, correlation_id, body)


def _tagged_response_header(api_key: int, version: int) -> bool:
    return version in RESPONSES[api_key].FLEXIBLE and api_key != ApiKey.API_VERSIONS


def _finish(out: Writer, body: Message, version: int) -> list[Buffer]:
    body.encode_into(out, version)
    length = out.size() - LENGTH_BYTES
    if length > limits.FRAME_BYTES_MAX:
        raise UnencodableMessage(f"a frame of {length} bytes")
    _LENGTH.pack_into(out, 0, length)
    return out.pieces()


class FrameSplitter:
    """Cuts the bytes of a connection into frames.

    ``room()`` is where to receive to (``recv_into``), ``received(n)`` says how much came, and
    ``next_frame()`` gives the frames until None. The length is checked against the cap in force
    before anything is allocated for it (S6), and when the frame before it was handed out: so the
    owner raises ``frame_bytes_max`` from FRAME_BYTES_MAX_BEFORE_API_VERSIONS to FRAME_BYTES_MAX
    between two frames of the same packet. A large frame's memory grows as its bytes arrive, by
    doubling from TURN_BYTES_MAX: to announce much and send little costs the announcer, not us.
    """

    __slots__ = ("frame_bytes_max", "judge", "_buffer", "_head", "_tail", "_large", "_length")

    frame_bytes_max: int  # cap on a frame's length, without the four bytes of the length itself
    judge: Callable[[Frame], int] | None  # the cap for a larger frame, by its first bytes
    _buffer: bytearray  # what arrived and was not handed out is _head.._tail; it grows once full
    _head: int  # 0 <= _head <= _tail <= len(_buffer) <= RECEIVE_BYTES
    _tail: int
    _large: bytearray | None  # a frame that does not fit _buffer; its bytes so far are ._tail
    _length: int  # of that frame: len(_large) <= _length <= the cap when it began

    def __init__(self, frame_bytes_max: int = limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS) -> None:
        self.frame_bytes_max = frame_bytes_max
        self.judge = None
        self._buffer = bytearray(IDLE_BYTES)
        self._head = self._tail = 0
        self._large = None
        self._length = 0

    @property
    def partial(self) -> bool:
        """Whether part of a frame has arrived: an end of stream now cuts it off."""
        return self._large is not None or self._tail > self._head

    @property
    def held_bytes(self) -> int:
        """Memory of the frame that is under way, beside the buffer that every splitter has."""
        return len(self._large) if self._large is not None else 0

    @property
    def arrived_bytes(self) -> int:
        """How much of the frame that is under way has arrived."""
        return self._tail - self._head

    def room(self) -> memoryview:
        """Return where the next bytes belong; never empty once ``next_frame`` has returned None."""
        if self._large is not None:
            if self._tail == len(self._large) < self._length:
                larger = bytearray(min(2 * len(self._large), self._length))
                larger[: self._tail] = self._large
                self._large = larger
            return memoryview(self._large)[self._tail :]
        full = self._tail == len(self._buffer)  # more is waiting
        if self._head:
            rest = self._buffer[self._head : self._tail]
            self._buffer[: len(rest)] = rest
            self._head, self._tail = 0, len(rest)
        if full and len(self._buffer) < RECEIVE_BYTES:
            wider = bytearray(min(4 * len(self._buffer), RECEIVE_BYTES))
            wider[: self._tail] = self._buffer[: self._tail]
            self._buffer = wider
        return memoryview(self._buffer)[self._tail :]

    def received(self, count: int) -> None:
        """Record that ``count`` bytes were stored at the start of :meth:`room`."""
        size = len(self._buffer if self._large is None else self._large)
        assert 0 <= count <= size - self._tail, "more was received than there was room for"
        self._tail += count

    def next_frame(self) -> Frame | None:
        """Return the next whole frame, or None until more has arrived.

        Raises :class:`MalformedFrame` for a length outside the cap; the connection is then done.
        """
        if self._large is not None:
            if self._tail < self._length:
                return None
            frame = memoryview(self._large).toreadonly()
            self._large, self._head, self._tail = None, 0, 0
            return frame
        start = self._head + LENGTH_BYTES
        if self._tail < start:
            return None
        (length,) = _LENGTH.unpack_from(self._buffer, self._head)
        if length > self.frame_bytes_max and self.judge is not None:
            if self._tail < start + _REQUEST.size:
                return None
            self.frame_bytes_max = self.judge(memoryview(self._buffer)[start : self._tail])
        if not FRAME_BYTES_MIN <= length <= self.frame_bytes_max:  # S6
            bounds = f"{FRAME_BYTES_MIN} to {self.frame_bytes_max}"
            raise MalformedFrame(f"a frame of {length} bytes; {bounds} are taken")
        if length <= self._tail - start:
            self._head = start + length
            return bytes(memoryview(self._buffer)[start : self._head])
        if length > RECEIVE_BYTES - LENGTH_BYTES:
            here = self._tail - start
            self._large = bytearray(min(length, limits.TURN_BYTES_MAX))
            self._large[:here] = self._buffer[start : self._tail]
            self._length, self._head, self._tail = length, 0, here
        return None

    def frames(self, data: Buffer) -> Iterator[Frame]:
        """Yield the frames that ``data`` completes, for those who have the bytes already.

        The caller may change the cap between two of them. Raises as :meth:`next_frame`.
        """
        view = memoryview(data)
        while view:
            room = self.room()
            count = min(len(room), len(view))
            room[:count] = view[:count]
            self.received(count)
            view = view[count:]
            while (frame := self.next_frame()) is not None:
                yield frame
