"""A state machine over the committed log: a sum of all that it was told, in order (I19).

It runs beside the loop, as the node's applier does, makes a snapshot when enough has come since the
last one, and goes on from the newest where the log begins behind what it has seen.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any

from kraftfast.errors import FlushFailed, StorageError
from kraftfast.limits import BATCH_OVERHEAD_BYTES
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader, open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.held import Calls
from kraftfast.sim.require import require
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process

TURN_BYTES = 20_000
FILLER_BYTES = 700
_HEADER = struct.Struct(">qii")
_COUNT = struct.Struct(">i")
_COUNT_AT = 57


class SimStateMachine:
    """What one process makes of the log.

    Invariants: ``digest`` is of everything below ``applied``; neither moves while a snapshot is
    being made of them.
    """

    applied: int  # exclusive end of what it has seen
    digest: int
    epoch: int  # of the last batch
    makes_snapshots: bool = True
    _committed: int
    _bytes: int  # since the last snapshot
    _at_work: bool  # a turn is due, or a snapshot is being made

    def __init__(self, process: Process) -> None:
        self.process, self.world = process, process.world
        self.applied = self.digest = self.epoch = 0
        self._committed = -1
        self._bytes = 0
        self._at_work = self._closed = False
        self.calls = Calls()
        self._restore()

    def close(self) -> None:
        """Apply nothing more: the log is closed already where its process gives up (D9)."""
        self._closed = True

    def committed(self, offset: int) -> None:
        """There is more to apply."""
        self._committed = max(self._committed, offset)
        self._soon()

    def _soon(self) -> None:
        if not self._at_work and self._committed > self.applied:
            self._at_work = True
            self.process.beside_later(self._turn)

    def _turn(self) -> None:
        """Apply some, and make a snapshot if one is due."""
        if self._closed:
            return
        log = self.process.log
        self._at_work = False
        if log.log_start_offset > self.applied:
            self._restore()
        read_offset = min(self._committed, log.end_offset)
        if self.applied < read_offset:
            found = log.locate(self.applied, TURN_BYTES, read_offset)
            assert found is not None, "what is committed is there"
            segment, position, length = found
            self._apply(bytes(segment.file.view(position, position + length)))
        if self.makes_snapshots and self._bytes >= self.world.settings.snapshot_bytes:
            self._at_work = True
            self.process.enter(self._permit)
        else:
            self._soon()

    def _apply(self, data: bytes) -> None:
        position = 0
        while position < len(data):
            base_offset, size, epoch = _HEADER.unpack_from(data, position)
            end = position + size + BATCH_OVERHEAD_BYTES
            count = _COUNT.unpack_from(data, position + _COUNT_AT)[0]
            require(base_offset == self.applied, f"I19: {base_offset} follows {self.applied}")
            self.digest = zlib.crc32(data[position:end], self.digest)
            self.applied, self.epoch = base_offset + count, epoch
            self.world.oracle.snapshots.applied(self.process, self.applied, self.digest)
            self._take(data[position:end])
            self._bytes += end - position
            position = end

    def _take(self, batch: bytes) -> None:
        """Do what else is to be done with each batch."""

    # --- snapshots --------------------------------------------------------------------------------

    def _permit(self) -> None:
        """Return, in the loop, whether one is wanted, and what else belongs into it."""
        self._at_work = False
        snapshots = self.process.snapshots
        snapshot_id = OffsetAndEpoch(self.applied, self.epoch)
        if not snapshots.permits(snapshot_id):
            self._bytes //= 2  # asked for again when there is more
            self._soon()
            return
        controls = snapshots.controls_at(self.applied)
        footer = snapshots.footer_at(self.applied)
        self._at_work = True
        self.process.beside_later(lambda: self._make(snapshot_id, controls, footer))

    def _make(self, snapshot_id: OffsetAndEpoch, controls: Any, footer: Any) -> None:
        process = self.process
        self._at_work = False
        try:
            with SnapshotWriter(
                process.disk,
                process.directory.log_path,
                snapshot_id,
                last_contained_log_timestamp=0,
                controls=controls,
            ) as writer:
                self._write(writer)
                writer.freeze(footer)
        except FlushFailed:
            raise  # D9
        except StorageError:
            self.world.count("snapshots given up")
        else:
            self.world.count("snapshots made")
            process.enter(process.snapshot_made, snapshot_id)
        self._bytes = 0
        self._soon()

    def _write(self, writer: SnapshotWriter) -> None:
        """Write the state into a snapshot."""
        writer.append(b"%d:%d" % (self.applied, self.digest))
        for _ in range(self.world.settings.state_bytes // FILLER_BYTES):
            writer.append(bytes([self.applied % 251]) * FILLER_BYTES)

    def _read(self, reader: SnapshotReader) -> tuple[int, int]:
        """Return (applied, digest) of a snapshot, and take the state over that it holds."""
        first = next(reader.records())
        applied, digest = map(int, bytes(first.value or b"").split(b":"))
        return applied, digest

    def _restore(self) -> None:
        """Go on from the newest snapshot if it is ahead."""
        disk, log_path = self.process.disk, self.process.directory.log_path
        ids = [each for each in snapshot_ids(disk, log_path) if each != BOOTSTRAP]
        if not ids or ids[-1].offset <= self.applied:
            return
        with open_snapshot(disk, log_path, ids[-1]) as reader:
            applied, digest = self._read(reader)
            reader.check()
        require(applied == ids[-1].offset, f"I8: snapshot {ids[-1]} holds the state at {applied}")
        self.applied, self.digest, self.epoch = applied, digest, ids[-1].epoch
        self._bytes = 0
        self.world.count("states restored")
        self.world.oracle.snapshots.applied(self.process, applied, digest)
