"""Snapshots of a state machine: when one is made, how, and how one is taken over (KIP-630).

All of this runs in the applier's thread, so that the state stands still meanwhile; the loop is
asked whether a snapshot is wanted and what it says of voters, and told when it is there. Kafka's
``SnapshotGenerator``: so many bytes of the log after the last one, or so much time.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.errors import FlushFailed, StorageError
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader, open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.failures import Unanswered
from kraftfast.node.snapshots.replica_snapshots import is_trim
from kraftfast.types import NO_NODE, OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.node.node import Node
    from kraftfast.node.snapshots.replica_snapshots import Controls
    from kraftfast.node.threads.applier import Applier
    from kraftfast.record.batch import BatchView
    from kraftfast.types import Tags

    Beside = tuple[Controls, Tags]

RETRY_S = 1.0
RETRY_S_MIN = 0.03
"""What is applied may not be on this disk yet: a flush is soon done."""
HELD_PART = 4
"""A leader makes no snapshot that took the last time this part of the fetch timeout."""
HAND_OVERS_MAX = 3
"""After so many attempts to hand over it makes it nevertheless."""
ANSWER_S = 0.05


def newest_snapshot(disk: Disk, log_path: str) -> OffsetAndEpoch | None:
    """Return the newest snapshot on disk, but not the bootstrap's."""
    ids = [each for each in snapshot_ids(disk, log_path) if each != BOOTSTRAP]
    return ids[-1] if ids else None


def newest_is_trim(disk: Disk, log_path: str) -> bool:
    """Return whether the newest snapshot holds no state. Raises CorruptLog."""
    newest = newest_snapshot(disk, log_path)
    if newest is None:
        return False
    with open_snapshot(disk, log_path, newest) as reader:
        return is_trim(reader.header)


def turn_of(id: int, voter_ids: Sequence[int]) -> float:
    """Return how much later a replica makes its first snapshot, as a part of the time between two.

    A snapshot may hold up its replica: not all of them are to make theirs at once.
    """
    if id not in voter_ids:
        return 0.0
    return sorted(voter_ids).index(id) / len(voter_ids)


class Making:
    """Makes the snapshots of one state machine."""

    # node, disk, log_path: whose. bytes_max, interval_s: when one is due; 0: never by time.
    # bytes: applied since the last one. last_s: when that was. last: the batch applied last, as
    # (end offset, epoch, timestamp). not_before_s: one that could not be made is tried again then.
    # _retry_s: how long after it the loop is asked again.
    # took_ns: how long the machine wrote the last one. handed_over: how often this leader asked
    # another replica to lead before the next one.

    def __init__(self, node: Node) -> None:
        config = node.config
        self.node, self.disk, self.log_path = node, node.disk, node.directory.log_path
        self._now_s, self._event = node.host.threads.monotonic, node.host.threads.event
        self.bytes_max = config.snapshot_bytes
        self.interval_s = config.snapshot_interval_ms / 1000
        self.bytes, self.last_s = 0, self._now_s()
        if newest_snapshot(self.disk, self.log_path) is None:  # else the turns are as they were
            turn = turn_of(config.node_id, node.core.voters.ids)
            self.bytes = -int(self.bytes_max * turn)
            self.last_s += self.interval_s * turn
        self.last: tuple[int, int, int] | None = None
        self.not_before_s, self._retry_s = 0.0, RETRY_S_MIN
        self.took_ns = self.handed_over = 0

    def restore(self, applier: Applier, reader: SnapshotReader) -> None:
        """Restore the state of a snapshot; read all of it, so that damage is found."""
        assert not is_trim(reader.header), "such a snapshot was refused when it came"
        with reader.lent():
            applier.calls.run(applier.machine.restore, reader, lent=reader)
        reader.check()
        self.bytes, self.last, self.last_s = 0, None, self._now_s()

    def applied(self, applier: Applier, batch: BatchView) -> None:
        """Record that a batch was applied, and make a snapshot if one is due."""
        self.bytes += batch.size
        self.last = batch.last_offset + 1, batch.leader_epoch, batch.max_timestamp
        if self.bytes >= self.bytes_max:
            self.look(applier)

    def look(self, applier: Applier) -> None:
        """Make one if it is due. A witness makes none."""
        now_s = self._now_s()
        if self.node.witness or self.last is None or now_s < self.not_before_s:
            return
        by_time = 0 < self.interval_s <= now_s - self.last_s
        if self.bytes >= self.bytes_max or by_time:
            self._make(applier)

    def wait_s(self) -> float:
        """Return after how many seconds it is worth a look, if nothing is applied meanwhile."""
        if self.node.witness or self.last is None or self.bytes < self.bytes_max:
            return RETRY_S
        return max(RETRY_S_MIN, self.not_before_s - self._now_s())

    def _make(self, applier: Applier) -> None:
        assert self.last is not None
        offset, epoch, timestamp = self.last
        snapshot_id = OffsetAndEpoch(offset, epoch)
        permitted = self._ask(applier, snapshot_id)
        if permitted is None:
            return
        controls, footer = permitted
        try:
            with SnapshotWriter(
                self.disk,
                self.log_path,
                snapshot_id,
                last_contained_log_timestamp=max(timestamp, 0),
                controls=controls,
            ) as writer:
                began_ns = self.node.host.monotonic_ns()
                with writer.lent():
                    applier.calls.run(applier.machine.snapshot, writer, lent=writer)
                self.took_ns = self.node.host.monotonic_ns() - began_ns
                writer.freeze(footer)
        except FlushFailed:
            raise  # D9
        except StorageError as error:  # no space: the log goes on without
            self.not_before_s = self._now_s() + RETRY_S
            failed = error
            self.node.background.tell(lambda: self._failed(failed))
            return
        self.bytes, self.last, self.last_s = 0, None, self._now_s()
        self.handed_over, self._retry_s = 0, RETRY_S_MIN
        self.node.background.tell(lambda: self.node.snapshots.created(snapshot_id))

    def _failed(self, error: StorageError) -> None:
        """Report it, and make room for the next attempt; in the loop."""
        self.node.log.nursery.make_way_for(error)
        self.node.tell("snapshot_failed", why=str(error))

    def _hands_over(self) -> bool:
        """Have another voter lead first if this one may be held up for too long; in the loop.

        A machine that writes its state without letting go of the interpreter silences its leader.
        """
        core = self.node.core
        limit_ns = self.node.config.fetch_timeout_ms * 1_000_000 // HELD_PART
        if core.role != "leader" or self.took_ns < limit_ns or len(core.voters.ids) < 2:
            return False
        self.handed_over += 1
        if self.handed_over > HAND_OVERS_MAX:
            return False  # no other voter takes over
        self.node.step(ev.TransferRequested(Unanswered(), NO_NODE))
        return True

    def _ask(self, applier: Applier, snapshot_id: OffsetAndEpoch) -> Beside | None:
        """Ask the loop what belongs into the snapshot beside the state; None: not now."""
        answered = self._event()
        answer: list[Beside] = []
        self.not_before_s = self._now_s() + self._retry_s
        self._retry_s = min(2 * self._retry_s, RETRY_S)

        def permit() -> None:
            snapshots = self.node.snapshots
            if self._hands_over():  # asked again later, when another replica leads
                self.not_before_s = self._now_s() + RETRY_S
            elif snapshots.permits(snapshot_id):
                offset = snapshot_id.offset
                footer = snapshots.footer_at(offset)
                if footer is not None:
                    answer.append((snapshots.controls_at(offset), footer))
            answered.set()

        self.node.background.tell(permit)
        while not answered.wait(ANSWER_S):
            if applier.ending:
                return None
        return answer[0] if answer else None
