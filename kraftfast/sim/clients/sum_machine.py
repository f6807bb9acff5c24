"""A state machine over the committed log: a sum of all that it was told, in order (I19).

The replica's own applier calls it. It takes its time, so that the loop goes on meanwhile: between
two batches, and while it writes or takes over a snapshot.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

from kraftfast.node.state_machine import StateMachine
from kraftfast.sim.require import require
from kraftfast.types import NO_NODE

if TYPE_CHECKING:
    from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
    from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
    from kraftfast.record.batch import BatchView
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

TURN_BYTES = 20_000
ASK_EVERY_US = 30_000
FILLER_BYTES = 700
_BATCH = struct.Struct(">qqiI")


class SimStateMachine(StateMachine):
    """What one process makes of the log: ``digest`` is of all records below ``applied``."""

    # _bytes: applied since it paused last. _told: the last (leader id, epoch).

    def __init__(self, process: Process) -> None:
        self.process, self.world = process, process.world
        self.applied = self.digest = 0
        self._bytes = 0
        self._told = (NO_NODE, 0)

    def apply(self, batch: BatchView) -> None:
        oracle = self.world.oracle.snapshots
        require(
            oracle.follows(self.applied, batch.base_offset),
            f"I19: {self.process.id} applies {batch.base_offset} after {self.applied}",
        )
        end = batch.last_offset + 1
        named = _BATCH.pack(batch.base_offset, end, batch.leader_epoch, zlib.crc32(batch.data))
        self.applied, self.digest = end, zlib.crc32(named, self.digest)
        oracle.applied(self.process, self.applied, self.digest)
        self._bytes += batch.size
        if self._bytes >= TURN_BYTES:
            self._bytes = 0
            self._pause()

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        before, known = self._told[1], self._told[0] != NO_NODE
        require(
            epoch > before or (epoch == before and not known and leader_id != NO_NODE),
            f"I19: {self.process.id} is told that {leader_id} leads {epoch}, after {self._told}",
        )
        self._told = leader_id, epoch
        applier = self.process.applier
        assert applier is not None
        if leader_id == self.process.id and self.process.core.epoch == epoch:
            begins = self.process.core.epoch_start_offset
            require(
                applier.applied >= begins,
                f"I19: {leader_id} is told that it leads at {applier.applied}, before {begins}",
            )

    def query(self, padding: int = 0, _more: bytes = b"") -> tuple[int, int, bytes]:
        """Return how far it came, the digest of that, and so many bytes."""
        return self.applied, self.digest, bytes(padding)

    def snapshot(self, writer: SnapshotWriter) -> None:
        self._pause()
        writer.append(b"%d:%d" % (self.applied, self.digest))
        for _ in range(self.world.settings.state_bytes // FILLER_BYTES):
            writer.append(bytes([self.applied % 251]) * FILLER_BYTES)
        self._pause()

    def restore(self, reader: SnapshotReader) -> None:
        core, process = self.process.core, self.process
        leads = core.role == "leader" and self._told == (process.id, core.epoch)
        require(not leads, f"I19: {process.id} leads {core.epoch}, and is handed a snapshot")
        self._pause()
        first = next(reader.records())
        self.applied, self.digest = map(int, bytes(first.value or b"").split(b":"))
        assert reader.snapshot_id is not None
        require(
            self.digest == self.world.oracle.snapshots.state_at(reader.snapshot_id.offset),
            f"I8: snapshot {reader.snapshot_id} holds another state: that at {self.applied}",
        )
        self.world.count("states restored")

    def _pause(self) -> None:
        self.process.host.threads.sleep(self.process.disk_delay_us() / 1e6)


class Asker:
    """Asks state machines for what was acknowledged before, as ``quorum.query`` does (I20)."""

    def __init__(self, world: World) -> None:
        self.world = world

    def start(self) -> None:
        """Ask from now on, again and again."""
        self.world.later(self.world.random.randint(1, ASK_EVERY_US), self._again)

    def _again(self) -> None:
        world = self.world
        if world.survivors is not None:
            return  # what was acknowledged may be gone
        running = [each.process for each in world.machines if each.process is not None]
        if running:
            process, at_least = world.random.choice(running), world.acknowledged_end
            process.enter(self.ask, process, at_least)
        self.start()

    def ask(self, process: Process, at_least: int) -> None:
        """Ask one replica for its state; a leader that is deposed may never come that far."""
        assert process.applier is not None
        process.applier.ask(
            lambda: [], at_least, lambda answer: self.told(process, at_least, answer)
        )

    def told(self, process: Process, at_least: int, answer: dict[str, Any]) -> None:
        """Take an answer; it may be that nothing came in time."""
        if self.world.survivors is not None or "value" not in answer:
            self.world.count("questions given up")
            return
        self.world.count("questions answered")
        came_to, digest, _ = answer["value"]
        oracle = self.world.oracle.snapshots
        require(
            answer["applied"] >= at_least and digest == oracle.state_at(answer["applied"]),
            f"I20: {process.id} answers for {at_least} with its state at {came_to}",
        )
