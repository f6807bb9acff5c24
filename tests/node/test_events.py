"""A replica notes events while somebody reads them, and only then."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.bench.profiling.event_collector import _Source
from kraftfast.client.event_reader import EventReader
from kraftfast.errors import InconsistentClusterId, PeerGone
from tests.node.inside import Inside


@pytest.fixture
def replica(tmp_path: Path) -> Iterator[Inside]:
    made = Inside(tmp_path / "q")
    yield made
    made.close()


def opened(replica: Inside, cluster_id: str = "") -> Any:
    """A reader, made by a thread while the replica takes its turns; or what it raised."""
    found: list[Any] = []

    def make() -> None:
        try:
            found.append(EventReader(replica.directory, cluster_id))
        except Exception as error:  # noqa: BLE001 - the test looks at it
            found.append(error)

    thread = threading.Thread(target=make)
    thread.start()
    replica.until(lambda: found)
    thread.join()
    return found[0]


def test_events_are_noted_until_the_last_reader_hangs_up(replica: Inside) -> None:
    stats = replica.node.stats
    assert stats.recorder is None, "nothing is made before it is asked for"
    one, other = opened(replica), opened(replica)
    assert stats.recorder.is_on and stats.recorder.users == 2
    assert (one.node_id, len(replica.loop.door.readers)) == (1, 2)
    stats.put("epoch", 7)
    source = _Source("replica 1", 1, one.pid, one.view, one.close)
    source.look()
    assert source.recorded().of("epoch")["offset"].tolist() == [7]
    one.close()
    replica.until(lambda: stats.recorder.users == 1)
    assert stats.recorder.is_on
    other.close()
    replica.until(lambda: stats.recorder.users == 0)
    assert not stats.recorder.is_on and not replica.loop.door.readers
    assert not replica.loop.door.slots.taken["events"] and replica.raised == []


def test_a_crowd_of_readers_is_refused(replica: Inside) -> None:
    most = replica.loop.door.slots.room["events"] * 3 // 4
    readers = [opened(replica) for _ in range(most)]
    refused = opened(replica)
    assert isinstance(refused, PeerGone) and "connections of kind events" in str(refused)
    for each in readers:
        each.close()
    replica.until(lambda: replica.node.stats.recorder.users == 0)


def test_a_reader_of_another_quorum_is_refused(replica: Inside) -> None:
    assert isinstance(opened(replica, "AAAAAAAAAAAAAAAAAAAAAA"), InconsistentClusterId)
    assert replica.node.stats.recorder is None


def test_readers_are_let_go_when_the_replica_closes(replica: Inside) -> None:
    reader = opened(replica)
    replica.loop.door.close()
    assert not replica.node.stats.recorder.is_on
    assert reader.sock.recv(1) == b""
    reader.close()
