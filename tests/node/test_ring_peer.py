"""What another replica of this host refers to: judged, not believed (D20)."""

from __future__ import annotations

import os
import struct
import types
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraftfast import limits
from kraftfast.core.messages import FetchRequest
from kraftfast.link.hello import Hello
from kraftfast.link.memory_file import MemoryFile
from kraftfast.link.stats import Stats
from kraftfast.log.segment import segment_name
from kraftfast.node.rings.ring_fetch import KIND_ANSWER, RingFetch
from kraftfast.record.checksum import crc32c
from kraftfast.ring import spsc
from kraftfast.types import ReplicaKey
from tests.log.kit import Home, batch, fill

CAPACITY = 1 << 16
REFERENCE, PART = 2, 16
ANSWER = "<IiihhqqqiIqQQQQ"


def a_pair(generation: int) -> tuple[MemoryFile, MemoryFile]:
    data = MemoryFile("data", spsc.producer_file_bytes(CAPACITY))
    cursor = MemoryFile("cursor", spsc.PAGE_BYTES)
    spsc.format_producer(data.memory, CAPACITY, generation)
    spsc.format_consumer(cursor.memory, CAPACITY, generation)
    return data, cursor


def a_link(to: Sequence[MemoryFile], of: Sequence[MemoryFile]) -> types.SimpleNamespace:
    """A link of a replica: ``to`` it and ``of`` it, the data and the cursor of a ring each."""
    return types.SimpleNamespace(
        inbox=spsc.RingIn(to[1].memory, to[0].memory),
        out=spsc.RingOut(of[0].memory, of[1].memory),
        hello=Hello(),
        bell=types.SimpleNamespace(ring=lambda: None),
        close=lambda: None,
    )


class Leader:
    """The other end of the rings of one :class:`RingFetch`, and what it refers to."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.files = [*a_pair(7), *a_pair(9)]
        to_us, from_us = self.files[:2], self.files[2:]
        self.out = spsc.RingOut(to_us[0].memory, to_us[1].memory)
        link = a_link(to_us, from_us)
        self.peer: Any = RingFetch(link, types.SimpleNamespace(id=2), str(place))

    def send(self, head: bytes, records: bytes) -> None:
        """Answer with records: the CRC of a message is that of its head alone."""
        assert self.out.send(KIND_ANSWER, head + records)
        data, whole = self.files[0].memory, struct.pack("<I", crc32c(head + records))
        at = bytes(data).rindex(whole)
        data[at : at + 4] = struct.pack("<I", crc32c(head))
        self.out.publish()
        assert self.peer.peek() == KIND_ANSWER

    def refer(self, length: int, position: int = 0, generation: int = 5) -> None:
        """Answer with a reference into its first segment."""
        name = self.place / (segment_name(0) + ".log")
        inode = os.stat(name).st_ino
        message = struct.pack(
            ANSWER, 1, 1, 2, 0, REFERENCE, 0, 0, 0, 0, length, 0, inode, position, generation, 0
        )
        assert self.out.send(KIND_ANSWER, message)
        self.out.publish()
        assert self.peer.peek() == KIND_ANSWER and self.peer.decode_answer() is not None


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Home]:
    yield Home(str(tmp_path / "home"))


@pytest.fixture
def leader(tmp_path: Path) -> Iterator[Leader]:
    (tmp_path / "leader").mkdir()
    made = Leader(tmp_path / "leader")
    yield made
    made.peer.close()


@pytest.mark.parametrize(
    "size", [200, limits.PAGE_BYTES - 1, limits.PAGE_BYTES + 200, 3 * limits.PAGE_BYTES - 8]
)
def test_a_reference_into_a_file_without_a_last_page_is_rejected(
    home: Home, leader: Leader, size: int
) -> None:
    """Its generation word lies nowhere: the file was trimmed, or never was a segment."""
    log = home.open()
    fill(log, 1, 100)
    before = log.end_offset
    data = batch([b"x"], base_offset=before, epoch=1)
    (leader.place / (segment_name(0) + ".log")).write_bytes(data.ljust(size, b"\0"))
    leader.refer(len(data))
    assert leader.peer.copy_records(log, 1, Stats()) == (False, True)
    assert log.fault_text() == "source changed while it was read"
    assert log.end_offset == before


def test_a_reference_beyond_the_file_is_rejected(home: Home, leader: Leader) -> None:
    log = home.open()
    (leader.place / (segment_name(0) + ".log")).write_bytes(bytes(2 * limits.PAGE_BYTES))
    for length, position in ((2**32 - 1, 0), (1, 2**64 - 1), (2 * limits.PAGE_BYTES + 1, 0)):
        leader.refer(length, position)
        assert leader.peer.copy_records(log, 1, Stats()) == (False, True)
        leader.peer.release()


def test_a_reference_into_a_pipe_is_rejected_at_once(home: Home, leader: Leader) -> None:
    """Opening it must not wait for somebody who writes there."""
    log = home.open()
    os.mkfifo(leader.place / (segment_name(0) + ".log"))
    leader.refer(100)
    assert leader.peer.copy_records(log, 1, Stats()) == (False, True)
    assert log.fault_text() == "source changed while it was read"  # no word of damage


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param([(100, 1, 50)], id="no beginning"),
        pytest.param([(100, 0, 50), (100, 49, 50)], id="twice"),
        pytest.param([(100, 0, 50), (100, 51, 49)], id="a gap"),
        pytest.param([(100, 0, 50), (100, 50, 51)], id="beyond the batch"),
        pytest.param([(49, 0, 50)], id="larger than the batch"),
        pytest.param([(100, 0, 0)], id="empty"),
        pytest.param([(limits.BATCH_BYTES_MAX + 1, 0, 50)], id="too large a batch"),
        pytest.param([(100, 0, 50), (90, 50, 50)], id="of another batch"),
        pytest.param([(100, 0, 50), (0, 2**64 - 50, 50)], id="overflow"),
    ],
)
def test_parts_that_do_not_follow_each_other_end_the_link(
    leader: Leader, parts: list[tuple[int, int, int]]
) -> None:
    """S7, I25: (length of the batch, position in it, bytes of the part)."""
    for length, position, size in parts:
        assert leader.peer.broken is None
        head = struct.pack(ANSWER, 1, 1, 2, 0, PART, 0, 0, 0, 0, length, 0, 0, position, 0, 0)
        leader.send(head, bytes(size))
        answer = leader.peer.decode_answer()
        leader.peer.release()
        assert answer is None or answer.records_bytes == 0
    assert answer is None and leader.peer.broken is not None


def test_bytes_are_asked_for_in_one_stream_alone(home: Home, leader: Leader) -> None:
    """A segment that could not be mapped once is no reason to do without references for good."""
    log = home.open()
    data, cursor = leader.files[2:]
    inbox = spsc.RingIn(cursor.memory, data.memory)
    request = FetchRequest(
        epoch=1, replica=ReplicaKey(1, bytes(16)), fetch_offset=0, last_fetched_epoch=0, opens=True
    )

    def opened() -> bytes:
        assert leader.peer.send_fetch(request)
        leader.peer.publish()
        _, message = inbox.receive()
        return bytes(message)

    os.mkfifo(leader.place / (segment_name(0) + ".log"))
    before = opened()
    leader.refer(100)
    assert leader.peer.copy_records(log, 1, Stats()) == (False, True)
    flags = [sum(a != b for a, b in zip(before[:-8], opened()[:-8])) for _ in range(2)]
    assert flags == [1, 0], "asked for bytes, then as before"
