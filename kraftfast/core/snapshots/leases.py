"""Keep the snapshot that a replica is fetching, and the log behind it, by a lease (KIP-630).

Without a lease, a leader that makes snapshots faster than a replica can fetch one deletes each
before it is fetched, and that replica never catches up. Kafka keeps a snapshot for a minute after
its successor (internal.metadata.delete.delay.millis); here each slice that advances restarts the
minute, and the log from the snapshot's end on is kept too, so that the replica can continue there.
Once it does, the log is kept from where it reads, for as long again as it took to fetch the
snapshot: a replica that is slower than the log grows must not keep all of it.

Bounds: one lease per replica, ``SNAPSHOT_LEASES_MAX`` in all. A lease ends a minute after the last
slice that advanced, ``SNAPSHOT_LEASE_MS_MAX`` after it began, as long after the last slice as that
came after the first once the replica reads the log, when it has caught up with the log, with the
leadership, or when the disk is full (``RetentionDue.urgent``). While there is one, a leader that
has ``LEASED_SNAPSHOTS_MAX`` snapshots makes no more.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast import limits
from kraftfast.core.messages import FetchSnapshotRequest
from kraftfast.core.replication.leader import Leader
from kraftfast.types import OffsetAndEpoch, ReplicaKey

NO_LEASE = 2**63 - 1
"""Above every offset."""


class Lease(Struct, eq=False):
    """The lease of one replica, which is fetching this snapshot from this leader.

    Invariants: ``begun_ms`` must not exceed ``renewed_ms``; ``position`` must never fall.
    """

    snapshot_id: OffsetAndEpoch
    position: int  # the furthest slice that was asked for begins here
    begun_ms: int
    renewed_ms: int  # when that slice was asked for

    def end_ms(self, reads: bool) -> int:
        """Return when this lease ends unless it is renewed; ``reads``: the log, no more slices."""
        by_time = self.begun_ms + limits.SNAPSHOT_LEASE_MS_MAX
        grace_ms = limits.SNAPSHOT_GRACE_MS
        if reads:
            grace_ms = min(grace_ms, self.renewed_ms - self.begun_ms)
        return min(self.renewed_ms + grace_ms, by_time)


def renew(leader: Leader, request: FetchSnapshotRequest, now_ms: int) -> None:
    """Begin or extend the lease of a replica that asks for a slice of a stored snapshot."""
    leases, key = leader.leases, request.replica
    lease = leases.get(key)
    if lease is not None and lease.snapshot_id == request.snapshot_id:
        if request.position > lease.position:
            lease.position, lease.renewed_ms = request.position, now_ms
    elif lease is not None or len(leases) < limits.SNAPSHOT_LEASES_MAX:
        leases[key] = Lease(request.snapshot_id, request.position, now_ms, now_ms)


def expire(leader: Leader, now_ms: int) -> None:
    """Drop the leases that have ended."""
    for key, lease in list(leader.leases.items()):
        progress = leader.find(key)
        caught_up = progress is not None and progress.last_caught_up_ms >= lease.renewed_ms
        reads = read_offset(leader, key, lease) > lease.snapshot_id.offset
        if caught_up or now_ms >= lease.end_ms(reads):
            del leader.leases[key]


def leased_offset(leader: Leader) -> int:
    """Return the highest offset at which the log may begin while leases are held."""
    offsets = [
        max(lease.snapshot_id.offset, read_offset(leader, key, lease))
        for key, lease in leader.leases.items()
    ]
    return min(offsets, default=NO_LEASE)


def read_offset(leader: Leader, key: ReplicaKey, lease: Lease) -> int:
    """Return up to where this replica has read the log since its last slice; -1: it has not."""
    progress = leader.find(key)
    if progress is None or progress.last_fetch_ms <= lease.renewed_ms:
        return -1
    return progress.read_end_offset if progress.stream else progress.acknowledged_end_offset
