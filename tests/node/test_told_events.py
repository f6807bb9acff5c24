"""What a replica tells of its disk, its snapshots and its voters, as it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core.effects import VotersChanged
from kraftfast.core.messages import AlterPartitionReassignmentsResponse
from kraftfast.errors import DiskFull, ErrorCode
from kraftfast.node.disk_space import DiskSpace
from kraftfast.node.event_log import Entry, EventLog
from kraftfast.node.metrics import SLOW_FLUSH_NS
from kraftfast.node.requests.admin_requests import Reassigning
from kraftfast.node.translation.fetched_bytes import FetchedBytes
from kraftfast.record.shapes import Fault
from kraftfast.types import OffsetAndEpoch, Voter, VoterSet
from kraftfast.wire import fetch
from tests.log.kit import batch
from tests.node.inside import Inside


class Watched:
    """A replica of its own, and all events that it tells."""

    def __init__(self, path: Path) -> None:
        self.it = Inside(path)
        self.told: list[Entry] = []
        self.it.node.event_log.show = self.told.append
        self.node = self.it.node

    def events(self) -> list[str]:
        return [each.event for each in self.told]

    def note(self) -> None:
        """Have it look at what is told now and then."""
        self.node.metrics.note_ms = 0
        self.node.metrics.tend(self.node.now_ms())


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    made = Watched(tmp_path / "q")
    yield made
    made.it.close()


def test_the_slowest_flush_since_the_last_look_is_told(watched: Watched) -> None:
    node = watched.node
    node.flusher.slowest_ns = 0
    node.flusher.run(node.log)
    assert node.flusher.slowest_ns == node.flusher.duration_ns > 0
    node.flusher.slowest_ns = SLOW_FLUSH_NS - 1
    watched.note()
    assert watched.told == [] and node.flusher.slowest_ns == 0
    node.flusher.slowest_ns = SLOW_FLUSH_NS
    node.flusher.run(node.log)  # a quick one behind it hides nothing
    watched.note()
    watched.note()
    assert [each.message for each in watched.told] == ["a flush of the log took 500 ms"]


def test_a_snapshot_that_was_taken_over_is_told_once(watched: Watched) -> None:
    watched.node.applier = SimpleNamespace(loaded=None, close=lambda: None, calls=None)
    watched.node.held_ns = 0
    try:
        watched.node.metrics._tell()
        watched.node.applier.loaded = OffsetAndEpoch(7, 2)
        watched.node.metrics._tell()
        watched.node.metrics._tell()
    finally:
        watched.node.applier = None
    assert [each.message for each in watched.told] == ["a state machine took over snapshot (7, 2)"]


def test_a_full_disk_and_its_end_are_told() -> None:
    told: list[Entry] = []
    log = SimpleNamespace(error=DiskFull("no space left"), active=SimpleNamespace(file=None))
    node: Any = SimpleNamespace(log=log, tell=EventLog(1, told.append).tell)
    node.core = SimpleNamespace(role="follower")
    space = DiskSpace()
    space.look_ms = 1 << 40
    for now_ms, error in ((0, None), (1, DiskFull("no space left")), (2, log.error), (3, None)):
        log.error = error
        space.tend(node, now_ms)
    assert [each.event for each in told] == ["disk_full", "disk_has_room"]


def test_records_that_do_not_check_are_told(watched: Watched) -> None:
    """But not what the leader cut or trimmed meanwhile, nor an answer that ends inside a batch."""
    told, log = watched.node.event_log, watched.node.log
    base = log.end_offset
    good, next_one = (batch([b"a"], base_offset=base + more, epoch=1) for more in (0, 1))
    damaged = next_one[:-1] + bytes([next_one[-1] ^ 1])
    for data in (good + next_one[:-1], damaged):
        answer = fetch.PartitionFetched()
        answer.records = data
        _, rejected = FetchedBytes(answer).copy_records(log, 1, watched.node.stats)
        if rejected:
            told.records_rejected(2, log)
    told.records_rejected(2, SimpleNamespace(fault=Fault.STALE))
    assert [each.message for each in watched.told] == [
        f"records of replica 2 from offset {base + 1} on are not taken: CRC-32C does not match "
        "-> fetched again"
    ]


def test_voters_and_reassignments_are_told(watched: Watched) -> None:
    node = watched.node
    own = node.voters
    other = Voter(2, bytes(16), ())
    node._carry_out([VotersChanged(1, VoterSet([*own, other]))])
    assert watched.told[0].fields == {
        "voters": [1, 2], "added": [2], "removed": [], "kraft_version": 1
    }  # fmt: skip
    answers: list[Any] = []
    request = SimpleNamespace(version=1, respond=answers.append)
    for target, error in (((2, 1), ErrorCode.NONE), (None, ErrorCode.NONE),
                          ((3,), ErrorCode.NOT_CONTROLLER)):  # fmt: skip
        Reassigning(request, True, node, target).reply(AlterPartitionReassignmentsResponse(error))
    assert watched.events() == ["voters_changed", "reassignment_begun", "reassignment_cancelled"]
    assert json.dumps(watched.told[1].fields) == '{"target": [1, 2]}' and len(answers) == 3
