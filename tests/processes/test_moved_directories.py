"""Directories that are moved, removed or replaced under a quorum that runs.

Whoever goes by their paths meets another quorum, or none; nothing that is acknowledged may be lost
by it, in either.
"""

from __future__ import annotations

import os
import shutil
import time
from pathlib import Path

import pytest

import kraftfast
from kraftfast.errors import KraftfastError, StorageError

SEGMENT = 8 << 20


def values(quorum: kraftfast.LocalQuorum) -> list[bytes]:
    with quorum.consumer() as consumer:
        return [bytes(record.value) for record in consumer]


def append_until_refused(producer: kraftfast.Producer, value: bytes, seconds: float = 20) -> int:
    """How many were acknowledged before the first that was not."""
    acknowledged = 0
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        try:
            producer.append_wait(value, timeout=2)
        except KraftfastError:
            return acknowledged
        acknowledged += 1
        time.sleep(0.02)
    raise AssertionError(f"{acknowledged} were acknowledged in {seconds} s, and none was refused")


def wait_faults(quorum: kraftfast.LocalQuorum, count: int) -> dict[int, KraftfastError]:
    until = time.monotonic() + 10
    while len(quorum.faults) < count and time.monotonic() < until:
        time.sleep(0.05)
    return quorum.faults


def test_one_that_was_moved_and_one_that_took_its_place(tmp_path: Path) -> None:
    here, there = tmp_path / "quorum", tmp_path / "moved"
    old = kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT)
    producer = old.producer()
    producer.append_many([b"old %d" % number for number in range(1000)])
    os.rename(here, there)
    with kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT) as new, new.producer() as other:
        other.append_many([b"new %d" % number for number in range(10)])
        for ask in (old.producer, old.consumer, old.statuses, old.admin, old.add_replica):
            with pytest.raises(StorageError, match="was moved, removed or replaced"):
                ask()
        more = append_until_refused(producer, b"z" * 100_000)
        faults = wait_faults(old, 3)
        assert sorted(faults) == [1, 2, 3]
        assert all("was moved, removed or replaced" in str(fault) for fault in faults.values())
        other.append_many([b"new"] * 10)
        producer.close()
        old.close()
        assert len(values(new)) == 20
    with kraftfast.LocalQuorum(here) as new:
        assert values(new) == [b"new %d" % number for number in range(10)] + [b"new"] * 10
    with kraftfast.LocalQuorum(there) as moved:
        found = values(moved)
        assert found[:1000] == [b"old %d" % number for number in range(1000)]
        assert len(found) >= 1000 + more


def test_one_that_was_removed(tmp_path: Path) -> None:
    here = tmp_path / "quorum"
    quorum = kraftfast.LocalQuorum(here, 3)
    with quorum.producer() as producer:
        producer.append_wait(b"before")
        shutil.rmtree(here)
        assert append_until_refused(producer, b"after") < 20
        assert sorted(wait_faults(quorum, 3)) == [1, 2, 3]
    quorum.close()
    assert not here.exists()


@pytest.mark.parametrize("durability", ["majority", "memory"])
def test_segments_that_were_removed(tmp_path: Path, durability: str) -> None:
    with kraftfast.LocalQuorum(tmp_path, 3, durability=durability) as quorum:
        with quorum.producer() as producer:
            producer.append_wait(b"before")
            for segment in tmp_path.glob("*/__cluster_metadata-0/*.log"):
                segment.unlink()
            acknowledged = append_until_refused(producer, b"after")
            assert acknowledged == 0 or durability == "memory"
        faults = wait_faults(quorum, 2)
        assert len(faults) >= 2
        assert all(isinstance(fault, StorageError) for fault in faults.values())
