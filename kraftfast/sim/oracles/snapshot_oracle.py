"""What must hold of snapshots, and of logs that begin at one (KIP-630): I15, I8, I19."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, cast

from kraftfast.errors import CorruptBatch, CorruptLog
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.node.snapshots.replica_snapshots import filed, is_trim
from kraftfast.record import pure
from kraftfast.sim.machines.small_file import SmallFile
from kraftfast.sim.oracles.producer_oracle import check_producers
from kraftfast.sim.require import require
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.shadow import BatchId
    from kraftfast.sim.oracles.world_invariants import Oracle


class SnapshotOracle:
    """Knows every state that a state machine came to."""

    states: dict[int, int]  # by end of a batch of records: the digest of all up to it

    def __init__(self, oracle: Oracle) -> None:
        self.oracle, self.world = oracle, oracle.world
        self.states = {0: 0}
        self._starts: dict[int, tuple[Process, int]] = {}  # replica -> log start that was checked

    def state_at(self, offset: int) -> int:
        """Return the digest of all batches of records below ``offset``."""
        committed = self.oracle.committed
        index = bisect_right(committed, offset, key=lambda each: each.end_offset)
        while index and committed[index - 1].end_offset not in self.states:
            index -= 1  # control batches
        return self.states[committed[index - 1].end_offset if index else 0]

    def follows(self, end_offset: int, base_offset: int) -> bool:
        """Return whether no records are committed from ``end_offset`` to ``base_offset``."""
        if end_offset == base_offset:
            return True
        between = pure.batches(self.oracle.content(end_offset, base_offset))
        return end_offset < base_offset and all(each.is_control for each in between)

    def applied(self, process: Process, end_offset: int, digest: int) -> None:
        """I19: the same sequence everywhere, and nothing that is not committed."""
        require(
            end_offset <= self.oracle.committed_end,
            f"I19: {process.id} applied {end_offset} of {self.oracle.committed_end}",
        )
        known = self.states.setdefault(end_offset, digest)
        require(known == digest, f"I19: {process.id} came to another state at {end_offset}")

    def boundary(self, snapshot_id: OffsetAndEpoch) -> BatchId | None:
        """Return the committed batch that ends where a snapshot does, if there is one."""
        committed = self.oracle.committed
        index = bisect_left(committed, snapshot_id.offset, key=lambda each: each.end_offset)
        if index == len(committed) or committed[index].end_offset != snapshot_id.offset:
            return None
        return committed[index] if committed[index].epoch == snapshot_id.epoch else None

    def created(self, process: Process, snapshot_id: OffsetAndEpoch) -> None:
        """I15: of what is committed, and on disk here."""
        shadow = self.oracle.shadow(process.id)
        stored = shadow.durable if process.durability != "memory" else shadow.end
        require(
            snapshot_id.offset <= min(stored, shadow.high_watermark),
            f"I15: {process.id} makes a snapshot at {snapshot_id} with {stored} on disk and "
            f"{shadow.high_watermark} committed",
        )
        self.stands(process.machine, snapshot_id)

    def installs(self, process: Process, snapshot_id: OffsetAndEpoch) -> None:
        """I7: a log that gives way to a snapshot loses nothing that is committed."""
        self.oracle.observe(process)
        shadow = self.oracle.shadow(process.id)
        require(
            shadow.high_watermark <= snapshot_id.offset,
            f"I7: {process.id} goes back from {shadow.high_watermark} to {snapshot_id}",
        )
        for entry in shadow.between(snapshot_id.offset, shadow.end):
            require(
                not self.oracle.is_committed(entry.batch),
                f"I7: {process.id} drops {entry.batch} for {snapshot_id}, and it is committed",
            )
        shadow.installing = snapshot_id

    def installed(self, process: Process, snapshot_id: OffsetAndEpoch) -> None:
        """Check that it stands in place of the log, or that everything is as it was."""
        shadow, log = self.oracle.shadow(process.id), process.log
        shadow.installing = None
        if log.log_start_offset != snapshot_id.offset or log.end_offset != snapshot_id.offset:
            self.world.count("snapshots refused")
            return
        self.world.count("snapshots installed")
        check_producers(process)
        self.stands(process.machine, snapshot_id)
        shadow.begin_at(snapshot_id.offset, self.oracle.voters.filed(snapshot_id.offset))

    def deleted_before(self, process: Process, offset: int) -> None:
        """Note that the log begins later; the snapshot says who votes where it begins."""
        self.world.count("log starts moved")
        self.check(process)
        check_producers(process)
        shadow = self.oracle.shadow(process.id)
        start = process.log.segments[0].base_offset
        shadow.entries = [each for each in shadow.entries if each.batch.base_offset >= start]
        shadow.start = max(shadow.start, start)
        shadow.durable = max(shadow.durable, offset)

    def crashed(self, process: Process) -> None:
        """Note what a snapshot has that the log may lack: it may have ended as its log was cut."""
        shadow, machine = self.oracle.shadow(process.id), process.machine
        starts = {process.log.log_start_offset}
        if shadow.installing is not None:
            starts.add(shadow.installing.offset)
        for each in snapshot_ids(cast("Disk", machine.disk), process.directory.log_path):
            if each.offset in starts and self.is_stored(machine, each):
                shadow.in_snapshot = max(shadow.in_snapshot, each.offset)

    def check(self, process: Process) -> None:
        """I15: a log that does not begin at 0 begins where a snapshot ends, which is on disk."""
        log = process.log
        start = (process, log.log_start_offset)
        if self._starts.get(process.id) == start or log.log_start_offset == 0:
            return
        self._starts[process.id] = start
        found = [
            each
            for each in snapshot_ids(process.disk, process.directory.log_path)
            if each.offset == log.log_start_offset and each != BOOTSTRAP
        ]
        require(bool(found), f"I15: {process.id} begins at {log.log_start_offset}, at no snapshot")
        self.stands(process.machine, found[-1])

    def _path(self, machine: Machine, snapshot_id: OffsetAndEpoch) -> str:
        return snapshot_path(self.world.log_path(machine), snapshot_id)

    def is_stored(self, machine: Machine, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether all that was written of it is on the disk, under its name."""
        file = machine.disk.stable_file(self._path(machine, snapshot_id))
        return isinstance(file, SmallFile) and file.stable == file.data

    def stands(self, machine: Machine, snapshot_id: OffsetAndEpoch) -> None:
        """Whole, on disk under its name, and of the committed log (I8)."""
        require(
            self.is_stored(machine, snapshot_id),
            f"I15: snapshot {snapshot_id} of {machine.id} is not on its disk",
        )
        require(
            self.boundary(snapshot_id) is not None,
            f"I15: snapshot {snapshot_id} of {machine.id} ends where nothing committed does",
        )
        try:
            with SnapshotReader(
                cast("Disk", machine.disk), self._path(machine, snapshot_id)
            ) as reader:
                controls = filed(snapshot_id, reader.controls)
                values = [bytes(record.value or b"") for record in reader.records()]
                trim = is_trim(reader.header)
        except (CorruptLog, CorruptBatch):
            require(machine.rotten, f"I15: snapshot {snapshot_id} of {machine.id} is damaged")
            return  # its reader finds that, too
        expected = self.oracle.voters.filed(snapshot_id.offset)
        require(
            controls == expected,
            f"I8: snapshot {snapshot_id} of {machine.id} says {controls}, the log {expected}",
        )
        if not trim and self.world.settings.snapshots == "machine":
            state = b":%d" % self.state_at(snapshot_id.offset)
            require(
                values[0].endswith(state),
                f"I8: snapshot {snapshot_id} of {machine.id}: {values[0]!r}",
            )
