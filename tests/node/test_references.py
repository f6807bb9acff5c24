"""Records between two replicas of a host: by reference into the leader's segments, or as bytes."""

from __future__ import annotations

import os
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.core.messages import FetchRequest, FetchResponse
from kraftfast.errors import CorruptLog
from kraftfast.link.stats import Stats
from kraftfast.log.log import install_guard
from kraftfast.log.segment import segment_name
from kraftfast.node.rings import ring_fetch
from kraftfast.node.rings.ring_fetch import (
    INLINE_MAX,
    KIND_ANSWER,
    KIND_FETCH,
    RingFetch,
    open_peer_segment,
)
from kraftfast.types import ReplicaKey
from tests.damaging import flip
from tests.log.kit import KIB, SMALL, Home, append, batch_of_size
from tests.node.test_ring_peer import CAPACITY, a_link, a_pair


class Replicas:
    """A leader with segments that have rolled, and a follower that begins at offset 0.

    ``mapped``: bases of the leader's segments that the follower mapped. ``gone``: base of the one
    that it cannot map. ``unreadable``: of one of which it can read no page.
    ``same_numbers``: each file has the number that the reference names. ``follower_epoch``: no
    batch of a later one is taken.
    """

    def __init__(
        self, place: Path, batch_bytes: int = 24 * KIB, inline_max: int = INLINE_MAX
    ) -> None:
        self.homes = [Home(place / name) for name in ("leader", "follower")]
        self.log = self.homes[0].open(**SMALL)
        self.copy = self.homes[1].open(segment_bytes=1024 * KIB, prepare_bytes=1024 * KIB)
        while len(self.log.segments) < 4:
            append(self.log, batch_of_size(batch_bytes))
        self.log.flush()
        self.gone, self.unreadable, self.mapped = -1, -1, []
        self.same_numbers, self.follower_epoch = False, 1
        pairs = [a_pair(7), a_pair(9)]
        self.kept = pairs
        self.follower: Any = self._peer(2, pairs[0], pairs[1], self._map)
        self.leader: Any = self._peer(1, pairs[1], pairs[0], open_peer_segment, inline_max)

    def _peer(self, id: int, to: Any, of: Any, open_segment: Any, *more: int) -> Any:
        leader_log, key = self.homes[0].log_path, types.SimpleNamespace(id=id)
        return RingFetch(a_link(to, of), key, leader_log, open_segment, *more)

    def _map(self, path: str, inode: int) -> Any:
        base = int(Path(path).stem)
        if base == self.gone:
            return None
        self.mapped.append(base)
        if self.same_numbers:
            inode = os.stat(path).st_ino
        file = open_peer_segment(path, inode)
        if base == self.unreadable:
            damaged = Path(path).with_suffix(".damaged")
            damaged.write_bytes(bytes(os.path.getsize(path)))
            file = open_peer_segment(str(damaged), damaged.stat().st_ino)
            os.truncate(damaged, 0)  # its pages cannot be read
        return file

    def open_stream(self) -> None:
        """Have the follower ask for records, from the first one on."""
        request = FetchRequest(
            epoch=1,
            replica=ReplicaKey(2, bytes(16)),
            fetch_offset=self.copy.end_offset,
            last_fetched_epoch=0,
            stream=1,
            opens=True,
        )
        assert self.follower.send_fetch(request)
        self.follower.publish()
        assert self.leader.peek() == KIND_FETCH and self.leader.decode_fetch().opens
        self.leader.release()

    def send(self, at: int, bytes_max: int = 24 * KIB) -> None:
        """Have the leader push what stands at an offset."""
        end_offset = self.leader.push(FetchResponse(stream=1), at, bytes_max, self.log)
        assert end_offset > at
        self.leader.publish()

    def push(self, at: int) -> bool:
        """Have the leader push what stands at an offset; return whether the follower took it."""
        self.send(at)
        return self.take()

    def take(self) -> bool:
        """Have the follower copy what was pushed; return whether it took all of it."""
        assert self.follower.peek() == KIND_ANSWER and self.follower.decode_answer() is not None
        taken, rejected = self.follower.copy_records(self.copy, self.follower_epoch, Stats())
        self.follower.release()
        self.follower.publish_tail()
        assert taken != rejected
        return bool(taken)

    def push_all(self) -> None:
        while self.copy.end_offset < self.log.end_offset:
            assert self.push(self.copy.end_offset)

    def close(self) -> None:
        self.follower.close()
        for home in self.homes:
            home.close()


@pytest.fixture
def replicas(tmp_path: Path) -> Iterator[Replicas]:
    made = Replicas(tmp_path)
    yield made
    made.close()


def bases(log: Any) -> list[int]:
    return [segment.base_offset for segment in log.segments]


@pytest.mark.parametrize("trimmed", [0, 3])
def test_a_replica_that_is_behind_maps_rolled_segments(replicas: Replicas, trimmed: int) -> None:
    """As bytes they cost the leader a copy, and the replica falls further behind."""
    replicas.open_stream()
    if trimmed:
        assert replicas.log.retire() == trimmed
    replicas.push_all()
    assert replicas.mapped == bases(replicas.log)


def test_bytes_are_sent_for_the_rest_of_one_segment_alone(replicas: Replicas) -> None:
    """It was trimmed or removed before it was mapped: the next one can be."""
    replicas.open_stream()
    replicas.gone = replicas.log.segments[1].base_offset
    while replicas.push(replicas.copy.end_offset):
        pass
    assert replicas.copy.end_offset == replicas.gone
    replicas.open_stream()
    replicas.push_all()
    assert replicas.mapped == [base for base in bases(replicas.log) if base != replicas.gone]


@pytest.mark.parametrize("mapped", [False, True])
def test_what_is_cut_of_a_trimmed_segment_is_not_copied(replicas: Replicas, mapped: bool) -> None:
    """It has no generation word to compare (D20): only zeros may come to where batches stood."""
    log, base = replicas.log, replicas.log.segments[1].base_offset
    replicas.open_stream()
    assert log.retire() == 3
    while replicas.copy.end_offset < base + mapped:
        assert replicas.push(replicas.copy.end_offset)
    assert (base in replicas.mapped) == mapped
    replicas.send(base + mapped, 1 << 20)
    end_offset = base + 1  # between the two batches of the segment
    log.truncate(end_offset)
    append(log, batch_of_size(24 * KIB, fill=b"w"))
    assert not replicas.take()
    assert replicas.copy.end_offset <= end_offset


def test_no_reference_outlives_its_segment(replicas: Replicas) -> None:
    """A name is looked up when it is referred to: the file may be another segment's by then."""
    replicas.open_stream()
    end_offset = replicas.leader.push(FetchResponse(stream=1), 0, 1 << 20, replicas.log)
    assert end_offset > 0
    replicas.leader.publish()
    name = Path(replicas.homes[0].log_path) / (segment_name(0) + ".log")
    name.rename(name.with_name("recycled-1"))
    name.write_bytes(bytes(1 << 20))
    assert replicas.follower.peek() == KIND_ANSWER and replicas.follower.decode_answer() is not None
    assert replicas.follower.copy_records(replicas.copy, 1, Stats()) == (False, True)
    name.with_name("recycled-1").rename(name)


@pytest.mark.parametrize("trimmed", [0, 3])
def test_an_unreadable_segment_is_asked_for_as_bytes(replicas: Replicas, trimmed: int) -> None:
    """L5: a leader that cannot read it finds out then, ends, and another one leads.

    Of one that was not trimmed, the last page cannot be read either.
    """
    install_guard()
    if trimmed:
        assert replicas.log.retire() == trimmed
    replicas.unreadable = replicas.log.segments[1].base_offset
    replicas.open_stream()
    while replicas.push(replicas.copy.end_offset):
        pass
    assert replicas.copy.end_offset == replicas.unreadable
    replicas.open_stream()
    replicas.push_all()
    assert replicas.mapped.count(replicas.unreadable) == 1


DAMAGE = {
    "offset": (7, "base offset does not follow"),
    "length": (8, "batch length out of bounds"),
    "epoch": (12, "leader epoch does not follow"),  # outside the CRC
    "magic": (16, "magic is not 2"),
    "CRC": (17, "CRC-32C does not match"),
    "a record": (100, "CRC-32C does not match"),
}
"""Bytes of a batch by each of which a follower rejects it, and what its owner finds."""


@pytest.mark.parametrize("inline_max", [0, 1 << 20])
@pytest.mark.parametrize("at, why", DAMAGE.values(), ids=DAMAGE.keys())
def test_damage_that_a_follower_rejects_is_found_by_its_owner(
    tmp_path: Path, at: int, why: str, inline_max: int
) -> None:
    """D10, L5: it led on, and whatever began below that batch could never catch up."""
    replicas = Replicas(tmp_path, inline_max=inline_max)
    base = damage(replicas.log, at)
    with pytest.raises(CorruptLog, match=f"offset {base}.*{why}") as refused:
        for _rejected in range(2):
            replicas.open_stream()
            while replicas.push(replicas.copy.end_offset):
                pass
            assert replicas.copy.end_offset == base
    assert (refused.value.position, refused.value.offset) == (0, base)
    replicas.close()


@pytest.mark.parametrize("inline_max", [0, 1 << 20])
@pytest.mark.parametrize("at", [4, 15], ids=["offset", "epoch"])
def test_what_lies_outside_the_crc_is_found_before_it_is_sent(
    tmp_path: Path, at: int, inline_max: int
) -> None:
    """A follower took a batch of another epoch (I2). One whose offset is beyond the log's end could
    not be sent at all: the leader took that for a cut of its log, and ended.
    """
    replicas = Replicas(tmp_path, inline_max=inline_max)
    replicas.follower_epoch = 0x41  # so that the damaged one is not too high for it
    base = damage(replicas.log, at)
    replicas.open_stream()
    with pytest.raises(CorruptLog, match=f"offset {base}.*does not follow"):
        while True:
            at = replicas.copy.end_offset
            end_offset = replicas.leader.push(
                FetchResponse(stream=1), at, 10 * KIB, replicas.log, replicas.log.end_offset
            )
            assert at < end_offset <= base
            replicas.leader.publish()
            assert replicas.take()
    replicas.close()


def test_what_is_sound_in_front_of_damage_is_pushed(replicas: Replicas) -> None:
    base = damage(replicas.log, 15, number=1)
    replicas.open_stream()
    with pytest.raises(CorruptLog, match=f"offset {base}.*epoch does not follow"):
        while True:
            replicas.send(replicas.copy.end_offset, bytes_max=1 << 20)
            assert replicas.take() and replicas.copy.end_offset <= base
    assert replicas.copy.end_offset == base


def test_a_follower_that_keeps_up_is_sent_what_is_new_at_once(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of what was appended since it had all, nothing is looked at."""
    replicas.open_stream()
    replicas.push_all()
    monkeypatch.setattr(ring_fetch.served, "sound_part", None)
    for _ in range(8):  # some of them in the next segment
        append(replicas.log, batch_of_size(24 * KIB))
        assert replicas.push(replicas.copy.end_offset)


def test_a_batch_without_a_header_is_found_by_its_owner(replicas: Replicas) -> None:
    """Nothing of it could be sent, and the follower waited for it without end."""
    base = damage(replicas.log, 16, number=1)  # the stream goes on from the batch before it
    replicas.open_stream()
    with pytest.raises(CorruptLog, match=f"offset {base}.*magic is not 2"):
        while True:
            replicas.send(replicas.copy.end_offset, bytes_max=10 * KIB)
            assert replicas.take() and replicas.copy.end_offset <= base


def damage(log: Any, at: int, number: int = 0) -> int:
    """Change a byte of a batch of a segment that has rolled; return the batch's offset."""
    segment = log.segments[1]
    offset: int = segment.base_offset + number
    at += segment.place_of(offset)[0]
    flip(segment.file.path, at)
    return offset


def test_a_place_that_is_not_found_leaves_the_cursor_alone(replicas: Replicas) -> None:
    """It took the place of another segment with it: the next answer sent what stands there."""
    replicas.open_stream()
    assert replicas.push(0)
    base = damage(replicas.log, 9)  # its size
    damage(replicas.log, 16, number=1)
    with pytest.raises(CorruptLog, match=f"offset {base}"):
        replicas.leader.push(FetchResponse(stream=1), base + 1, 24 * KIB, replicas.log)
    assert replicas.push(replicas.copy.end_offset) and replicas.copy.end_offset == 2


class BlindFollower:
    """A follower that can map nothing of its leader, as on a file system without locks.

    The batches are larger than what a ring carries at once.
    """

    def __init__(self, place: Path) -> None:
        self.replicas = Replicas(place, batch_bytes=60 * KIB)
        self.replicas.gone = 0
        assert CAPACITY // 2 < 60 * KIB
        self.open_stream()

    def open_stream(self) -> None:
        """Have the follower ask for bytes, once it could not map what it was referred to."""
        self.replicas.open_stream()
        assert not self.replicas.push(0)
        self.replicas.open_stream()

    def take(self) -> int:
        """Have the leader push the first batch, or a part of it; return how many bytes of records
        the answer gives the core."""
        replicas = self.replicas
        self.pushed: int = replicas.leader.push(FetchResponse(stream=1), 0, 1 << 20, replicas.log)
        replicas.leader.publish()
        assert replicas.follower.peek() == KIND_ANSWER
        size: int = replicas.follower.decode_answer().records_bytes
        if not size:
            self.release()
        return size

    def release(self) -> None:
        self.replicas.follower.release()
        self.replicas.follower.publish_tail()

    def copy(self) -> None:
        """Have the follower copy what came whole."""
        replicas = self.replicas
        assert replicas.follower.copy_records(replicas.copy, 1, Stats()) == (True, False)
        self.release()


@pytest.fixture
def blind(tmp_path: Path) -> Iterator[BlindFollower]:
    made = BlindFollower(tmp_path)
    yield made
    made.replicas.close()


def test_a_batch_larger_than_the_ring_comes_in_parts(blind: BlindFollower) -> None:
    """L5: it was referred to again and again, and the follower stayed behind it for ever."""
    while not blind.take():
        assert blind.pushed == 0, "the core must push it again, until all of it is there"
    assert blind.pushed == 1
    blind.copy()
    assert blind.replicas.copy.end_offset == 1
    blind.replicas.push_all()  # the other segments can be mapped


def test_parts_of_a_stream_that_was_given_up_are_no_part_of_the_next(blind: BlindFollower) -> None:
    assert not blind.take()
    blind.open_stream()
    while not blind.take():
        pass
    blind.copy()
    assert blind.replicas.copy.end_offset == 1


@pytest.mark.parametrize("kept_ms", [0, 3600 * 1000])
def test_segments_are_let_go_of(
    replicas: Replicas, monkeypatch: pytest.MonkeyPatch, kept_ms: int
) -> None:
    """In an idle log their owner could never trim them, and what it removed kept its blocks."""
    monkeypatch.setattr(ring_fetch, "MAPS_KEPT_MS", kept_ms)
    replicas.open_stream()
    replicas.push_all()
    assert len(replicas.follower.maps) == ring_fetch.MAPPED_SEGMENTS_MAX
    assert replicas.leader.push(FetchResponse(stream=1), -1, 0, replicas.log) == -1
    replicas.leader.publish()
    assert replicas.follower.peek() == KIND_ANSWER and replicas.follower.decode_answer() is not None
    assert bool(replicas.follower.maps) == (kept_ms > 0)
    rolled = len(replicas.log.segments) - 1
    assert replicas.log.retire() == (rolled - 1 if kept_ms else rolled)


@pytest.mark.parametrize("trimmed", [0, 3])
def test_a_name_and_a_number_are_used_again(replicas: Replicas, trimmed: int) -> None:
    """D20: disks give the number of a file that was removed to the next one that is made.

    A leader that was replaced cut its log, and appended what its follower must not take for what it
    was referred to.
    """
    replicas.open_stream()
    if trimmed:
        assert replicas.log.retire() == trimmed
    base = replicas.log.segments[1].base_offset
    for at in range(base):
        assert replicas.push(at)
    assert replicas.leader.push(FetchResponse(stream=1), base, 24 * KIB, replicas.log) > base
    replicas.leader.publish()
    replicas.log.truncate(base)
    while replicas.log.end_offset <= base:
        append(replicas.log, batch_of_size(24 * KIB, fill=b"w"))
    assert base in bases(replicas.log)
    replicas.same_numbers = True
    assert replicas.follower.peek() == KIND_ANSWER and replicas.follower.decode_answer() is not None
    assert replicas.follower.copy_records(replicas.copy, 1, Stats()) == (False, True)
    assert replicas.mapped[-1] == base and replicas.copy.end_offset == base
