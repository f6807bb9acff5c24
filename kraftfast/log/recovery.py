"""Bringing a log back: what is whole, what was torn, what is damaged (D10, I14).

Every batch of every segment is read again: framing, CRC, offsets that follow, and epochs that do
not fall and are those of ``leader-epoch-checkpoint`` (bytes 12-15 lie outside the CRC).

* Below ``flushed`` everything was on disk: a bad byte there is damage, and refused with its place.
* From ``flushed`` up to ``target`` it may have been acknowledged: a phantom tail.
* At or beyond ``target`` nothing was ever acknowledged: a torn tail, which is cut.

Below ``durable-end``, and in a trimmed segment that others of ours follow, everything was on disk
too. What Kafka wrote, in a directory without our mark or behind our last clean close, is recovered
by Kafka's rule: cut at the first bad batch (``UnifiedLog``).

A log that has not the record before the end of its newest snapshot is behind it, or beside it: the
replica ended while it put a fetched snapshot in the log's place. It must begin again behind that
snapshot, whatever its segments hold (Kafka's ``truncateToLatestSnapshot``).
"""

from __future__ import annotations

import os
import re
from typing import NamedTuple

from kraftfast import limits
from kraftfast.errors import CorruptLog, ForeignDirectory, InvalidOption
from kraftfast.log.activation import activate
from kraftfast.log.disk import TMP_SUFFIX, Disk
from kraftfast.log.idempotence.producers import Producers
from kraftfast.log.log import Log
from kraftfast.log.nursery import Nursery, PreparerThread
from kraftfast.log.scan import END, OFFSET, note_batches
from kraftfast.log.segment import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    Segment,
    is_prepared,
    segment_name,
)
from kraftfast.log.small_files import epoch_checkpoint, marks, quorum_state
from kraftfast.log.small_files.committed_floor import read_floor
from kraftfast.log.small_files.directory import NURSERY, LogDirectory, ReplicaDirectory
from kraftfast.log.snapshots.newest_snapshot import clip, holds, log_start, surpasses
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, delete_snapshots, snapshot_ids
from kraftfast.log.snapshots.snapshot_footer import load_producers
from kraftfast.log.used_again import appended_end, held_more, vouched_end
from kraftfast.record.shapes import FAULT_TEXTS
from kraftfast.types import OffsetAndEpoch

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
STRAY_FILE = re.compile(r".*(\.deleted|\.tmp|\.part|\.swap|\.cleaned)$")
REWRITTEN = (quorum_state.NAME, epoch_checkpoint.NAME, marks.DURABLE_END)
"""Beside each, a file holds the space to write it again (``rewrite_file``): it is no stray."""


class Recovered(NamedTuple):
    """An opened log, and what had to be done to it."""

    log: Log
    phantom_tail: OffsetAndEpoch | None = None
    cut_bytes: int = 0
    """Bytes of torn tail that were cut; 0 after a clean close."""
    cut_reason: str = ""
    snapshots: tuple[OffsetAndEpoch, ...] = ()
    """Those that are kept but the bootstrap's; a log that starts later starts at the first."""
    epochs: tuple[tuple[int, int], ...] = ()
    """(epoch, start offset) from the log's start on."""


class LogSettings:
    """How a log is laid out; bytes and milliseconds. Kafka: metadata.log.segment.bytes and .ms.

    ``stride_bytes``: how far ahead of the end to prepare under load; less while little was
    appended. ``prepare_bytes``: how far before the log is opened. ``how``: ``written`` (64 KiB
    pieces, for durable logs) or ``mapped`` (for memory ones). Raises InvalidOption.
    """

    __slots__ = ("segment_bytes", "segment_ms", "stride_bytes", "prepare_bytes", "producers_max",
                 "how")  # fmt: skip

    def __init__(
        self,
        *,
        segment_bytes: int = limits.SEGMENT_BYTES,
        segment_ms: int = limits.SEGMENT_MS,
        stride_bytes: int = limits.PREPARE_STRIDE_BYTES,
        prepare_bytes: int = limits.PREPARE_BYTES,
        producers_max: int = limits.PRODUCERS,
        how: str = "written",
    ) -> None:
        if not limits.PAGE_BYTES <= segment_bytes <= limits.SEGMENT_BYTES_MAX:
            raise InvalidOption(
                f"a segment of {segment_bytes} bytes: choose {limits.PAGE_BYTES} to "
                f"{limits.SEGMENT_BYTES_MAX} bytes (metadata.log.segment.bytes)"
            )
        if how not in ("written", "mapped"):
            raise InvalidOption(f"segments are prepared 'written' or 'mapped', not {how!r}")
        self.segment_bytes, self.segment_ms = segment_bytes, segment_ms
        self.stride_bytes, self.prepare_bytes = stride_bytes, prepare_bytes
        self.producers_max, self.how = producers_max, how

    @property
    def capacity(self) -> int:
        """Bytes that a segment's file has room for, whole pages: at least the largest batch."""
        room = max(self.segment_bytes, limits.BATCH_BYTES_MAX)
        return -(-room // limits.PAGE_BYTES) * limits.PAGE_BYTES


def open_log(
    disk: Disk, directory: ReplicaDirectory, settings: LogSettings, preparer: PreparerThread
) -> Recovered:
    """Recover and open the log of a replica directory.

    Raises CorruptLog (with path, position and offset), ForeignDirectory, StorageError, DiskFull.
    """
    path = directory.log_path
    disk.make_directory(path)
    directory.hold_log()
    remove_strays(disk, path)
    for name in REWRITTEN:
        disk.reserve_rewrite(os.path.join(path, name))
    nursery = Nursery(disk, os.path.join(directory.path, NURSERY), preparer, settings)
    segments: list[Segment] = []
    try:
        nursery.open()
        open_segments(disk, directory, segments)
        recovery = Recovery(disk, directory, segments, settings.producers_max)
        recovery.look()
        recovery.mend()
        log = activate(disk, directory, nursery, segments, recovery, settings)
    except BaseException:
        nursery.close()
        for segment in segments:
            segment.close()
        raise
    if directory.adopted:
        directory.mark_ours()
    epochs = clip(recovery.epochs, recovery.start.offset, log.end_offset)
    return Recovered(
        log,
        recovery.phantom_tail,
        recovery.cut_bytes,
        recovery.cut_reason,
        tuple(recovery.snapshots),
        tuple(epochs),
    )


def remove_strays(disk: Disk, path: str) -> None:
    """Remove what a crash or Kafka's delayed deletion left behind."""
    removed = [
        name
        for name in disk.list_directory(path)
        if STRAY_FILE.match(name) and name.removesuffix(TMP_SUFFIX) not in REWRITTEN
    ]
    for name in removed:
        disk.unlink(os.path.join(path, name))
    if removed:
        disk.sync_directory(path)


def open_segments(
    disk: Disk, directory: LogDirectory, segments: list[Segment], writable: bool = True
) -> None:
    """Open every segment file, oldest first. What Kafka wrote has no page of ours.

    What is not ``writable`` may be another process's, and is copied instead of mapped.
    """
    for name in disk.list_directory(directory.log_path):
        match = SEGMENT_FILE.fullmatch(name)
        if not match:
            continue
        path = os.path.join(directory.log_path, name)
        file = disk.open_segment(path, writable)
        if not writable:
            file.copy_pieces()
        size_max = limits.SEGMENT_BYTES_MAX + limits.PAGE_BYTES
        if file.size > size_max or int(match[1]) >= 2**63 - 2**31:
            file.close()
            raise ForeignDirectory(f"{path} is no segment: its size or name is out of range")
        paged = is_prepared(file) and not directory.adopted
        capacity = file.size - limits.PAGE_BYTES if paged else file.size
        segments.append(Segment(file, int(match[1]), capacity))


class EndMissing(CorruptLog):
    """All that is there is whole, but more was on disk."""


class Recovery:
    """One pass over the segments: ``look`` judges and changes nothing, ``mend`` makes it so."""

    # stored: the epoch checkpoint, or None without one that parses. durable_end: of the last clean
    # close. floor: of what is committed. target, flushed: (offset, epoch) of D10. paged: whether
    # any segment is prepared, which none is where Kafka wrote last. next_epoch: index of the stored
    # entry that comes next. keep: how many segments stay. phantom_tail: the stored one, after
    # `look` the one to be stored. snapshots: ids on disk but the bootstrap's, ascending. start:
    # where the log starts, and the epoch before. anew: the newest snapshot takes the log's place.

    def __init__(
        self,
        disk: Disk,
        directory: LogDirectory,
        segments: list[Segment],
        producers_max: int = limits.PRODUCERS,
        floor: OffsetAndEpoch | None = None,
    ) -> None:
        """``floor``: in place of the stored one, where that is damaged."""
        self.disk, self.directory, self.segments = disk, directory, segments
        self.path = directory.log_path
        self.epochs: list[tuple[int, int]] = []
        self.stored_phantom_tail = marks.read(disk, directory.path, marks.PHANTOM_TAIL)
        self.phantom_tail, self.cut_bytes, self.cut_reason = self.stored_phantom_tail, 0, ""
        self.durable_end = self.floor = OffsetAndEpoch(0, 0)
        if not directory.adopted:
            self.durable_end = marks.read(disk, self.path, marks.DURABLE_END) or self.durable_end
            self.floor = read_floor(disk, directory.path) if floor is None else floor
        self.paged = any(segment.has_page for segment in segments)
        self.target, self.flushed = self._watermark()
        self.stored = self._stored_epochs()
        self.next_epoch, self.keep = 0, len(segments)
        self.snapshots = [each for each in snapshot_ids(disk, self.path) if each != BOOTSTRAP]
        self.start = OffsetAndEpoch(segments[0].base_offset if segments else 0, 0)
        self.anew, self.producers = False, Producers(producers_max)

    def look(self) -> None:
        """Scan, judge where the scan stopped, compare epochs; raises for damage."""
        start = log_start(self.start.offset, self.snapshots)
        standing_on = start if start in self.snapshots else None
        load_producers(self.producers, self.disk, self.path, standing_on)
        try:
            self._look_at_segments()
        except EndMissing:
            if not self._is_surpassed():
                raise
            self.anew = True
        else:
            self.anew = not self._holds_newest()
        if self.anew:
            self._leave_all()
        else:
            self.start = start

    def _look_at_segments(self) -> None:
        expected = self.segments[0].base_offset if self.segments else 0
        for index, segment in enumerate(self.segments):
            fault = OFFSET
            if segment.base_offset == expected:
                fault = self._scan(segment, expected)
            expected = segment.end_offset
            last = index + 1 == len(self.segments)
            if fault == END and (last or self.segments[index + 1].base_offset == expected):
                continue
            self._judge(index, fault, expected)
            self.keep = index + 1
            break
        self._judge_end(expected)
        self._check_epochs(expected)
        self._find_phantom_tail(expected)

    def mend(self) -> None:
        """Store the phantom tail before anything is cut, cut, put everything on disk."""
        self.check_log_start()
        if self.phantom_tail is not None and self.phantom_tail != self.stored_phantom_tail:
            marks.write(self.disk, self.directory.path, marks.PHANTOM_TAIL, self.phantom_tail)
        elif self.phantom_tail is not None:  # a start that was killed may have named it just now
            self.disk.sync_directory(self.directory.path)
        if not self.anew:
            self._store_epochs()
        self._cut_after(self.keep)
        if self.anew:  # before there is a segment that could be taken for a log that lost its tail
            self._store_epochs()  # not before: without epochs, segments that are left are damaged
            marks.rewrite(self.disk, self.path, marks.DURABLE_END, self.start)
            self.durable_end = self.start
        self._put_on_disk()
        older = [each for each in self.snapshots if each.offset < self.start.offset]
        delete_snapshots(self.disk, self.path, older)
        self.snapshots = [each for each in self.snapshots if each.offset >= self.start.offset]

    def _store_epochs(self) -> None:
        if self.stored != self.epochs:
            file = os.path.join(self.path, epoch_checkpoint.NAME)
            self.disk.rewrite_file(file, epoch_checkpoint.encode(self.epochs))

    def _holds_newest(self) -> bool:
        """Return whether the log has the record before the newest snapshot's end, or is past it."""
        if not self.snapshots or not self.segments:
            return not self.snapshots
        end_offset = self.segments[self.keep - 1].end_offset
        return holds(self.snapshots[-1], self.segments[0].base_offset, end_offset, self.epochs)

    def _is_surpassed(self) -> bool:
        """Return whether a log without its end had nothing that the newest snapshot has not.

        Segments go the newest first where a snapshot takes their place, so a crash leaves a whole
        prefix. What is damaged inside is told even if the snapshot covers it: nothing else is
        known of such a disk, and readers would miss the records in silence.
        """
        had = [self.target, self.flushed, self.durable_end]
        if self.segments:
            had.append(OffsetAndEpoch(self.segments[self.keep - 1].end_offset, self.last_epoch()))
            base = self.segments[-1].base_offset
            below = [epoch for epoch, start in self.stored or () if start < base]
            had.append(OffsetAndEpoch(base, below[-1] if below else self.last_epoch()))
        return bool(self.snapshots) and surpasses(self.snapshots[-1], had)

    def _leave_all(self) -> None:
        """Keep nothing of the segments."""
        newest = self.snapshots[-1]
        self.keep, self.epochs, self.start = 0, [], newest
        self.cut_reason = f"it is behind or beside its snapshot {tuple(newest)}"
        self.phantom_tail = self.stored_phantom_tail
        load_producers(self.producers, self.disk, self.path, newest)

    def places(self) -> list[OffsetAndEpoch | None]:
        """Return all offsets and epochs of the directory: none is of a later epoch (D5)."""
        return [
            self.target,
            self.flushed,
            self.durable_end,
            self.floor,
            self.start,
            self.stored_phantom_tail,
            self.phantom_tail,
        ]

    def last_epoch(self) -> int:
        """Return the epoch of the last batch; 0 if there is none."""
        return self.epochs[-1][0] if self.epochs else 0

    def _scan(self, segment: Segment, expected: int) -> int:
        """Walk over batches until one does not check; END at a clean end."""
        limit = vouched_end(segment, self.flushed.offset)
        return note_batches(
            segment, expected, limit, self.producers, self.epochs, self._stored_epoch
        )

    def _stored_epochs(self) -> list[tuple[int, int]] | None:
        file = os.path.join(self.path, epoch_checkpoint.NAME)
        if not self.disk.exists(file):
            return None
        data = self.disk.read_file(file)
        try:
            return epoch_checkpoint.decode(data, file)
        except ForeignDirectory:
            if self.directory.adopted:
                raise
            return None

    def _stored_epoch(self, offset: int) -> tuple[int, int]:
        """Return (epoch that the checkpoint has for ``offset``, up to which offset); -1: it says
        none.

        It is durable before the first batch of an epoch is stored (D18), so a batch of ours that
        it does not know is none. What Kafka wrote behind our last close it may know late.
        """
        vouched = self.paged or offset < self.durable_end.offset
        if self.stored is None or self.directory.adopted or not vouched:
            return -1, offset + 1
        while self.next_epoch < len(self.stored) and self.stored[self.next_epoch][1] <= offset:
            self.next_epoch += 1
        until = 2**63 - 1
        if self.next_epoch < len(self.stored):
            until = self.stored[self.next_epoch][1]
        if not self.paged:
            until = min(until, self.durable_end.offset)
        if self.next_epoch:
            return self.stored[self.next_epoch - 1][0], until
        # Kafka drops entries up to a log start inside the first segment; ours begin at the segment.
        return 2**31 - 1 if self.paged else -1, until

    def _watermark(self) -> tuple[OffsetAndEpoch, OffsetAndEpoch]:
        """Return (target, flushed) of D10 over all segments: a later flushed implies the earlier
        ones.

        The floor of what is committed was flushed too, and survives the loss of a segment (D23).
        """
        target = flushed = max(self.durable_end, self.floor)
        for segment in self.segments if not self.directory.adopted else ():
            words = segment.watermark()
            if words is not None:
                target = max(target, OffsetAndEpoch(*words[0]))
                flushed = max(flushed, OffsetAndEpoch(*words[1]))
            elif segment.has_page:
                raise CorruptLog(
                    f"{segment.file.path}: neither durable watermark of its last page holds",
                    segment.file.path,
                    segment.file.size - limits.PAGE_BYTES,
                    segment.base_offset,
                )
        return target, flushed

    def _durable_bound(self, index: int) -> int:
        """Return the offset below which all was on disk, as far as segment ``index`` tells."""
        if not self.paged and self.last_epoch() > self.durable_end.epoch:
            return self.floor.offset  # a leader of a later epoch had Kafka cut what we left
        bound = self.flushed.offset
        for later in self.segments[index + 1 :]:
            if self.paged and not later.has_page:
                bound = max(bound, later.base_offset)  # trimmed: all before it was on disk
        return bound

    def _judge(self, index: int, fault: int, end_offset: int) -> None:
        """Decide what a stop below the end of the bytes is; raises CorruptLog for damage."""
        segment, bound = self.segments[index], self._durable_bound(index)
        if self.paged and not segment.has_page and index + 1 < len(self.segments):
            bound = max(bound, end_offset + 1)
        what = "ends" if fault == END else "is damaged"
        reason = "the segment that goes on is missing" if fault == END else FAULT_TEXTS[fault]
        if end_offset < bound:
            raise CorruptLog(
                f"{segment.file.path} {what} at byte {segment.position} (offset {end_offset}): "
                f"{reason}; everything below offset {bound} had been flushed",
                segment.file.path, segment.position, end_offset,
            )  # fmt: skip
        self.cut_reason = reason

    def _judge_end(self, end_offset: int) -> None:
        """Judge whether something is missing that was on disk."""
        bound = self._durable_bound(len(self.segments))
        if end_offset < bound:
            where = self.segments[-1].file.path if self.segments else self.path
            damaged = self.segments and held_more(self.segments[-1])  # D10: no whole file is gone
            raise (CorruptLog if damaged else EndMissing)(
                f"{where} ends at offset {end_offset}, but everything below offset {bound} had "
                f"been flushed",
                where,
                self.segments[-1].position if self.segments else 0,
                end_offset,
            )

    def _find_phantom_tail(self, end_offset: int) -> None:
        """Find what may have been acknowledged and is not there."""
        kept = self.paged and self.directory.keeps_memory()
        reached = appended_end(self) if kept else self.target
        if end_offset >= reached.offset or not self.paged:
            return
        known = self.phantom_tail
        if known is None or (reached.epoch, reached.offset) > (known.epoch, known.offset):
            self.phantom_tail = reached

    def _cut_after(self, keep: int) -> None:
        """Remove the segments behind a hole, the newest first: a crash leaves a prefix."""
        for segment in reversed(self.segments[keep:]):
            self.cut_bytes += 0 if segment.has_page else segment.file.size
            name = os.path.join(self.path, segment_name(segment.base_offset))
            for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX, LOG_SUFFIX):
                self.disk.unlink(name + suffix)
            segment.close()
            self.disk.sync_directory(self.path)
        del self.segments[keep:]

    def _put_on_disk(self) -> None:
        """Cut what stands behind the last whole batch, and sync everything.

        D3: flushed is unknown until every file was synced. What no flush of the process before is
        known to have covered is stored again: its write-back may have failed (D9).
        """
        self.disk.sync_directory(self.path)  # D10: before a page says what was flushed
        epoch = self.start.epoch
        for segment in self.segments:
            epoch = max(epoch, segment.last_epoch)
            segment.note_reserved(max(segment.stored_prepared(), segment.position))
            if segment.has_page:
                segment.aim_watermark(segment.end_offset, epoch, segment.voucher)
                segment.mark_end()
                segment.store_again(self.flushed.offset)
            elif segment.file.size > segment.position:
                if segment.may_trim() and segment.file.exclude():
                    self.cut_bytes += segment.file.size - segment.position
                    segment.trim()
                    segment.file.readmit()
                else:  # its end would pass for a page of ours, or a process maps it
                    segment.blank()
            segment.file.sync()
            segment.note_flushed(segment.position)
            segment.reach_watermark()

    def _check_epochs(self, end_offset: int) -> None:
        """Check that the checkpoint agrees with the batches where it is ours; else rebuild it."""
        file = os.path.join(self.path, epoch_checkpoint.NAME)
        start = self.segments[0].base_offset if self.segments else 0
        if self.stored is not None and self.paged:
            stored = clip(self.stored, start, end_offset)
            if stored != self.epochs:
                raise CorruptLog(
                    f"{file} names epochs that no batch has: {stored} against {self.epochs}",
                    file,
                    0,
                    start,
                )

    def check_log_start(self) -> None:
        """Check that a log that does not start at 0 stands on a snapshot, as Kafka does."""
        start = self.segments[0].base_offset if self.segments else 0
        if start > 0 and not any(each.offset >= start for each in self.snapshots):
            raise ForeignDirectory(
                f"{self.path} starts at offset {start}, but no snapshot reaches that far"
            )
