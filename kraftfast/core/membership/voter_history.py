"""``kraft.version`` and the voter sets by offset: what the latest snapshot and the log say.

They are in force as soon as they are appended, committed or not, and undone by truncation
(KIP-853; Kafka's ``KRaftControlRecordStateMachine``, ``VoterSetHistory``).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from kraftfast.types import NO_OFFSET, KRaftVersion, KRaftVoters, ReplicaKey


class VoterHistory:
    """Every KRaftVersion and KRaftVoters record from the latest snapshot to the log's end.

    A snapshot's records are filed at its end offset less one, so those of the bootstrap snapshot
    at -1. Invariant: offsets strictly ascend in both lists.
    """

    def __init__(self, controls: Iterable[tuple[int, KRaftVersion | KRaftVoters]] = ()) -> None:
        self.versions: list[tuple[int, int]] = []  # (offset, kraft.version)
        self.voter_sets: list[tuple[int, KRaftVoters]] = []
        for offset, control in controls:
            self.add(offset, control)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, VoterHistory):
            return NotImplemented
        return (self.versions, self.voter_sets) == (other.versions, other.voter_sets)

    def add(self, offset: int, control: KRaftVersion | KRaftVoters) -> None:
        """Add a record that was appended or read. Raises ``ValueError`` where offsets do not
        ascend.
        """
        if isinstance(control, KRaftVersion):
            _append(self.versions, offset, control.kraft_version)
        else:
            _append(self.voter_sets, offset, control)

    def truncate_to(self, end_offset: int) -> bool:
        """Cut; return True if that undid a record. The bootstrap snapshot's stay."""
        entries: list[Any]
        undone = False
        for entries in (self.versions, self.voter_sets):
            while entries and entries[-1][0] >= max(end_offset, 0):
                entries.pop()
                undone = True
        return undone

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop records that are in a snapshot, but the newest of each kind."""
        entries: list[Any]
        for entries in (self.versions, self.voter_sets):
            below = sum(1 for offset, _ in entries if offset < start_offset)
            del entries[: max(below - 1, 0)]

    @property
    def kraft_version(self) -> int:
        """The one in force; 0 without any record."""
        return self.versions[-1][1] if self.versions else 0

    @property
    def latest(self) -> KRaftVoters | None:
        """The voters record in force."""
        return self.voter_sets[-1][1] if self.voter_sets else None

    @property
    def latest_offset(self) -> int:
        """Where the voters record in force stands; -1 for the bootstrap snapshot's or none."""
        return self.voter_sets[-1][0] if self.voter_sets else NO_OFFSET

    @property
    def before_latest(self) -> KRaftVoters | None:
        """The voters record before that in force, which is in force again if that is undone."""
        return self.voter_sets[-2][1] if len(self.voter_sets) > 1 else None

    @property
    def last_offset(self) -> int:
        """Where the latest record of either kind stands."""
        version_offset = self.versions[-1][0] if self.versions else NO_OFFSET
        return max(version_offset, self.latest_offset)

    def version_at(self, end_offset: int) -> int:
        """``kraft.version`` as of the records below ``end_offset``."""
        return next((each for at, each in reversed(self.versions) if at < end_offset), 0)

    def voters_at(self, end_offset: int) -> KRaftVoters | None:
        """Return the voters record as of those below ``end_offset``: what a snapshot holds."""
        return next((each for at, each in reversed(self.voter_sets) if at < end_offset), None)

    def may_count(self, key: ReplicaKey, committed_offset: int) -> bool:
        """Return whether this replica is in a set that may be the committed one, as far as is
        known.

        That is the latest committed set and every later one.
        """
        for offset, record in reversed(self.voter_sets):
            if record.voters.is_voter(key):
                return True
            if offset < committed_offset:
                return False
        return False

    def ever_named(self, key: ReplicaKey) -> bool:
        """Return whether some voter set of this history holds exactly this replica."""
        return any(key in record.voters.keys for _, record in self.voter_sets)

    def has_id(self, replica_id: int) -> bool:
        """Return whether some voter set of this history has a voter with this id."""
        return any(replica_id in record.voters for _, record in self.voter_sets)

    def named_below(self, key: ReplicaKey, offset: int) -> bool:
        """Return whether a voters record below ``offset`` holds exactly this replica."""
        return any(at < offset and key in record.voters.keys for at, record in self.voter_sets)

    @property
    def ended_target(self) -> tuple[int, ...] | None:
        """The latest target that was given up, by request or by a leader that does not know it."""
        if not self.voter_sets or self.voter_sets[-1][1].target is not None:
            return None
        records = [record for _, record in self.voter_sets]
        for before, after in zip(records[-2::-1], records[:0:-1], strict=True):
            if before.target is not None:
                reached = sorted(before.target) == list(after.voters.ids)
                return None if reached else before.target
        return None

    def uncommitted_sets(self, high_watermark: int) -> int:
        """Return how many voters records stand at or above an offset (I16)."""
        return sum(1 for offset, _ in self.voter_sets if offset >= high_watermark)


def _append(entries: list[Any], offset: int, value: object) -> None:
    if entries and offset <= entries[-1][0]:
        raise ValueError(f"a record at {offset} behind one at {entries[-1][0]}")
    entries.append((offset, value))
