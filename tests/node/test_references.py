"""Records between two replicas of a host: by reference into the leader's segments, or as bytes."""

from __future__ import annotations

import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.core.messages import FetchRequest, FetchResponse
from kraftfast.link.hello import Hello
from kraftfast.link.stats import Stats
from kraftfast.log.segment import segment_name
from kraftfast.node.rings.ring_peer import KIND_ANSWER, KIND_FETCH, RingPeer, open_peer_segment
from kraftfast.ring import spsc
from kraftfast.types import ReplicaKey
from tests.log.kit import KIB, SMALL, Home, append, batch_of_size
from tests.node.test_ring_peer import a_pair


class Replicas:
    """A leader with segments that have rolled, and a follower that begins at offset 0.

    ``mapped``: bases of the leader's segments that the follower mapped. ``gone``: base of the one
    that it cannot map.
    """

    def __init__(self, place: Path) -> None:
        self.homes = [Home(place / name) for name in ("leader", "follower")]
        self.log = self.homes[0].open(**SMALL)
        self.copy = self.homes[1].open(segment_bytes=1024 * KIB, prepare_bytes=1024 * KIB)
        while len(self.log.segments) < 4:
            append(self.log, batch_of_size(24 * KIB))
        self.log.flush()
        self.gone, self.mapped = -1, []
        pairs = [a_pair(7), a_pair(9)]
        self.kept = pairs
        self.follower: Any = self._peer(2, pairs[0], pairs[1], self._map)
        self.leader: Any = self._peer(1, pairs[1], pairs[0], open_peer_segment)

    def _peer(self, id: int, to: Any, of: Any, open_segment: Any) -> Any:
        link = types.SimpleNamespace(
            inbox=spsc.RingIn(to[1].memory, to[0].memory),
            out=spsc.RingOut(of[0].memory, of[1].memory),
            hello=Hello(),
            bell=types.SimpleNamespace(ring=lambda: None),
            close=lambda: None,
        )
        leader_log = self.homes[0].log_path
        return RingPeer(link, types.SimpleNamespace(id=id), leader_log, open_segment)

    def _map(self, path: str, inode: int) -> Any:
        base = int(Path(path).stem)
        if base == self.gone:
            return None
        self.mapped.append(base)
        return open_peer_segment(path, inode)

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
        assert self.leader.peek() == KIND_FETCH and self.leader.fetch().opens
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
        assert self.follower.peek() == KIND_ANSWER and self.follower.answer() is not None
        taken, rejected = self.follower.copy_records(self.copy, 1, Stats())
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
    assert replicas.follower.peek() == KIND_ANSWER and replicas.follower.answer() is not None
    assert replicas.follower.copy_records(replicas.copy, 1, Stats()) == (False, True)
    name.with_name("recycled-1").rename(name)
