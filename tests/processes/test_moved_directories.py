"""Directories that are moved, removed or replaced under a quorum that runs.

Whoever goes by their paths meets another quorum, or none; nothing that is acknowledged may be lost
by it, in either.
"""

from __future__ import annotations

import os
import shutil
import subprocess
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


def test_clients_of_the_old_one_do_not_wander_into_the_new_one(tmp_path: Path) -> None:
    """There an idempotent producer's batch would pass for another's, and be acknowledged."""
    here, there = tmp_path / "quorum", tmp_path / "moved"
    old = kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT)
    with kraftfast.connect(str(here)) as reached:
        producers = [old.producer(), reached.producer(idempotent=False), reached.producer()]
        consumers = [old.consumer(), reached.consumer()]
        admins = [old.admin(), reached.admin()]
        for number in range(5):
            for producer in producers:
                producer.append_wait(b"old %d" % number)
        for consumer in consumers:
            assert len(consumer.read(15)) == 15
        os.rename(here, there)
        with kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT) as new:
            with new.producer() as other:
                for number in range(40):
                    other.append_wait(b"new %d" % number)
            assert sorted(wait_faults(old, 3)) == [1, 2, 3]
            for producer in producers:
                with pytest.raises(KraftfastError):
                    producer.append_wait(b"precious", timeout=1)
            for consumer in consumers:
                with pytest.raises(KraftfastError):
                    consumer.read(1, timeout=1)
            for admin in admins:
                with pytest.raises(KraftfastError):
                    admin.describe(timeout=1)
            assert b"precious" not in values(new)
            for producer in producers:
                producer.close(timeout=0.1)
            for consumer in consumers:
                consumer.close()
            old.close()


def test_a_quorum_that_ends_leaves_the_doors_of_the_one_in_its_place(tmp_path: Path) -> None:
    here = tmp_path / "quorum"
    for attempt in range(3):
        old = kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT)
        os.rename(here, tmp_path / f"moved-{attempt}")
        with kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT) as new:
            old.close()
            assert sorted(new.statuses()) == [1, 2, 3]
            with new.producer() as producer:
                producer.append_wait(b"reached", timeout=5)
        shutil.rmtree(here)


def test_a_copy_of_links_is_another_directory(tmp_path: Path) -> None:
    """The lock file and the segments are the same files there, but new ones are made here alone."""
    here, first, second = tmp_path / "quorum", tmp_path / "first", tmp_path / "second"
    first.mkdir()
    here.symlink_to(first)
    quorum = kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT)
    with quorum.producer() as producer:
        producer.append_many([b"before"] * 5)
        subprocess.run(["cp", "-al", str(first), str(second)], stderr=subprocess.PIPE)
        (tmp_path / "link").symlink_to(second)
        os.replace(tmp_path / "link", here)
        acknowledged = append_until_refused(producer, b"z" * 100_000)
        faults = wait_faults(quorum, 3)
    quorum.close()
    assert all("was moved, removed or replaced" in str(fault) for fault in faults.values())
    with kraftfast.LocalQuorum(first) as kept:
        assert len(values(kept)) >= 5 + acknowledged


def test_a_log_that_was_moved_out_of_its_replica(tmp_path: Path) -> None:
    with kraftfast.LocalQuorum(tmp_path, 3) as quorum:
        with quorum.producer() as producer:
            producer.append_wait(b"before")
            for id in (1, 2, 3):
                log = tmp_path / str(id) / "__cluster_metadata-0"
                log.rename(log.with_name("saved"))
                shutil.copytree(log.with_name("saved"), log, copy_function=os.link)
            append_until_refused(producer, b"after")
        assert sorted(wait_faults(quorum, 3)) == [1, 2, 3]


def test_one_that_was_removed(tmp_path: Path) -> None:
    here = tmp_path / "quorum"
    quorum = kraftfast.LocalQuorum(here, 3)
    with quorum.producer() as producer:
        producer.append_wait(b"before")
        until = time.monotonic() + 20
        while here.exists():  # again: a replica may just prepare a file in what is being removed
            assert time.monotonic() < until
            shutil.rmtree(here, ignore_errors=True)
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


def test_a_producer_of_before_is_not_taken_for_one_of_a_restored_copy(tmp_path: Path) -> None:
    """The copy leads in the same epoch again, and makes ids for other producers there."""
    here, backup = tmp_path / "quorum", tmp_path / "backup"
    with kraftfast.LocalQuorum(here, 3, segment_bytes=SEGMENT) as quorum:
        with quorum.producer() as first:
            first.append_wait(b"first")
    shutil.copytree(here, backup)
    with kraftfast.LocalQuorum(here) as quorum, kraftfast.connect(str(here)) as reached:
        before = reached.producer()
        before.append_wait(b"before")
    shutil.rmtree(here)
    backup.rename(here)
    with kraftfast.LocalQuorum(here) as quorum:
        with quorum.producer() as after:
            for number in range(4):
                after.append_wait(b"after %d" % number)
        try:
            before.append_wait(b"precious", timeout=10)
            acknowledged = True
        except KraftfastError:
            acknowledged = False
        assert (b"precious" in values(quorum)) == acknowledged
        before.close(timeout=0.1)
