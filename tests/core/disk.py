"""What stands under a replica in tests: a disk in memory, messages on their way, chance by script.

The log is a list of records in memory with a flushed end; what is not flushed goes with a crash.
A record's value names the epoch and a number that is never used twice, so that two logs that hold
the same (offset, epoch) can be compared (I2).
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random
from typing import Any, NamedTuple

from kraftfast.core.membership.voter_controls import VoterControls
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.core.trail import EpochTrail
from kraftfast.types import (
    ElectionState,
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    OffsetAndEpoch,
    ReplicaKey,
    Voter,
)

RECORD_BYTES = 100


class Record(NamedTuple):
    epoch: int
    value: str
    control: KRaftVersion | KRaftVoters | None = None
    batch: int = 0  # of several records, which stand or fall together; 0: one record alone


GONE = Record(0, "in a snapshot")
"""Stands where the log's start has moved on."""


class NoJitter(Random):
    """Chance that a script controls: the next draws, then always the lowest."""

    def __init__(self) -> None:
        super().__init__(0)
        self.draws: deque[int] = deque()

    def randrange(self, start: int, *_: Any) -> int:  # only randrange(n) is used
        return self.draws.popleft() if self.draws else 0

    def choice(self, options: Any) -> Any:
        return options[0]


@dataclass
class Disk:
    """What one replica has: the log in memory, and what of it and of quorum-state is on disk.

    ``records`` holds ``GONE`` below ``start``; ``bootstrap`` is what the 0-0 snapshot says.
    """

    records: list[Record] = field(default_factory=list)
    flushed: int = 0
    floor: int = 0  # committed and flushed, as the floor's file says (D23)
    quorum_state: ElectionState | None = None
    truncations: int = 0
    start: int = 0
    bootstrap: tuple[KRaftVersion | KRaftVoters, ...] = ()
    snapshots: dict[OffsetAndEpoch, tuple[KRaftVersion | KRaftVoters, ...]] = field(
        default_factory=dict
    )

    def trail(self) -> EpochTrail:
        trail = EpochTrail()
        for offset, record in enumerate(self.records[self.start :], self.start):
            trail.assign(record.epoch, offset)
        return trail

    def history(self) -> VoterHistory:
        """What a replay of snapshot and log says of the voters (I16)."""
        first = self.bootstrap
        for snapshot_id, controls in self.snapshots.items():
            if snapshot_id.offset == self.start:
                first = controls
        history = VoterHistory([(self.start - 1, control) for control in first])
        for offset, control in controls_of(self.records, self.start):
            history.add(offset, control)
        return history

    def lose_power(self, keep: int | None = None) -> None:
        """Unflushed records are lost, but for ``keep`` of them; no batch is kept in part."""
        end = min(self.flushed + (keep or 0), len(self.records))
        while splits_batch(self.records, end):
            end -= 1
        del self.records[end:]
        self.flushed = min(self.flushed, len(self.records))

    def lose_flushed(self, count: int) -> None:
        """The last records that were flushed cannot be read any more, nor what follows them.

        A batch of several goes as a whole.
        """
        if count:
            end = max(self.flushed - count, self.start)
            while splits_batch(self.records, end):
                end -= 1
            del self.records[end:]
            self.flushed = len(self.records)


def splits_batch(records: list[Record], offset: int) -> bool:
    """Whether a batch reaches across this offset."""
    if not 0 < offset < len(records):
        return False
    return records[offset].batch != 0 and records[offset].batch == records[offset - 1].batch


def controls_of(records: list[Record], start: int) -> VoterControls:
    """The records from ``start`` on that change who counts, with their offsets."""
    return tuple(
        (offset, record.control)
        for offset, record in enumerate(records[start:], start)
        if record.control is not None
    )


def filed_from(history: VoterHistory, start: int) -> VoterHistory:
    """The same, with what stands below ``start`` filed where a snapshot's records are."""
    filed = VoterHistory()
    filed.versions = [(max(offset, start - 1), each) for offset, each in history.versions]
    filed.voter_sets = [(max(offset, start - 1), each) for offset, each in history.voter_sets]
    return filed


@dataclass
class Message:
    """On its way from one replica to another."""

    source: int
    target: int
    correlation: int
    body: Any
    is_request: bool
    records: tuple[Record, ...] = ()
    base_offset: int = -1  # of the first record, as a batch says it
    snapshot: tuple[KRaftVersion | KRaftVoters, ...] = ()  # what its slices will amount to

    def resume(self) -> None:
        """Later answers of the same peer wait in the world."""


class Origin(NamedTuple):
    """What a request's ``source`` is here: who asked, under which correlation."""

    peer_id: int
    correlation: int


def endpoint_of(id: int) -> Endpoint:
    return Endpoint("CONTROLLER", f"host{id}", 9000 + id)


def voter_of(key: ReplicaKey) -> Voter:
    """A voter's entry as it writes it itself."""
    return Voter(key.id, key.directory_id, (endpoint_of(key.id),), 0, 1)


def log_of(*runs: tuple[int, int]) -> list[Record]:
    """Records of (epoch, end offset) runs: ``log_of((1, 5), (3, 10))``."""
    records: list[Record] = []
    for epoch, end in runs:
        while len(records) < end:
            records.append(Record(epoch, f"{len(records)}@{epoch}"))
    return records
