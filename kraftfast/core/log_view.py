"""All that the core knows of its replica's log: offsets and epochs, never a byte of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from kraftfast.core.trail import EpochTrail
from kraftfast.types import OffsetAndEpoch

NEVER_MS = 2**62
"""A deadline that does not come."""


@dataclass(eq=False)
class LogView:
    """The log as the core sees it, and which part of it is on disk.

    Invariants (I11, I15): a log that does not start at 0 starts where its earliest snapshot ends;
    ``start_offset <= flushed_end_offset <= end_offset``; at most one flush is under way; the
    trail's last start is not above ``end_offset``.
    """

    trail: EpochTrail  # epoch -> start offset
    start_offset: int  # of the first record still there
    end_offset: int  # exclusive end of what was appended
    flushed_end_offset: int  # exclusive end of what is on disk, in front of which nothing is not
    in_memory: bool  # durability=memory: appended is as good as flushed
    # when the oldest record was appended that no flush covers; of a tail that recovery could not
    # vouch for: now
    unflushed_since_ms: int
    # ascending, without the bootstrap snapshot
    snapshots: list[OffsetAndEpoch] = field(default_factory=list)
    truncations: int = 0  # how often the log was cut (D2); the log counts along
    flushing: bool = False  # a flush is under way
    flushing_end_offset: int = -1  # up to where it was asked for; it may end before that
    flushing_bytes: int = 0  # what it covers at least
    flushing_since_ms: int = NEVER_MS  # when the oldest record of it was appended
    unflushed_bytes: int = 0  # appended since that flush began, as far as is known
    # durability=memory: what lies between must be on disk before it is acknowledged; none if the
    # second is not above the flushed end
    held_from: int = 0
    held_to: int = 0

    def __post_init__(self) -> None:
        if self.ackable_end_offset() == self.end_offset:
            self.unflushed_since_ms = NEVER_MS

    def ackable_end_offset(self) -> int:
        """Return the end of what this replica may acknowledge and count itself for (D1, D3).

        What it has flushed; with durability=memory all that it has, but for what is on hold.
        """
        if not self.in_memory:
            return self.flushed_end_offset
        if self.held_to <= self.flushed_end_offset:
            return self.end_offset
        return max(self.flushed_end_offset, self.held_from)

    def hold(self, from_offset: int) -> None:
        """Acknowledge nothing from ``from_offset`` to the end before it is on disk (D10).

        For durability=memory, and for what decides who votes: else a power cut on a minority could
        take a replica back to a voter set that it is the whole of, and it would elect itself.
        """
        if not self.in_memory or from_offset >= self.end_offset:
            return
        if self.held_to <= self.flushed_end_offset:
            self.held_from = from_offset
        self.held_to = self.end_offset

    def last_epoch(self) -> int:
        """Return the epoch of the last record, in the log or in the snapshot that the log goes on
        from.

        An epoch without records does not count: of a leader whose log had no room for the first
        one. No other log has it, so that it would look like a divergence for ever where the log
        begins at its end (L5).
        """
        epoch = self.trail.epoch_at(self.end_offset - 1)
        if epoch < 0:
            return self.snapshots[-1].epoch if self.snapshots else 0
        return epoch

    def epoch_before(self, end_offset: int) -> int:
        """Return the epoch of the record before an offset that is not below the log's start."""
        if end_offset == self.start_offset and self.snapshots:
            return self.snapshots[0].epoch
        return self.trail.epoch_at(end_offset - 1)

    def install(self, snapshot_id: OffsetAndEpoch) -> None:
        """Record that a snapshot stands in place of everything, on disk."""
        offset = snapshot_id.offset
        self.snapshots = [snapshot_id]
        self.trail.truncate_to(0)
        self.start_offset = self.end_offset = self.flushed_end_offset = offset
        self.held_from = self.held_to = offset
        self.truncations += 1
        self.unflushed_bytes = 0
        self.unflushed_since_ms = NEVER_MS

    def delete_before(self, start_offset: int) -> None:
        """Have the log begin at the end of one of its snapshots from now on (I15)."""
        self.start_offset = start_offset
        self.flushed_end_offset = max(self.flushed_end_offset, start_offset)  # memory alone
        self.trail.truncate_from_start(start_offset)
        self.snapshots = [each for each in self.snapshots if each.offset >= start_offset]

    def appended(self, end_offset: int, size: int, now_ms: int) -> None:
        """Record that the log grew by ``size`` bytes up to ``end_offset``."""
        if end_offset == self.end_offset:
            return
        assert end_offset > self.end_offset, (
            f"the log shrank from {self.end_offset} to {end_offset} without a cut"
        )
        self.end_offset = end_offset
        if self.in_memory:
            return
        if self.unflushed_since_ms == NEVER_MS:
            self.unflushed_since_ms = now_ms
        self.unflushed_bytes += size if size > 0 else 1

    def begin_flush(self) -> None:
        """Record that a flush of everything appended so far is asked for."""
        assert not self.flushing, "one flush at a time"
        self.flushing = True
        self.flushing_end_offset = self.end_offset
        self.flushing_bytes = self.unflushed_bytes
        self.flushing_since_ms = self.unflushed_since_ms
        self.unflushed_bytes = 0
        self.unflushed_since_ms = NEVER_MS

    def flushed(self, end_offset: int, truncations: int) -> bool:
        """Record that a flush completed; return True if more is on disk than was known.

        One that began before a cut says nothing about what stands there now (D2). What one that
        ended early did not reach goes on waiting for the disk, as long as before (D14).
        """
        stale = truncations != self.truncations
        assert stale or end_offset <= self.end_offset, (
            f"flushed to {end_offset}, beyond the end {self.end_offset} (I11)"
        )
        moved = not stale and end_offset > self.flushed_end_offset
        if moved:
            self.flushed_end_offset = end_offset
        if self.flushed_end_offset == self.end_offset:
            self.unflushed_bytes = 0
            self.unflushed_since_ms = NEVER_MS
        elif stale or end_offset < self.flushing_end_offset:
            self.unflushed_bytes += self.flushing_bytes
            self.unflushed_since_ms = min(self.unflushed_since_ms, self.flushing_since_ms)
        self.flushing = False
        self.flushing_bytes = 0
        self.flushing_since_ms = NEVER_MS
        return moved

    def truncate(self, end_offset: int) -> None:
        """Record that the log was cut: nothing from ``end_offset`` on counts as flushed (D8)."""
        assert self.start_offset <= end_offset < self.end_offset
        self.end_offset = end_offset
        self.flushed_end_offset = min(self.flushed_end_offset, end_offset)
        self.trail.truncate_to(end_offset)
        self.held_from = min(self.held_from, end_offset)
        self.held_to = min(self.held_to, end_offset)
        self.truncations += 1
        if self.flushed_end_offset == end_offset:
            self.unflushed_bytes = 0
            self.unflushed_since_ms = NEVER_MS

    def oldest_unflushed_ms(self) -> int:
        """Return when the oldest record that is not known to be on disk was appended."""
        return min(self.flushing_since_ms, self.unflushed_since_ms)

    def check_invariants(self) -> None:
        """Assert what the class promises."""
        assert 0 <= self.start_offset <= self.flushed_end_offset <= self.end_offset  # I11
        assert self.start_offset == 0 or self.snapshots[0].offset == self.start_offset  # I15
        assert not self.snapshots or self.snapshots[-1].offset <= self.end_offset
        entries = self.trail.entries
        assert not entries or entries[-1][1] <= self.end_offset
        assert self.flushed_end_offset < self.end_offset or self.unflushed_bytes == 0
        assert 0 <= self.held_from <= self.held_to <= self.end_offset
