"""Keep the snapshot that a replica is fetching, and the log behind it, by a lease (KIP-630).

Without a lease, a leader that makes snapshots faster than a replica can fetch one deletes each
before it is fetched, and that replica never catches up. Kafka keeps a snapshot for a minute after
its successor (internal.metadata.delete.delay.millis); here each slice that advances restarts the
minute, and the log from the snapshot's end on is kept too, so that the replica can continue there.
Once it reads the log, the log is kept from its position on while it gains on the leader. A replica
that is slower than the leader appends must not keep the whole log; a faster one must not be sent
back to each new snapshot (L5). The part that is kept shrinks with each look that renews the lease.

Bounds: one lease per replica, ``SNAPSHOT_LEASES_MAX`` in all. A lease ends a minute after the last
slice that advanced, or as long after it as it took to get there; once the replica reads the log,
when it has not come nearer to its end for twice as long as it took to get there, a minute at most;
``SNAPSHOT_LEASE_MS_MAX`` after it began, when the replica has caught up with the log, or with the
leadership. When the disk is full, or when a log without a state machine is half as long again as it
may be, what a lease keeps is given up all the same (``RetentionDue.urgent``); it lasts, so that the
replica is waited for when it comes back. While there is one, a leader that has
``LEASED_SNAPSHOTS_MAX`` snapshots makes no more.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast import limits
from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.messages import FetchSnapshotRequest
from kraftfast.core.replication.leader import Leader
from kraftfast.types import OffsetAndEpoch, ReplicaKey

NO_LEASE = 2**63 - 1
"""Above every offset."""


class Lease(Struct, eq=False):
    """The lease of one replica, which is fetching this snapshot from this leader.

    Invariants: ``begun_ms`` must not exceed ``renewed_ms``; ``position`` must never fall, and
    ``behind`` must never rise once it is known.
    """

    snapshot_id: OffsetAndEpoch
    position: int  # the furthest slice that was asked for begins here
    begun_ms: int
    renewed_ms: int  # when that slice was asked for
    reading_ms: int = NEVER_MS  # when it was first seen to read the log after the snapshot
    gained_ms: int = NEVER_MS  # when it was last seen nearer to the log's end than before
    behind: int = -1  # how near that was, records

    def end_ms(self, reads: bool) -> int:
        """Return when this lease ends unless it is renewed; ``reads``: the log, no more slices."""
        took_ms = self.renewed_ms - self.begun_ms  # as long as that its check may take (L5)
        end_ms = self.renewed_ms + max(limits.SNAPSHOT_GRACE_MS, took_ms)
        if reads:
            grace_ms = 2 * (self.reading_ms - self.begun_ms)  # it comes nearer answer by answer
            end_ms = self.gained_ms + min(limits.SNAPSHOT_GRACE_MS, grace_ms)
        return min(end_ms, self.begun_ms + limits.SNAPSHOT_LEASE_MS_MAX)

    def note_read(self, behind: int, now_ms: int) -> None:
        """Record how many records the replica, which reads the log, is behind its end."""
        self.reading_ms = min(self.reading_ms, now_ms)
        if self.behind < 0 or behind < self.behind:
            self.behind, self.gained_ms = behind, now_ms


def renew(leader: Leader, request: FetchSnapshotRequest, now_ms: int) -> None:
    """Begin or extend the lease of a replica that asks for a slice of a stored snapshot."""
    leases, key = leader.leases, request.replica
    lease = leases.get(key)
    if lease is not None and lease.snapshot_id == request.snapshot_id:
        if request.position > lease.position:
            leases[key] = Lease(lease.snapshot_id, request.position, lease.begun_ms, now_ms)
    elif lease is not None or len(leases) < limits.SNAPSHOT_LEASES_MAX:
        leases[key] = Lease(request.snapshot_id, request.position, now_ms, now_ms)


def expire(leader: Leader, log_end_offset: int, now_ms: int) -> None:
    """Drop the leases that have ended."""
    for key, lease in list(leader.leases.items()):
        progress = leader.find(key)
        caught_up = progress is not None and progress.last_caught_up_ms >= lease.renewed_ms
        offset = copied_end_offset(leader, key, lease)
        reads = offset > lease.snapshot_id.offset
        if reads:
            lease.note_read(log_end_offset - offset, now_ms)
        if caught_up or now_ms >= lease.end_ms(reads):
            del leader.leases[key]


def leased_offset(leader: Leader) -> int:
    """Return the highest offset at which the log may begin while leases are held."""
    offsets = [
        max(lease.snapshot_id.offset, copied_end_offset(leader, key, lease))
        for key, lease in leader.leases.items()
    ]
    return min(offsets, default=NO_LEASE)


def copied_end_offset(leader: Leader, key: ReplicaKey, lease: Lease) -> int:
    """Return up to where this replica has read the log since its last slice; -1: it has not."""
    progress = leader.find(key)
    if progress is None or progress.last_fetch_ms <= lease.renewed_ms:
        return -1
    return progress.copied_end_offset if progress.stream else progress.acknowledged_end_offset
