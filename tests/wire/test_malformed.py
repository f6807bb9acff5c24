"""Hostile bytes: a message or a MalformedFrame, and memory in proportion to the frame (S7, S13)."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from kraftfast import limits, varints
from kraftfast.errors import MalformedFrame, PeerError, UnsupportedVersion
from kraftfast.wire import frame
from kraftfast.wire.messages import (
    ApiVersionsResponse,
    DescribeQuorumResponse,
    FetchResponse,
    MetadataRequest,
    MetadataResponse,
)
from kraftfast.wire.schema import Message
from tests.wire.agreement import agree
from tests.wire.strategies import ALL_MESSAGES, any_message, versions

# What the caps amount to: 1 KiB of objects an element, four bytes a character of text.
MEMORY_BESIDE_FRAME = 1024 * limits.MESSAGE_ELEMENTS_MAX + 4 * limits.MESSAGE_TEXT_BYTES_MAX
DATA = sorted((Path(__file__).parent / "data").glob("*.bin"))


@given(any_message())
@settings(max_examples=150, deadline=None)
def test_cut_messages_are_refused_and_bytes_behind_requests_are_not(
    choice: tuple[Message, int],
) -> None:
    message, version = choice
    raw = message.encode(version)
    for end in range(len(raw)):
        assert agree(type(message), raw[:end], version) is MalformedFrame
    longer = agree(type(message), raw + b"\x00\x00\x01", version)
    if message.IS_REQUEST:  # read as far as it goes, as Kafka does
        assert longer == agree(type(message), raw, version)
    else:
        assert longer is MalformedFrame


@given(any_message(), st.data())
@settings(max_examples=600, deadline=None)
def test_changed_bytes(choice: tuple[Message, int], data: st.DataObject) -> None:
    message, version = choice
    raw = bytearray(message.encode(version))
    for _ in range(data.draw(st.integers(1, 3))):
        if raw:
            at = data.draw(st.integers(0, len(raw) - 1))
            new = data.draw(
                st.sampled_from([b"\xff" * 4, b"\x7f\xff\xff\xff", b"\x80", b"\x00"])
                | st.binary(min_size=1, max_size=6)
            )
            raw[at : at + data.draw(st.sampled_from([0, len(new)]))] = new
    agree(type(message), bytes(raw), version)


@given(st.data())
@settings(max_examples=600, deadline=None)
def test_random_bytes(data: st.DataObject) -> None:
    cls = data.draw(st.sampled_from(ALL_MESSAGES))
    version = data.draw(st.sampled_from(versions(cls)))
    agree(cls, data.draw(st.binary(max_size=80)), version)


@given(st.sampled_from(DATA), st.data())
@settings(max_examples=400, deadline=None)
def test_changed_bits_of_recorded_frames(path: Path, data: st.DataObject) -> None:
    raw = bytearray(path.read_bytes()[4:])
    for _ in range(data.draw(st.integers(1, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    key, _, version, direction, _ = path.stem.split("-")
    try:
        if direction == "request":
            frame.decode_request(bytes(raw))
        else:
            frame.decode_response(int(key), int(version[1:]), bytes(raw))
    except (MalformedFrame, UnsupportedVersion):
        pass


@given(st.binary(max_size=60))
@example(b"\x00\x12\x00\x63\x00\x00\x00\x01\xff\xff\x01\x01\x00")
@settings(max_examples=500, deadline=None)
def test_random_requests(raw: bytes) -> None:
    try:
        frame.decode_request(raw)
    except PeerError:
        pass


# --- memory -----------------------------------------------------------------------------------


def compact(n: int) -> bytes:
    out = bytearray()
    varints.write(out, n + 1)
    return bytes(out)


def many_ints() -> tuple[type[Message], int, bytes]:
    """One array of a million replica ids."""
    n = 1_000_000
    topic = b"\x00\x00\x02t" + bytes(16) + b"\x00\x02" + bytes(14) + compact(n) + bytes(4 * n)
    return MetadataResponse, 12, bytes(4) + b"\x01\x00" + bytes(4) + b"\x02" + topic


def many_structs() -> tuple[type[Message], int, bytes]:
    """As many of the smallest structs as there may be, with objects inside each."""
    n = limits.MESSAGE_ELEMENTS_MAX - 1
    partition = b"\x11" * (4 + 2 + 8 + 8 + 8) + b"\x01" + b"\x11" * 4 + b"\x01" + b"\x00"
    topics = b"\x02" + bytes(16) + compact(n) + partition * n + b"\x00"
    return FetchResponse, 13, bytes(10) + topics + b"\x00"


def too_many_structs() -> tuple[type[Message], int, bytes]:
    n = 600_000
    return ApiVersionsResponse, 3, bytes(2) + compact(n) + bytes(7 * n) + bytes(5)


def a_claim_without_bytes() -> tuple[type[Message], int, bytes]:
    return MetadataRequest, 9, compact(2**31 - 2) + bytes(4)


def wide_text() -> tuple[type[Message], int, bytes]:
    """Strings of ASCII and one emoji each: four bytes a character once decoded."""
    text = b"x" * 32000 + "\N{PILE OF POO}".encode()
    one = bytes(16) + compact(len(text)) + text + b"\x00"
    n = 150
    return MetadataRequest, 12, compact(n) + one * n + b"\x00\x00\x00"


def many_records() -> tuple[type[Message], int, bytes]:
    n = 8 * 1024 * 1024
    records = compact(n) + bytes(n)
    partition = bytes(4 + 2 + 8 + 8 + 8) + b"\x00" + bytes(4) + records + b"\x00"
    return FetchResponse, 13, bytes(10) + b"\x02" + bytes(16) + b"\x02" + partition + b"\x00\x00"


def many_tags() -> tuple[type[Message], int, bytes]:
    size = 100_000
    tags = bytearray(b"\x40")
    for tag in range(64):
        varints.write(tags, 2000 + tag)
        varints.write(tags, size)
        tags += bytes(size)
    return MetadataRequest, 12, b"\x01\x00\x00" + bytes(tags)


def a_large_describe() -> tuple[type[Message], int, bytes]:
    replica = b"\x00\x00\x01\xff" + b"u" * 16 + b"\x01" * 24 + b"\x00"
    n = limits.MESSAGE_ELEMENTS_MAX - 2
    partition = bytes(6) + b"\x01" + bytes(16) + compact(n) + replica * n + b"\x01\x00"
    return DescribeQuorumResponse, 2, b"\x00\x00\x01\x02\x02t\x02" + partition + b"\x00\x01\x00"


HOSTILE: list[tuple[Callable[[], tuple[type[Message], int, bytes]], bool]] = [
    (many_ints, False),
    (many_structs, True),
    (too_many_structs, False),
    (a_claim_without_bytes, False),
    (wide_text, False),
    (many_records, True),
    (many_tags, True),
    (a_large_describe, True),
]


@pytest.mark.parametrize(("make", "decodes"), HOSTILE, ids=lambda x: getattr(x, "__name__", ""))
def test_memory_is_bounded(
    make: Callable[[], tuple[type[Message], int, bytes]], decodes: bool
) -> None:
    cls, version, raw = make()
    cls.plan(version)
    tracemalloc.start()
    try:
        try:
            message = cls.decode(raw, version)
        except MalformedFrame:
            message = None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (message is not None) == decodes
    assert peak + len(raw) <= 2 * len(raw) + MEMORY_BESIDE_FRAME
    if make is many_records:
        assert peak < 64 * 1024  # the records stay where they are
