"""Disks that change, or lose, what they were given: segments and small files, at rest or in use.

Only on a minority, which the rest can do without: what must hold is that nothing wrong is believed.
A replica that finds damage refuses to start, or mends it; a lost vote, or a lost segment, is told.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING, NamedTuple, cast

from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.small_files import quorum_state
from kraftfast.log.small_files.committed_floor import FLOOR, read_floor
from kraftfast.log.small_files.epoch_checkpoint import NAME as EPOCH_CHECKPOINT
from kraftfast.log.small_files.marks import DURABLE_END, PHANTOM_TAIL
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, SUFFIX, snapshot_ids, snapshot_path
from kraftfast.sim.machines.file_names import DirNode, File
from kraftfast.sim.machines.paged_file import PagedFile
from kraftfast.sim.machines.small_file import SmallFile

if TYPE_CHECKING:
    from kraftfast.log.disk import Disk
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.oracles.shadow import BatchEntry
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import World

KINDS = (quorum_state.NAME, EPOCH_CHECKPOINT, FLOOR, DURABLE_END, PHANTOM_TAIL, SUFFIX)
LOSABLE = (quorum_state.NAME, EPOCH_CHECKPOINT, DURABLE_END, SUFFIX, LOG_SUFFIX)
"""Kinds of files whose loss alone must do no harm; nothing else shows a lost phantom tail."""
CRC_AT = 17
"""Offset and epoch before it are covered by nothing; a start compares them with checkpoints."""


class Named(NamedTuple):
    """A file under its name."""

    directory: DirNode
    name: str
    file: File


def files_in(directory: DirNode) -> Iterator[Named]:
    """Yield every file below a directory."""
    for name, node in sorted(directory.entries.items()):
        if isinstance(node, DirNode):
            yield from files_in(node)
        else:
            yield Named(directory, name, node)


class Rotting:
    """The half of a :class:`~kraftfast.sim.faults.nemesis.Nemesis` that damages disks."""

    world: World
    random: Random
    settings: WorldSettings

    def _rottable(self) -> Machine | None:
        """Return a machine whose loss leaves a majority undamaged, if there is one."""
        machine = self.random.choice(self.world.machines)
        if machine.rotten or not self.world.operator.can_spare(machine):
            return None
        return machine

    def _down(self) -> Machine | None:
        """Return one of them that is down now."""
        machine = self._rottable()
        if machine is not None and machine.process is not None:
            self.world.end(machine, power=True)
        return machine

    def _rot(self) -> None:
        """Change a bit of a segment while its machine is down."""
        machine = self._down()
        if machine is None:
            return
        entries = self.world.oracle.shadow(machine.id).entries
        if entries and self.random.random() < 0.8:  # else mostly where nothing is yet
            self._flip_batch(machine, len(entries), 0)
            return
        file = self.random.choice(machine.disk.segment_files() or [None])
        if file is not None and file.size:
            self._flip(machine, file, self.random.randrange(file.size))

    def _flip_batch(self, machine: Machine, among: int, begin: int) -> None:
        """Change a bit of one of the first batches, at its byte ``begin`` or behind it."""
        entry = self.random.choice(self.world.oracle.shadow(machine.id).entries[:among])
        self._flip_in(machine, entry, begin)

    def _flip_in(self, machine: Machine, entry: BatchEntry, begin: int) -> None:
        """Change a bit of this batch, at its byte ``begin`` or behind it."""
        name = segment_name(entry.segment_base) + LOG_SUFFIX
        file = machine.disk.paged_file(f"{self.world.log_path(machine)}/{name}")
        place = entry.position + self.random.randrange(begin, entry.batch.size)
        if file is not None and place < file.size:
            machine.damaged_end = entry.batch.end_offset
            self._flip(machine, file, place)

    def _rot_tail(self, machine: Machine) -> None:
        """Change a bit of one of the last batches that were on disk; the machine is down."""
        shadow = self.world.oracle.shadow(machine.id)
        entries = [each for each in shadow.entries if each.batch.end_offset <= shadow.durable]
        spare = not machine.rotten and self.world.operator.can_spare(machine)
        if entries and spare and self.settings.durability != "memory":
            self.world.count("rot of the last batches")
            self._flip_in(machine, self.random.choice(entries[-2:]), 0)

    def _flip(self, machine: Machine, file: PagedFile | SmallFile, place: int) -> None:
        machine.rotten = True
        file.flip(place, self.random.randrange(8))

    def _rot_running(self) -> None:
        """Change a bit of a segment, or of a snapshot, under a process that uses it.

        Of what is on its disk and applied. No CRC covers offset and epoch: a leader compares them
        before it sends them (D10, I2).
        """
        machine = self._rottable()
        if machine is None or machine.process is None:
            return
        process, shadow = machine.process, self.world.oracle.shadow(machine.id)
        bound = shadow.durable
        if process.applier is not None:
            bound = min(bound, process.applier.applied)
        among = sum(1 for each in shadow.entries if each.batch.end_offset <= bound)
        if among and self.random.random() < 0.8:
            self._flip_batch(machine, among, 0)
        else:
            self._flip_small(machine, (SUFFIX,))

    def _rot_file(self) -> None:
        """Change a bit of quorum-state, a checkpoint, a mark or a snapshot at rest."""
        machine = self._down()
        if machine is not None:
            self._flip_small(machine, KINDS)

    def _flip_small(self, machine: Machine, kinds: tuple[str, ...]) -> None:
        found = [
            (kind, each.file)
            for each in files_in(machine.disk.root)
            for kind in kinds
            if each.name.endswith(kind) and isinstance(each.file, SmallFile) and each.file.data
        ]
        if found:
            kind, file = self.random.choice(found)
            self.world.count(f"rot of {kind}")
            self._flip(machine, file, self.random.randrange(len(file.data)))

    def _lost_file(self) -> None:
        """Remove a file from a disk at rest: a vote, a checkpoint, a snapshot, a segment."""
        machine = self._down()
        if machine is None:
            return
        kind = self.random.choice(LOSABLE)
        found = [each for each in files_in(machine.disk.root) if self._may_lose(machine, each)]
        found = [each for each in found if each.name.endswith(kind)]
        if found:
            lost = self.random.choice(found)
            self.world.count(f"loss of {kind}")
            self.world.trace(f"{machine.id}: {lost.name} is lost")
            machine.rotten = True
            del lost.directory.entries[lost.name]
            lost.directory.stable.pop(lost.name, None)

    def _may_lose(self, machine: Machine, lost: Named) -> bool:
        """Return whether another file on the disk shows that this one existed."""
        shadow, log_path = self.world.oracle.shadow(machine.id), self.world.log_path(machine)
        if lost.name == quorum_state.NAME:
            return shadow.durable > 0
        if lost.name.endswith(LOG_SUFFIX):
            entries = shadow.entries
            floor = read_floor(cast("Disk", machine.disk), machine.path).offset
            base = entries[-1].segment_base if entries else 0
            snapshots = snapshot_ids(cast("Disk", machine.disk), log_path)
            stands_at = max((each.offset for each in snapshots), default=0)
            told = floor > max(base, stands_at)  # it follows each of them a moment later
            return told and lost.name == segment_name(base) + LOG_SUFFIX
        first = snapshot_path(log_path, BOOTSTRAP)
        return not first.endswith(lost.name)
