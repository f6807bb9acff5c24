"""The ring's two ends from Python: messages, room, and words that are wrong (R1, R3, R7)."""

from __future__ import annotations

import mmap
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftfast.errors import InvalidOption, PeerGone
from kraftfast.ring.spsc import (
    PAGE_BYTES,
    Doorbell,
    PeerDoorbell,
    RingIn,
    RingOut,
    format_consumer,
    format_producer,
    producer_file_bytes,
)

CAPACITY = 4096


def memories(capacity: int = CAPACITY, generation: int = 9) -> tuple[mmap.mmap, mmap.mmap]:
    """(producer's file, consumer's file), formatted."""
    data, cursor = mmap.mmap(-1, producer_file_bytes(capacity)), mmap.mmap(-1, PAGE_BYTES)
    format_producer(data, capacity, generation)
    format_consumer(cursor, capacity, generation)
    return data, cursor


def ring(capacity: int = CAPACITY) -> tuple[RingOut, RingIn]:
    data, cursor = memories(capacity)
    return RingOut(data, cursor), RingIn(cursor, data)


def taken(inbox: RingIn) -> list[tuple[int, bytes]]:
    """Everything that is there."""
    found = []
    while (message := inbox.receive()) is not None:
        found.append(message)
    inbox.publish_tail()
    return found


@given(
    st.lists(st.tuples(st.integers(1, 100), st.binary(max_size=600)), max_size=60),
    st.integers(0, 2**32),
)
@settings(max_examples=60, deadline=None)
def test_what_goes_in_comes_out(messages: list[tuple[int, bytes]], seed: int) -> None:
    """In order, whole, once, over many laps, whatever the sizes and the moments of publishing."""
    out, inbox = ring()
    received: list[tuple[int, bytes]] = []
    for number, (kind, payload) in enumerate(messages):
        while not out.send(kind, payload):
            out.publish()
            fresh = taken(inbox)
            assert fresh, "a full ring holds something"
            received += fresh
        if (seed >> number % 32) & 1:
            out.publish()
        if (seed >> (number * 7) % 32) & 1:
            received += taken(inbox)
    out.publish()
    received += taken(inbox)
    assert received == messages
    assert out.drained() and not out.faulted() and not inbox.faulted()


def test_back_pressure_is_a_return_value() -> None:
    out, inbox = ring()
    assert inbox.fill_permille() == 0
    count = 0
    while out.send(1, b"x" * 100):
        count += 1
    assert inbox.fill_permille() == 0, "nothing is visible yet"
    out.publish()
    assert inbox.fill_permille() == 1000
    assert count == CAPACITY // 128  # 16 of header, 100, padded to 16: 128
    assert not out.has_room(100) and not out.send(1, b"y" * 100)
    out.want_room()
    assert inbox.waiting()
    assert inbox.receive() == (1, b"x" * 100)
    assert inbox.publish_tail() is True, "the producer waits: ring its doorbell"
    assert out.has_room(100) and out.send(1, b"z" * 100)
    assert inbox.receive() is not None
    assert inbox.publish_tail() is False, "it does not wait any more"


def test_the_longest_message_fits_and_a_longer_one_never() -> None:
    out, inbox = ring()
    longest = out.payload_max
    assert not out.send(1, b"x" * (longest + 1))
    for _ in range(5):
        assert out.send(1, b"x" * longest)
        out.publish()
        assert taken(inbox) == [(1, b"x" * longest)]


def test_a_message_whose_length_has_more_than_32_bits_does_not_fit() -> None:
    out, inbox = ring()
    with mmap.mmap(-1, 2**32 + 5, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as payload:
        assert not out.send(1, payload)
    out.publish()
    assert taken(inbox) == []


def test_two_files_that_do_not_fit_leave_a_ring_as_it_was() -> None:
    out, inbox = ring()
    other = memories(2 * CAPACITY)
    with pytest.raises(PeerGone):
        out.__init__(other[0], memories()[1])  # type: ignore[misc]
    with pytest.raises(PeerGone):
        inbox.__init__(other[1], memories()[0])  # type: ignore[misc]
    assert out.send(1, b"x")
    out.publish()
    assert taken(inbox) == [(1, b"x")]


def test_what_was_looked_at_is_known_to_the_other_side() -> None:
    out, inbox = ring()
    assert out.taken == 0
    out.send(1, b"x")
    out.publish()
    assert out.taken == 0 and out.position == 32


@pytest.mark.parametrize("capacity", [0, 1, 2048, 4095, 6144])
def test_capacities_that_are_none(capacity: int) -> None:
    with pytest.raises(InvalidOption):
        format_producer(mmap.mmap(-1, 2 * PAGE_BYTES + capacity), capacity, 1)
    with pytest.raises(InvalidOption):
        format_consumer(mmap.mmap(-1, PAGE_BYTES), capacity, 1)


def test_a_file_too_small_for_its_capacity() -> None:
    with pytest.raises(InvalidOption):
        format_producer(mmap.mmap(-1, PAGE_BYTES + 4095), 4096, 1)
    with pytest.raises(InvalidOption):
        format_consumer(bytearray(100), 4096, 1)


def test_files_that_do_not_belong_together() -> None:
    data, cursor = memories()
    for other in (
        memories(8192)[1],
        memories(generation=10)[1],
        mmap.mmap(-1, PAGE_BYTES),
        b"",
        b"x" * 100,
    ):
        with pytest.raises(PeerGone):
            RingOut(data, other)
    for other in (memories(8192)[0], memories(generation=10)[0], mmap.mmap(-1, PAGE_BYTES), b""):
        with pytest.raises(PeerGone):
            RingIn(cursor, other)


def test_a_file_that_was_used_is_never_attached_again() -> None:
    """R4: a dead peer's ring is dropped whole; nobody goes on in it."""
    data, cursor = memories()
    out, inbox = RingOut(data, cursor), RingIn(cursor, data)
    out.send(1, b"x")
    out.publish()
    assert taken(inbox)
    with pytest.raises(PeerGone):
        RingOut(data, cursor)
    with pytest.raises(PeerGone):
        RingIn(cursor, data)


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (128, (1 << 40).to_bytes(8, "little")),  # a head beyond the ring
        (128, (40).to_bytes(8, "little")),  # not on a boundary
        (PAGE_BYTES, (9999).to_bytes(4, "little")),  # a length beyond what was published
        (PAGE_BYTES + 4, b"\\0\\0\\0\\0"),  # a sequence that is not next
        (PAGE_BYTES + 12, b"\\0\\0\\0\\0"),  # a CRC that does not match
        (PAGE_BYTES + 16, b"?"),  # a payload that changed
    ],
)
def test_a_producer_that_lies_is_fenced(at: int, value: bytes) -> None:
    data, cursor = memories()
    out, inbox = RingOut(data, cursor), RingIn(cursor, data)
    out.send(1, b"payload")
    out.publish()
    data[at : at + len(value)] = value
    assert inbox.receive() is None
    assert inbox.faulted()
    data[at : at + len(value)] = bytes(len(value))
    assert inbox.receive() is None and inbox.faulted(), "for good"


@pytest.mark.parametrize("tail", [1 << 40, 8, 16])
def test_a_consumer_that_lies_is_fenced(tail: int) -> None:
    data, cursor = memories()
    out = RingOut(data, cursor)
    cursor[128:136] = tail.to_bytes(8, "little")
    while out.send(1, b"x" * 100):
        pass
    assert out.faulted()
    with pytest.raises(PeerGone):
        PeerDoorbell(b"", -1)


def test_doorbells_need_a_page() -> None:
    with pytest.raises(InvalidOption):
        Doorbell(bytearray(10))
    page: Any = mmap.mmap(-1, PAGE_BYTES)
    bell = Doorbell(page)
    peer = PeerDoorbell(page, bell.fd)
    assert not peer.ring()
    bell.going_to_sleep()
    assert peer.ring()
    bell.woke_up()
    assert not peer.ring()
    bell.clear()
    bell.clear()  # nothing in it: no matter
    bell.close()
    bell.close()
