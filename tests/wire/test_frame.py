"""Length framing, headers, and the splitting of a byte stream."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast import limits
from kraftfast.errors import ErrorCode, MalformedFrame, UnencodableMessage, UnsupportedVersion
from kraftfast.wire import frame
from kraftfast.wire.frame import FrameSplitter
from kraftfast.wire.messages import (
    REQUESTS,
    RESPONSES,
    ApiKey,
    ApiVersionsRequest,
    ApiVersionsResponse,
    BeginQuorumEpochRequest,
    BeginQuorumEpochResponse,
    FetchSnapshotResponse,
    SaslHandshakeRequest,
    VoteRequest,
    VoteResponse,
)
from tests.wire.strategies import any_message

# --- headers ----------------------------------------------------------------------------------


def test_request_header_1_and_2() -> None:
    begin = BeginQuorumEpochRequest()
    raw = frame.encode_request(ApiKey.BEGIN_QUORUM_EPOCH, 0, 7, "me", begin)
    assert raw[:16] == b"\0\0\0\x12\0\x35\0\0\0\0\0\x07\0\x02me"
    assert raw[16:] == begin.encode(0)
    raw = frame.encode_request(ApiKey.BEGIN_QUORUM_EPOCH, 1, -1, None, begin)
    # The client id keeps its int16 length; the tagged fields come after it.
    assert raw[4:15] == b"\0\x35\0\x01\xff\xff\xff\xff\xff\xff\0"
    assert raw[15:] == begin.encode(1)


def test_response_header_0_and_1() -> None:
    body = BeginQuorumEpochResponse(error_code=35)
    assert frame.encode_response(53, 0, 9, body)[4:10] == b"\0\0\0\x09\0\x23"
    assert frame.encode_response(53, 1, 9, body)[4:11] == b"\0\0\0\x09\0\0\x23"


def test_api_versions_responses_have_header_0_in_every_version() -> None:
    for version in range(6):
        raw = frame.encode_response(18, version, 9, ApiVersionsResponse(error_code=42))
        assert raw[4:10] == b"\0\0\0\x09\0\x2a"
        assert frame.decode_response_header(18, version, raw[4:]) == (9, 4)
    assert frame.decode_request_header(
        frame.encode_request(18, 3, 1, "c", ApiVersionsRequest())[4:]
    ) == (18, 3, 1, "c", 12)


def test_tagged_fields_of_headers_are_skipped() -> None:
    raw = b"\0\x34\0\x02\0\0\0\x05\0\x01x" + b"\x01\x07\x02zz" + VoteRequest().encode(2)
    header, body = frame.decode_request(raw)
    assert header == (52, 2, 5, "x", 16) and header.served and body == VoteRequest()
    raw = b"\0\0\0\x05" + b"\x01\x07\x02zz" + VoteResponse(error_code=1).encode(2)
    assert frame.decode_response(52, 2, raw) == (5, VoteResponse(error_code=1))


@given(any_message(), st.integers(-(2**31), 2**31 - 1), st.none() | st.text("ab\xe9", max_size=9))
@settings(max_examples=200, deadline=None)
def test_every_message_in_its_frame(choice: tuple, number: int, client_id: str | None) -> None:
    message, version = choice
    key = message.API_KEY
    if type(message) is REQUESTS[key]:
        raw = frame.encode_request(key, version, number, client_id, message)
        header, body = frame.decode_request(raw[4:])
        assert header[:4] == (key, version, number, client_id)
        pieces = frame.request_pieces(key, version, number, client_id, message)
    else:
        raw = frame.encode_response(key, version, number, message)
        if key == ApiKey.API_VERSIONS and message.error_code == ErrorCode.UNSUPPORTED_VERSION:
            return
        again, body = frame.decode_response(key, version, raw[4:])
        assert again == number == frame.correlation_id(raw[4:])
        pieces = frame.response_pieces(key, version, number, message)
    assert body == message and b"".join(pieces) == raw
    assert int.from_bytes(raw[:4], "big") == len(raw) - 4


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\0\x34\0\x02\0\0\0",
        b"\0\x34\0\x02\0\0\0\x05",
        b"\0\x34\0\x02\0\0\0\x05\0\x05abc",
        b"\0\x34\0\x02\0\0\0\x05\xff\xfe",
        b"\0\x34\0\x02\0\0\0\x05\0\x01\xff\0",
        b"\0\x34\0\x02\0\0\0\x05\0\x01x",
        b"\0\x34\0\x02\0\0\0\x05\0\x01x\x80\0",
    ],
)
def test_malformed_request_headers(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        frame.decode_request_header(raw)


@pytest.mark.parametrize(
    "start", [b"\0\x34\0\x03", b"\0\x34\xff\xff", b"\x7f\0\0\0", b"\0\x0b\0\0"]
)
def test_requests_that_we_do_not_speak(start: bytes) -> None:
    with pytest.raises(UnsupportedVersion):
        frame.decode_request_header(start + b"\0\0\0\x01\xff\xff\0")


@pytest.mark.parametrize("raw", [b"", b"\0\0\0"])
def test_malformed_response_headers(raw: bytes) -> None:
    with pytest.raises(MalformedFrame):
        frame.correlation_id(raw)
    with pytest.raises(MalformedFrame):
        frame.decode_response(52, 2, raw)
    with pytest.raises(MalformedFrame):
        frame.decode_response(52, 2, b"\0\0\0\x05")


def test_a_header_or_frame_that_does_not_fit() -> None:
    for number, client_id in ((2**31, "c"), (1, "\ud800"), (1, b"c"), (1, "c" * 32768)):
        with pytest.raises(UnencodableMessage):
            frame.encode_request(52, 2, number, client_id, VoteRequest())
    with pytest.raises(UnencodableMessage):
        frame.encode_response(52, 2, 2**31, VoteResponse())
    large = FetchSnapshotResponse.Partition(unaligned_records=bytes(limits.FRAME_BYTES_MAX))
    body = FetchSnapshotResponse(topics=[FetchSnapshotResponse.Topic(partitions=[large])])
    with pytest.raises(UnencodableMessage, match="frame"):
        frame.response_pieces(59, 1, 1, body)


def test_a_body_of_another_api_is_a_mistake_of_ours() -> None:
    with pytest.raises(AssertionError):
        frame.encode_request(ApiKey.VOTE, 1, 1, "c", SaslHandshakeRequest())
    with pytest.raises(AssertionError):
        frame.encode_request(ApiKey.VOTE, 1, 1, "c", VoteResponse())


def test_tables_of_classes_are_whole() -> None:
    assert set(REQUESTS) == set(RESPONSES) == set(ApiKey)
    for key in ApiKey:
        assert REQUESTS[key].VERSIONS == RESPONSES[key].VERSIONS


# --- splitting --------------------------------------------------------------------------------


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


@given(
    st.lists(st.binary(min_size=4, max_size=60) | st.integers(4, 200_000).map(bytes), max_size=6),
    st.data(),
)
@settings(max_examples=150, deadline=None)
def test_any_chunks_give_the_same_frames(bodies: list[bytes], data: st.DataObject) -> None:
    stream = framed(*bodies)
    splitter = FrameSplitter(limits.FRAME_BYTES_MAX)
    got: list[bytes] = []
    at = 0
    while at < len(stream):
        size = data.draw(st.integers(1, 70) | st.integers(1, 150_000))
        got += [bytes(body) for body in splitter.frames(stream[at : at + size])]
        at += size
    assert got == bodies and not splitter.partial


def test_byte_by_byte() -> None:
    bodies = [b"abcd", b"x" * 300, bytes(70_000), b"tail"]
    splitter = FrameSplitter(1 << 20)
    got = []
    for byte in framed(*bodies):
        for body in splitter.frames(bytes([byte])):
            got.append(bytes(body))
    assert got == bodies
    assert list(splitter.frames(b"\0\0\0")) == [] and splitter.partial


def test_a_frame_stays_as_it_is_when_more_arrives() -> None:
    splitter = FrameSplitter()
    (first,) = splitter.frames(framed(b"first"))
    list(splitter.frames(framed(b"other")))
    assert first == b"first"


def test_receiving_into_the_room_stores_a_large_frame_once() -> None:
    splitter = FrameSplitter(limits.FRAME_BYTES_MAX)
    body = bytes(range(256)) * 20_000
    stream = memoryview(framed(body, b"next"))
    frames = []
    while stream:
        room = splitter.room()
        count = min(len(room), len(stream), 50_000)
        room[:count] = stream[:count]
        splitter.received(count)
        stream = stream[count:]
        while (one := splitter.next_frame()) is not None:
            frames.append(one)
    assert frames == [body, b"next"]
    assert isinstance(frames[0], memoryview) and frames[0].readonly


def test_more_received_than_room_is_a_mistake_of_ours() -> None:
    splitter = FrameSplitter()
    with pytest.raises(AssertionError):
        splitter.received(len(splitter.room()) + 1)


@pytest.mark.parametrize(
    "length",
    [-1, -(2**31), 0, 3, limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS + 1, 2**31 - 1],
)
def test_a_length_outside_the_cap(length: int) -> None:
    splitter = FrameSplitter()
    with pytest.raises(MalformedFrame, match=f"a frame of {length} bytes; 4 to 8192 are taken"):
        list(splitter.frames(length.to_bytes(4, "big", signed=True)))


def test_the_cap_is_the_one_in_force_when_the_frame_begins() -> None:
    small = limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS
    stream = framed(bytes(small), bytes(small + 1))
    splitter, got = FrameSplitter(), []
    for body in splitter.frames(stream):
        got.append(len(body))
        splitter.frame_bytes_max = limits.FRAME_BYTES_MAX  # ApiVersions was answered
    assert got == [small, small + 1]
    with pytest.raises(MalformedFrame):
        list(FrameSplitter().frames(stream))


def test_announcing_much_costs_little() -> None:
    """S6: memory follows what has arrived, not what was announced."""
    splitter = FrameSplitter(limits.FRAME_BYTES_MAX)
    tracemalloc.start()
    try:
        list(splitter.frames(limits.FRAME_BYTES_MAX.to_bytes(4, "big") + b"x"))
        assert tracemalloc.get_traced_memory()[1] < 2 * limits.TURN_BYTES_MAX
        arrived = 5 * limits.TURN_BYTES_MAX
        list(splitter.frames(bytes(arrived)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 4 * arrived


def test_an_idle_connection_costs_little() -> None:
    """I25: of thousands most send nothing after they have asked for ApiVersions."""
    tracemalloc.start()
    try:
        splitter = FrameSplitter()
        assert list(splitter.frames(framed(bytes(200)))) == [bytes(200)]
        assert tracemalloc.get_traced_memory()[0] < 4_096
    finally:
        tracemalloc.stop()


def test_the_room_grows_with_what_comes() -> None:
    splitter, rooms = FrameSplitter(limits.FRAME_BYTES_MAX), []
    stream = framed(*[bytes(20_000)] * 20)
    frames = []
    while stream:
        room = splitter.room()  # is held while the next one is asked for
        count = min(len(room), len(stream))
        room[:count] = stream[:count]
        splitter.received(count)
        rooms.append(len(room))
        stream = stream[count:]
        while (one := splitter.next_frame()) is not None:
            frames.append(one)
    assert frames == [bytes(20_000)] * 20
    assert len(rooms) < 15 and max(rooms) > 40_000
