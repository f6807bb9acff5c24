"""What the oracle knows of one replica's log: which batches, where, for certain or not."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, NamedTuple

from kraftfast.types import ElectionState, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.types import KRaftVersion, KRaftVoters


class BatchId(NamedTuple):
    """All bytes of a batch: the CRC covers what is not named here."""

    base_offset: int
    end_offset: int
    epoch: int
    crc: int
    size: int


class BatchEntry(NamedTuple):
    """One batch of a replica's log, and where it stands."""

    batch: BatchId
    segment_base: int
    position: int


class Shadow:
    """What the oracle knows of one replica's log.

    Invariants: ``entries`` are contiguous from ``start`` to ``end``; everything below ``durable``
    was seen on its disk.
    """

    entries: list[BatchEntry]
    start: int  # of the first entry: where the first segment, or the log itself, begins
    end: int
    durable: int
    high_watermark: int  # of the running process, -1 unknown (I6)
    being_cut: list[BatchEntry]  # of a cut under way: they may still come back (I14)
    installing: OffsetAndEpoch | None  # a snapshot that takes the log's place just now
    in_snapshot: int  # the process ended, and all below is in a snapshot on its disk
    lost_memory: bool  # the machine lost power, and what is left of this is not known yet
    promised: ElectionState | None  # what quorum-state was last seen to hold (I9)
    lost: tuple[int, int] | None  # last epoch and end of what damage took from its disk (D10)
    base_end: int  # where the log started when the process did, or a snapshot fetched since
    base: list[tuple[int, KRaftVersion | KRaftVoters]]  # the voters there
    changes: list[tuple[int, KRaftVersion | KRaftVoters]]  # and what its entries say of that

    def __init__(self) -> None:
        self.entries = []
        self.start = self.end = 0
        self.durable = 0
        self.high_watermark = -1
        self.being_cut = []
        self.installing = None
        self.in_snapshot = 0
        self.lost_memory = False
        self.promised = None
        self.lost = None
        self.base_end = 0
        self.base, self.changes = [], []

    def next_position(self, segment_base: int) -> int:
        """Return where the next batch of a segment stands, -1 if that is not known."""
        if self.entries and self.entries[-1].segment_base == segment_base:
            return self.entries[-1].position + self.entries[-1].batch.size
        return 0 if segment_base == self.end else -1

    def begin_at(self, offset: int, base: list[tuple[int, KRaftVersion | KRaftVoters]]) -> None:
        """Note that a snapshot stands in place of the log."""
        self.entries, self.changes = [], []
        self.start = self.end = self.durable = self.base_end = offset
        self.base = base

    def in_log_from(self) -> int:
        """Return where what its log has to have begins: what is below is in a snapshot."""
        return max(self.start, self.in_snapshot)

    def below(self, offset: int) -> BatchEntry | None:
        """Return the last batch that ends at or before ``offset``."""
        index = bisect_right(self.entries, offset, key=lambda entry: entry.batch.end_offset)
        return self.entries[index - 1] if index else None

    def between(self, start: int, end: int) -> list[BatchEntry]:
        """Return the batches from ``start`` up to ``end``."""
        first = bisect_left(self.entries, start, key=lambda entry: entry.batch.base_offset)
        last = bisect_right(self.entries, end, key=lambda entry: entry.batch.end_offset)
        return self.entries[first:last]


def was_writing(leader: Process | None, process: Process, position: int, data: bytes) -> bool:
    """Return whether a leader ended inside the pwrite of a batch that its successor here finds."""
    if leader is None or leader.alive or leader.machine is not process.machine:
        return False
    return was_cut(process, position, data)


def was_cut(process: Process, position: int, data: bytes) -> bool:
    """Return whether the process before this one ended inside the pwrite of these bytes."""
    cut = process.machine.disk.cut_write
    return cut is not None and cut.holds(position, data)
