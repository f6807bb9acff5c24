"""What the search and the oracle ask of a replica, read once for each of its states."""

from __future__ import annotations

from typing import NamedTuple

from kraftfast.core.replica import Replica
from kraftfast.types import OffsetAndEpoch, ReplicaKey, VoterSet
from tests.core.disk import Record
from tests.model import timeless
from tests.model.alone import Lone
from tests.model.happening import in_flight


class Seen(NamedTuple):
    """What the search and the oracle ask of a replica."""

    running: bool
    role: str
    epoch: int
    records: tuple[Record, ...]
    start: int
    flushed: int
    sure: int  # up to where it may acknowledge: what is on disk, or in memory if that is enough
    flushing: bool
    high_watermark: int
    timers: tuple[str, ...]
    waits_for: tuple[int, ...]  # peers that owe an answer
    memory_lost: bool
    phantom: OffsetAndEpoch | None  # how far the log may have gone, where its end is missing
    snapshots: tuple[int, ...]  # their end offsets
    probing: bool
    key: ReplicaKey
    voters: VoterSet  # as the log has them
    moves: bool  # a reassignment or another change of the voters is under way
    counted: tuple[tuple[int, bytes, int], ...]  # by a leader: id, directory, acknowledged offset
    heard: tuple[tuple[int, bytes], ...]  # by a leader: of each id the disk, where any is replaced
    confirmed: bool  # by a leader: whether any voter was heard in the latest round for readers
    told_committed: int  # the voters record that a leader tells to be committed, -1 for none
    text: str

    @property
    def posture(self) -> str:
        """The role, the epoch and the vote."""
        return self.text.partition(" [")[0]


def look(host: Lone, volatile: bool = False) -> Seen:
    """Read all of it once; ``volatile``: commits count what is in memory (durability=memory)."""
    disk, replica = host.disk, host.replica
    log = " ".join(f"{each.value}@{each.epoch}" for each in disk.records[disk.start :])
    state = disk.quorum_state
    voted = state.voted.id if state is not None and state.voted is not None else "-"
    key = ReplicaKey(host.id, host.directory_id)
    snapshots = tuple(sorted(each.offset for each in disk.snapshots))
    voters = disk.history().latest
    common = {
        "records": tuple(disk.records),
        "start": disk.start,
        "flushed": disk.flushed,
        "sure": len(disk.records) if volatile else disk.flushed,
        "key": key,
        "snapshots": snapshots,
        "phantom": host.phantom,
        "memory_lost": host.memory_lost,
        "voters": voters.voters if voters is not None else VoterSet(),
    }
    if replica is None:
        epoch = state.epoch if state is not None else 0
        text = f"down, e{epoch} voted {voted} [{log}] flushed {disk.flushed}"
        return Seen(
            running=False, role="down", epoch=epoch, flushing=False, high_watermark=-1,
            timers=(), waits_for=(), probing=False, moves=is_moving(host), counted=(), heard=(),
            confirmed=False, told_committed=-1, text=text, **common,
        )  # fmt: skip
    text = (
        f"{replica.role} e{replica.epoch} voted {voted} [{log}] from {disk.start} "
        f"flushed {disk.flushed} hw {replica.high_watermark}"
    )
    return Seen(
        running=True, role=str(replica.role), epoch=replica.epoch,
        flushing=host.flushing is not None, high_watermark=replica.high_watermark,
        timers=timeless.timers(replica), waits_for=tuple(sorted(in_flight(host))),
        probing=host.probing is not None, moves=is_moving(host), counted=counted(replica),
        heard=tuple(sorted(host.heard.items())), confirmed=is_confirmed(replica),
        told_committed=told_committed(replica), text=text, **common,
    )  # fmt: skip


def is_moving(host: Lone) -> bool:
    """Return whether a change of the voters is under way, which goes on without a new request."""
    latest = host.disk.history().latest
    if latest is not None and latest.target is not None:
        return True
    leader = timeless.state_of(host.replica).leader if host.replica is not None else None
    return leader is not None and leader.change is not None


def counted(replica: Replica) -> tuple[tuple[int, bytes, int], ...]:
    """Return what a leader takes each other voter to have on its disk."""
    leader = timeless.state_of(replica).leader
    if leader is None:
        return ()
    return tuple((*each.key, leader.acknowledged.get(each.slot)) for each in leader.voters.values())


def is_confirmed(replica: Replica) -> bool:
    leader = timeless.state_of(replica).leader
    return leader is not None and bool(leader.confirmed)


def told_committed(replica: Replica) -> int:
    """Return the offset of the voters that a leader's DescribeQuorum calls committed."""
    if replica.role != "leader" or replica.describe(timeless.NOW_MS).uncommitted_voter_change:
        return -1
    return int(replica.history.last_offset)
