"""A replica that is behind a snapshot gets room for it from files that wait to be used again."""

from __future__ import annotations

from typing import Any

from kraftfast.errors import DiskFull
from kraftfast.node.state_machine import StateMachine
from kraftfast.testing import simulated
from tests.log.kit import KIB

RECORD = bytes(20_000)
STATE_KIB = 60


class Large(StateMachine):
    """One number, in a snapshot that needs room."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: Any) -> None:
        self.count += sum(1 for _ in batch.records())

    def snapshot(self, writer: Any) -> None:
        writer.append(b"%d" % self.count)
        writer.extend([bytes(KIB)] * STATE_KIB)

    def restore(self, reader: Any) -> None:
        for place, record in enumerate(reader.records()):
            if not place:
                self.count = int(record.value)

    def query(self, _what: str) -> int:
        return self.count


def test_a_replica_that_is_behind_gets_their_blocks() -> None:
    """L5: it appends nothing before it has the snapshot, so its log never used the files."""
    quorum = simulated(1, state_machine=Large, snapshot_bytes=1_300_000, retention_bytes=0)

    def fill(records: int) -> int:
        for _ in range(records):
            end: int = quorum.append_wait(RECORD, timeout_ms=60_000) + 1
        return end

    fill(190)
    quorum.advance(5000)
    behind = next(
        id
        for id in quorum.ids
        if id != quorum.leader() and quorum._process(id).log.nursery.recycled
    )
    others = [id for id in quorum.ids if id != behind]
    for id in others:
        quorum.cut_link(id, behind)
    end = fill(200)
    leader = quorum.wait_leader()
    assert quorum._process(leader).log.log_start_offset > quorum._process(behind).log.end_offset
    quorum._machine(behind).disk.fill_up(0)
    for id in others:
        quorum.heal_link(id, behind)
    quorum.wait(lambda: quorum._process(behind).log.end_offset >= end, timeout_ms=60_000)
    assert not isinstance(quorum._process(behind).log.error, DiskFull)
