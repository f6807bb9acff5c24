"""What breaks a safety condition of the log, each where Python can still reach in.

The log is compiled; a mutant replaces a method or function that it calls by name, in the process
that runs the seeds. The core's mutants are patches (``tests/core/mutants``).
"""

from __future__ import annotations

from typing import Any

from crc32c import crc32c

from kraftfast.errors import FlushFailed
from kraftfast.log import activation, cutting, recovery
from kraftfast.log.log import Log
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.sim.clients import door
from kraftfast.sim.faults.nemesis import Nemesis
from kraftfast.sim.machines import sim_host
from kraftfast.sim.machines.paged_file import SteppedFlush
from kraftfast.sim.machines.sim_disk import SimDisk, SmallFile


def _log(**methods: Any) -> None:
    """Have recovery make logs with these methods instead of the log's own."""
    activation.Log = type("Mutant", (Log,), methods)  # type: ignore[misc]


def d01_flushed_before_the_disk_has_it() -> None:
    """The end of the log counts as flushed when the flush begins."""

    class Eager(SteppedFlush):
        def step(self, disk: SimDisk) -> int:
            return 0

    sim_host.SteppedFlush = Eager  # type: ignore[misc]


def d03_a_restart_takes_the_page_cache_for_the_disk() -> None:
    """What recovery read is called flushed without a sync of its files."""

    def put_on_disk(self: Any) -> None:
        for segment in self.segments:
            segment.note_flushed(segment.position)

    recovery.Recovery._put_on_disk = put_on_disk


def d08_a_cut_leaves_its_bytes() -> None:
    """What was cut stays behind the log's end, where the next start finds it (I14)."""

    def cut_prepared(log: Any, segment: Any, position: int) -> None:
        log.nursery.release(segment)
        segment.cut(position)
        segment.aim_watermark(segment.end_offset, log.last_epoch, segment.voucher)
        log.sync_file(segment.file)
        segment.note_flushed(segment.position)

    cutting._cut_prepared = cut_prepared


def d08_a_cut_is_not_synced() -> None:
    """The zeros over what was cut are not on the disk when appends go on."""

    def cut_prepared(log: Any, segment: Any, position: int) -> None:
        log.nursery.release(segment)
        segment.cut(position)
        segment.aim_watermark(segment.end_offset, log.last_epoch, segment.voucher)
        segment.clear_dirt()
        segment.note_flushed(segment.position)

    cutting._cut_prepared = cut_prepared


def d09_a_failed_sync_is_tried_again() -> None:
    """The flusher asks once more, and believes the answer (fsyncgate)."""
    step = SteppedFlush.step

    class Again(SteppedFlush):
        def step(self, disk: SimDisk) -> int:
            state = step(self, disk)
            return step(self, disk) if state < 0 else state

    sim_host.SteppedFlush = Again  # type: ignore[misc]


def d10_damage_is_cut_like_a_torn_tail() -> None:
    """Bytes below the durable watermark that do not check are forgotten, and leave no trace."""
    recovery.Recovery._durable_bound = lambda self, index: 0
    recovery.Recovery._find_phantom_tail = lambda self, end_offset: None


def i05_a_log_is_left_for_its_snapshot_without_need() -> None:
    """Recovery begins every log that has a snapshot anew behind it."""
    recovery.holds = lambda newest, base, end, epochs: newest.offset <= base


def i05_damage_is_left_for_a_snapshot_that_has_less() -> None:
    """A damaged log is begun anew behind its newest snapshot, whatever it had beyond."""
    recovery.surpasses = lambda newest, had: True


def d18_the_name_of_a_segment_is_not_synced() -> None:
    """A flush syncs files, and not the directory that they are in (KAFKA-3968)."""
    end_sync = SimDisk.end_sync

    def without_names(self: SimDisk, fd: int) -> int:
        return 0 if isinstance(self._open[fd], str) else end_sync(self, fd)

    SimDisk.end_sync = without_names  # type: ignore[method-assign]


def d18_the_epoch_checkpoint_is_not_synced() -> None:
    """Small files are renamed into place without a sync before (KAFKA-16541, KAFKA-15312)."""

    def replace(self: Any, path: str, data: bytes) -> None:
        directory, name = self.disk._parent(path)
        file = SmallFile()
        file.write(data)
        directory.change(None, name, file)

    _log(replace=replace, rewrite=replace)


def d20_a_copy_is_taken_unchecked() -> None:
    """The CRC of what comes from another process is made to fit, whatever came."""
    flip, append = Nemesis.flip, door.append_batch

    def fitted(data: bytes) -> bytes:
        out, at = bytearray(data), 0
        while at + 61 <= len(out):
            end = at + 12 + int.from_bytes(out[at + 8 : at + 12], "big", signed=True)
            if not at + 61 <= end <= len(out):
                break
            out[at + 17 : at + 21] = crc32c(out[at + 21 : end]).to_bytes(4, "big")
            at = end
        return bytes(out)

    Nemesis.flip = lambda self, data: fitted(flip(self, data))  # type: ignore[method-assign]
    door.append_batch = lambda log, batch, epoch: append(log, fitted(batch), epoch)


def i23_a_snapshot_forgets_the_producers() -> None:
    """Who begins at a snapshot knows no producer: sequences go on, and are refused."""
    Snapshots.footer_at = lambda self, end_offset: ()  # type: ignore[method-assign]


def d09_a_failed_sync_is_no_end() -> None:
    """The process goes on after a flush that failed, as if it had not been asked for."""
    take = sim_host.SimFlusher.take

    def going_on(self: Any, log: Any) -> bool:
        try:
            return take(self, log)
        except FlushFailed:
            self._flush.finish(log, 0)
            return True

    sim_host.SimFlusher.take = going_on  # type: ignore[method-assign]
