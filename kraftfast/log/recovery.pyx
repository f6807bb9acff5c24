"""Bringing a log back: what is whole, what was torn, what is damaged (reliability.md D10, I14).

Every batch of every segment is read again: framing, CRC, offsets that follow, epochs that do not
fall and agree with ``leader-epoch-checkpoint`` (which covers bytes 12-15, outside the CRC).

* Below ``flushed`` everything was on disk: a bad byte there is damage, and refused with its place.
* From ``flushed`` up to ``target`` it may have been acknowledged: a phantom tail.
* At or beyond ``target`` nothing was ever acknowledged: a torn tail, which is cut.

A directory without our mark is Kafka's and is recovered by Kafka's rule: cut at the first bad
batch (kraft-reference.md section 11).
"""

import os
import re
from dataclasses import dataclass

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraftfast import limits
from kraftfast.errors import CorruptLog, ForeignDirectory, InvalidOption
from kraftfast.log import epoch_checkpoint
from kraftfast.log.directory import NURSERY, PHANTOM_TAIL
from kraftfast.log.log import Log, read_durable_end
from kraftfast.log.nursery import Nursery
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX, segment_name
from kraftfast.types import OffsetAndEpoch

from kraftfast.log.segment cimport *
from kraftfast.log.segment_file cimport SegmentFile

SEGMENT_FILE = re.compile(r"(\d{20})\.log")
SNAPSHOT_FILE = re.compile(r"(\d{20})-(\d{10})\.checkpoint")
STRAY_FILE = re.compile(r".*(\.deleted|\.tmp|\.part|\.swap|\.cleaned)$")
INITIAL_PREPARE_BYTES = 4 * 1024 * 1024


@dataclass(slots=True)
class Recovered:
    """An opened log, and what had to be done to it."""

    log: Log
    phantom_tail: OffsetAndEpoch | None = None
    cut_bytes: int = 0
    """Bytes of torn tail that were cut; 0 after a clean close."""
    cut_reason: str = ""


@dataclass(slots=True)
class Settings:
    """How a log is laid out; bytes and milliseconds. Kafka: metadata.log.segment.bytes and .ms."""

    segment_bytes: int = limits.SEGMENT_BYTES
    segment_ms: int = limits.SEGMENT_MS
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    prepare_bytes: int = INITIAL_PREPARE_BYTES
    """How far ahead of the head to prepare before the log is opened."""
    how: str = "written"
    """``written`` (64 KiB pieces, for durable logs) or ``mapped`` (for memory ones)."""

    def __post_init__(self):
        if not limits.PAGE_BYTES <= self.segment_bytes <= 2**31 - limits.PAGE_BYTES - 1:
            raise InvalidOption(f"segment bytes out of range: {self.segment_bytes}")
        if self.how not in ("written", "mapped"):
            raise InvalidOption(f"segments are prepared 'written' or 'mapped', not {self.how!r}")

    @property
    def capacity(self) -> int:
        """Bytes of batches in a segment: whole pages."""
        return -(-self.segment_bytes // limits.PAGE_BYTES) * limits.PAGE_BYTES


def open_log(disk, directory, settings, preparer) -> Recovered:
    """Recover and open the log of a replica directory.

    Raises CorruptLog (with path, position and offset), ForeignDirectory, StorageError, DiskFull.
    """
    path = directory.log_path
    disk.make_directory(path)
    _remove_strays(disk, path)
    nursery = Nursery(disk, os.path.join(directory.path, NURSERY), preparer,
                      settings.capacity, settings.stride_bytes, settings.how)
    nursery.open()
    segments = _open_segments(disk, path)
    try:
        recovery = _Recovery(disk, directory, segments)
        recovery.run()
        log = _activate(disk, directory, nursery, segments, recovery, settings)
    except BaseException:
        for segment in segments:
            segment.file.close()
        raise
    if directory.adopted:
        directory.mark_ours()
    return Recovered(log, recovery.phantom_tail, recovery.cut_bytes, recovery.cut_reason)


def _remove_strays(disk, path):
    """What a crash or Kafka's delayed deletion left behind; log start is the first segment's base."""
    removed = [name for name in disk.list_directory(path) if STRAY_FILE.match(name)]
    for name in removed:
        disk.unlink(os.path.join(path, name))
    if removed:
        disk.sync_directory(path)


def _open_segments(disk, path):
    segments = []
    for name in disk.list_directory(path):
        match = SEGMENT_FILE.fullmatch(name)
        if not match:
            continue
        file = disk.open_segment(os.path.join(path, name), True)
        segment = Segment(file, int(match[1]), max(0, <int64_t>file.size - limits.PAGE_BYTES))
        if not segment.has_page:
            segment = Segment(file, int(match[1]), file.size)
        segments.append(segment)
    return segments


def snapshot_ids(disk, path):
    """Ids of the finished snapshots in a log's directory, oldest first (epoch, then offset)."""
    found = (SNAPSHOT_FILE.fullmatch(name) for name in disk.list_directory(path))
    ids = [OffsetAndEpoch(int(match[1]), int(match[2])) for match in found if match]
    return sorted(ids, key=lambda id: (id.epoch, id.offset))


class _Recovery:
    """One pass over the segments; fills the rebuilt epochs, the phantom tail and what was cut."""

    def __init__(self, disk, directory, segments):
        self.disk, self.directory, self.segments = disk, directory, segments
        self.path = directory.log_path
        self.epochs = []
        self.phantom_tail = self._stored_phantom_tail()
        self.cut_bytes, self.cut_reason = 0, ""
        self.durable_end = (0, 0) if directory.adopted else read_durable_end(disk, self.path)
        self.target, self.flushed = self._watermark()
        self._places = []  # (segment, position) of the first batch of each rebuilt epoch

    def run(self):
        """Scan, judge where the scan stopped, cut, agree on epochs, sync."""
        expected = self.segments[0].base_offset if self.segments else 0
        for index, segment in enumerate(self.segments):
            fault = self._scan(segment, expected) if segment.base_offset == expected else KF_BATCH_OFFSET
            expected = segment.end_offset
            last = index + 1 == len(self.segments)
            if fault == KF_BATCH_EMPTY and (last or self.segments[index + 1].base_offset == expected):
                continue
            self._judge(segment, fault, expected)
            self._cut_after(index)
            break
        self._judge_end(expected)
        self._check_epochs(expected)
        self._check_log_start()
        for segment in self.segments:  # D3: flushed is unknown until every untrimmed one was synced
            if segment.has_page or self.directory.adopted:
                segment.file.sync()
            segment.note_flushed(segment.position)
        self.disk.sync_directory(self.path)

    def _scan(self, Segment segment, int64_t expected):
        """Note batches until one does not check; KF_BATCH_EMPTY at a clean end."""
        cdef kf_batch_header h
        cdef uint64_t limit = segment.capacity
        cdef int32_t epoch = self.epochs[-1][0] if self.epochs else 0
        cdef int fault = KF_BATCH_EMPTY
        while segment.position < limit:
            with nogil:
                fault = kf_batch_check(segment.file.base + segment.position, limit - segment.position, &h)
            if fault == KF_BATCH_OK and h.base_offset != expected:
                fault = KF_BATCH_OFFSET
            if fault == KF_BATCH_OK and h.leader_epoch < epoch:
                fault = KF_BATCH_EPOCH
            if fault == KF_BATCH_INCOMPLETE and limit - segment.position < KF_BATCH_HEADER \
                    and kf_is_zero(segment.file.base, segment.position, limit):
                fault = KF_BATCH_EMPTY
            if fault != KF_BATCH_OK:
                break
            if h.leader_epoch != epoch or not self.epochs:
                self.epochs.append((h.leader_epoch, expected))
                self._places.append((segment, segment.position))
                epoch = h.leader_epoch
            segment.note_batch(&h, expected)
            expected = segment.end_offset
            fault = KF_BATCH_EMPTY
        return fault

    def _watermark(self):
        """(target, flushed) of D10 over all segments: a later flushed implies the earlier ones."""
        target = flushed = self.durable_end
        for segment in self.segments if not self.directory.adopted else ():
            words = segment.watermark()
            if words is not None:
                target, flushed = max(target, words[0]), max(flushed, words[1])
            elif segment.has_page:
                raise CorruptLog(
                    f"{segment.file.path}: neither durable watermark of its last page holds",
                    segment.file.path, segment.file.size - limits.PAGE_BYTES, segment.base_offset)
        return target, flushed

    def _judge(self, Segment segment, fault, end_offset):
        """Decide what a stop below the end of the bytes is; raises CorruptLog for damage."""
        flushed = self.flushed[0]
        for later in self.segments[self.segments.index(segment) + 1:]:
            if not later.has_page and not self.directory.adopted:
                flushed = max(flushed, later.base_offset)  # trimmed segments were on disk before
        if not segment.has_page and segment is not self.segments[-1] and not self.directory.adopted:
            flushed = max(flushed, end_offset + 1)
        reason = kf_batch_fault_text(fault).decode()
        if end_offset < flushed:
            raise CorruptLog(
                f"{segment.file.path} is damaged at byte {segment.position} (offset {end_offset}): {reason}; "
                f"everything below offset {flushed} had been flushed", segment.file.path, segment.position, end_offset)
        self.cut_reason = reason

    def _judge_end(self, end_offset):
        """The log is cut to ``end_offset``: is something missing that was on disk or acknowledged?"""
        if end_offset < self.flushed[0]:
            where = self.segments[-1].file.path if self.segments else self.path
            raise CorruptLog(
                f"{where} ends at offset {end_offset}, but everything below offset {self.flushed[0]} had been "
                f"flushed", where, self.segments[-1].position if self.segments else 0, end_offset)
        if end_offset < self.target[0]:
            bound = OffsetAndEpoch(*self.target)
            known = self.phantom_tail
            if known is None or (bound.epoch, bound.offset) > (known.epoch, known.offset):
                self.phantom_tail = bound
                data = f"0\n{bound.offset} {bound.epoch}\n".encode()
                self.disk.replace_file(os.path.join(self.directory.path, PHANTOM_TAIL), data)
        for segment in self.segments:
            if segment.has_page:
                segment.set_watermark(segment.end_offset, max(segment.last_epoch, 0))

    def _cut_after(self, index):
        """Remove what stands behind the last whole batch: later segments first, then the tail."""
        cdef Segment segment = self.segments[index]
        for later in reversed(self.segments[index + 1:]):
            self.cut_bytes += later.file.size if not later.has_page else 0
            name = os.path.join(self.path, segment_name(later.base_offset))
            for suffix in (LOG_SUFFIX, INDEX_SUFFIX, TIME_INDEX_SUFFIX):
                self.disk.unlink(name + suffix)
            later.file.close()
        del self.segments[index + 1:]
        self.disk.sync_directory(self.path)
        if not segment.has_page:
            self.cut_bytes += segment.file.size - segment.position
            segment.trim()
            segment.file.sync()

    def _check_epochs(self, end_offset):
        """Bytes 12-15 lie outside the CRC: the checkpoint vouches for them (fault 9)."""
        file = os.path.join(self.path, epoch_checkpoint.NAME)
        try:
            stored = epoch_checkpoint.decode(self.disk.read_file(file), file)
        except FileNotFoundError:
            stored = None
        except ForeignDirectory:
            if self.directory.adopted:
                raise
            stored = None
        start = self.segments[0].base_offset if self.segments else 0
        if stored is not None:
            stored = _clip(stored, start, end_offset)
        if stored is not None and stored != self.epochs and not self.directory.adopted:
            for (epoch, offset), (segment, position) in zip(self.epochs, self._places):
                if (epoch, offset) not in stored:
                    raise CorruptLog(
                        f"{segment.file.path} is damaged at byte {position} (offset {offset}): its batch says epoch "
                        f"{epoch}, which {epoch_checkpoint.NAME} does not know there", segment.file.path, position, offset)
            raise CorruptLog(f"{file} names epochs that no batch has: {stored} against {self.epochs}", file, 0, start)
        if stored != self.epochs:
            self.disk.replace_file(file, epoch_checkpoint.encode(self.epochs))

    def _check_log_start(self):
        """A log that does not start at 0 stands on a snapshot (Kafka: start-up fails without)."""
        start = self.segments[0].base_offset if self.segments else 0
        if start > 0 and not any(id.offset >= start for id in snapshot_ids(self.disk, self.path)):
            raise ForeignDirectory(f"{self.path} starts at offset {start}, but no snapshot reaches that far")

    def _stored_phantom_tail(self):
        try:
            data = self.disk.read_file(os.path.join(self.directory.path, PHANTOM_TAIL))
        except FileNotFoundError:
            return None
        try:
            offset, epoch = map(int, data.decode().splitlines()[1].split())
        except (ValueError, IndexError):
            raise ForeignDirectory(f"{self.directory.path}/{PHANTOM_TAIL} does not parse") from None
        return OffsetAndEpoch(offset, epoch)


def _clip(entries, start, end):
    """Epoch entries as a log from ``start`` to ``end`` shows them."""
    below = [epoch for epoch, offset in entries if offset <= start]
    inside = [(epoch, offset) for epoch, offset in entries if start < offset < end]
    return ([(below[-1], start)] if below and end > start else []) + inside


def _activate(disk, directory, nursery, segments, recovery, settings):
    """Make the last segment ready for appends, or start the first one."""
    path = directory.log_path
    if not segments:
        segments.append(_first_segment(disk, path, settings, 0))
    segment = segments[-1]
    if segment.has_page:
        _clear_tail(segment)
        prepared = max(segment.stored_prepared(), segment.position)
        segment.note_prepared(-(-prepared // limits.PAGE_BYTES) * limits.PAGE_BYTES)
    elif segment.position < settings.capacity:
        segment.extend(settings.capacity)
        nursery.prepare_now(segment, settings.prepare_bytes)
        segment.format_page(segment.end_offset, max(segment.last_epoch, 0), 1)
        segment.note_prepared(segment.prepared)
        segment.file.sync()
    else:
        segments.append(_first_segment(disk, path, settings, segment.end_offset))
    log = Log(disk, path, nursery, segments, recovery.epochs, settings.segment_ms, recovery.durable_end[0])
    nursery.prepare_now(log.active, settings.prepare_bytes)
    log.flush()
    log.retire()
    return log


def _clear_tail(Segment segment):
    """Zeros over a torn tail, on disk before anything is appended there (D8)."""
    cdef uint64_t end = min(segment.file.data_end(), segment.capacity)
    segment.note_dirt(end)
    kf_generation_bump(segment.page)
    segment.file.sync()  # the lowered watermark first
    if segment.clear_dirt():
        segment.file.sync()


def _first_segment(disk, path, settings, base_offset):
    file = disk.create_segment(os.path.join(path, segment_name(base_offset) + LOG_SUFFIX),
                               settings.capacity + limits.PAGE_BYTES)
    segment = Segment(file, base_offset, settings.capacity)
    segment.format_page(base_offset, 0, 1)
    file.sync()
    disk.sync_directory(path)
    return segment
