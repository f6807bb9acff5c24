"""Whether a log's files are sound: all of it as recovery judges it, and its indexes besides.

Damage is CorruptLog with its place. What lies behind the last whole batch is no damage as long as
nothing below it was known to be on disk (D10); :class:`Tail` says what it is.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NoReturn

from kraftfast import limits
from kraftfast.errors import CorruptBatch, CorruptLog, InputError, KraftfastError, RecordsRefused
from kraftfast.log import scan
from kraftfast.log.disk import Disk
from kraftfast.log.reading.at_rest import find_log, looked_at
from kraftfast.log.reading.copied_file import CopiedFile
from kraftfast.log.reading.held_segment import HeldSegment, Mark
from kraftfast.log.reading.index_check import IndexCheck
from kraftfast.log.reading.reader import SEGMENT_FILE, corrupt_log
from kraftfast.log.recovery import Recovery
from kraftfast.log.segment import INDEX_SUFFIX, LOG_SUFFIX, TIME_INDEX_SUFFIX
from kraftfast.log.small_files import epoch_checkpoint, quorum_state
from kraftfast.log.small_files.committed_floor import NOTHING, read_floor
from kraftfast.log.small_files.directory import (
    META,
    OPTIONS,
    PARTITION_METADATA,
    LogDirectory,
    LooseLog,
    ReplicaDirectory,
    decode_partition_metadata,
)
from kraftfast.log.small_files.state_check import check_quorum_state
from kraftfast.log.snapshots.newest_snapshot import clip, holds
from kraftfast.log.snapshots.snapshot_files import BOOTSTRAP, snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_files import SUFFIX as SNAPSHOT_SUFFIX
from kraftfast.log.snapshots.snapshot_footer import producers_state
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.record import batch as record_batch
from kraftfast.record.batch import BatchView
from kraftfast.types import ZERO_UUID, ElectionState, uuid_text

if TYPE_CHECKING:
    from kraftfast.log.segment import Segment

TailKind = Literal["none", "zeros", "torn", "phantom"]
"""``zeros``: prepared for appends, or left by a crash. ``torn``: never acknowledged, to be cut at
the next start. ``phantom``: records up to ``Tail.possible`` may have been acknowledged and are not
there."""


@dataclass(frozen=True, slots=True)
class Tail:
    """What lies behind the last whole batch."""

    kind: TailKind
    path: str
    position: int
    """Where it begins; the last whole batch ends here."""
    bytes: int
    """From there to the last byte that is not zero; of ``zeros``, how many."""
    reason: str = ""
    """Why what stands there is no batch; empty for zeros."""
    possible: Mark | None = None
    """Offset and epoch of a phantom tail's end."""


@dataclass(slots=True)
class Counts:
    """What whole batches amount to."""

    path: str
    base_offset: int
    batches: int = 0
    records: int = 0
    bytes: int = 0
    first_epoch: int = -1
    last_epoch: int = -1
    index_entries: int | None = None
    """None without an index file, as long as a segment is prepared."""
    time_index_entries: int | None = None

    def add(self, found: BatchView) -> None:
        """Count one more batch."""
        self.first_epoch = found.leader_epoch if not self.batches else self.first_epoch
        self.last_epoch = found.leader_epoch
        self.batches += 1
        self.records += found.record_count
        self.bytes += found.size


@dataclass(frozen=True, slots=True)
class Verified:
    """A sound log, or one sound file of it."""

    path: str
    start_offset: int
    end_offset: int
    tail: Tail
    segments: list[Counts] = field(default_factory=list)
    epochs: epoch_checkpoint.EpochStarts | None = None
    """Of ``leader-epoch-checkpoint``, which agrees with the batches; None if there is none."""
    state: ElectionState | None = None
    """Of ``quorum-state``, which can be that of this log; None if there is none."""

    @property
    def batches(self) -> int:
        return sum(each.batches for each in self.segments)

    @property
    def records(self) -> int:
        return sum(each.records for each in self.segments)

    @property
    def bytes(self) -> int:
        return sum(each.bytes for each in self.segments)


def verify(path: str, records: bool = False) -> Verified:
    """Verify a segment or snapshot file, or all of a log: CRCs, offsets, epochs, names and indexes.

    ``records``: decode every record too. Nothing is changed; a replica may run meanwhile.
    Raises CorruptLog with the place, ForeignDirectory, NotFormatted, InputError, StorageError.

    >>> found = verify(log_path)
    >>> found.batches, found.records, found.end_offset, found.tail.kind
    (2, 3, 3, 'none')
    """
    if not os.path.isdir(path):
        return verify_file(path, records)
    try:
        return _verify_log(path, records)
    except CorruptLog:  # a live replica may have cut what was being read: damage stays damage
        return _verify_log(path, records)


# --- a whole log ----------------------------------------------------------------------------------


def _verify_log(path: str, records: bool) -> Verified:
    disk = Disk()
    directory = find_log(disk, path)
    _check_identity(disk, directory)
    damaged = _damaged_floor(disk, directory)
    with looked_at(disk, directory, NOTHING if damaged else None) as recovery:
        if directory.adopted and recovery.segments:
            _refuse_holes(recovery)
        kept = recovery.segments[: recovery.keep]
        found = [_count_segment(segment, directory, records) for segment in kept]
        start = kept[0].base_offset if kept else recovery.start.offset
        end = kept[-1].end_offset if kept else recovery.start.offset
        _check_epochs(recovery, kept, end)
        tail = _tail_of_log(recovery, directory.log_path, end)
        state = None
        if isinstance(directory, ReplicaDirectory):
            state = _check_state(disk, directory, recovery, end)
        _check_snapshots(disk, directory.log_path, recovery.epochs, start, end)
        if damaged:
            raise CorruptLog(
                f"{damaged}; apart from it {directory.log_path} is sound, offsets {start} to end "
                f"offset {end}",
                damaged.path,
            )
        return Verified(directory.log_path, start, end, tail, found, recovery.stored, state)


def _damaged_floor(disk: Disk, directory: LogDirectory) -> CorruptLog | None:
    """Return what is wrong with the committed floor: the log is judged without it then."""
    try:
        if not directory.adopted:
            read_floor(disk, directory.path)
    except CorruptLog as error:
        return error
    return None


def _check_identity(disk: Disk, directory: LogDirectory) -> None:
    """Check what formatting wrote and nothing rewrites. Raises CorruptLog, ForeignDirectory."""
    if not isinstance(directory, ReplicaDirectory):
        return
    if not directory.adopted and directory.meta.directory_id == ZERO_UUID:
        path = os.path.join(directory.path, META)
        raise CorruptLog(f"{path} has no directory.id: a start would make up another", path)
    path = os.path.join(directory.log_path, PARTITION_METADATA)
    if disk.exists(path):
        found, known = decode_partition_metadata(disk.read_file(path), path), directory.options
        if found != known.topic_id:
            text = f"{path} names topic id {uuid_text(found)}, not {uuid_text(known.topic_id)}"
            raise CorruptLog(f"{text}, which {OPTIONS} has", path)


def _check_snapshots(
    disk: Disk, log_path: str, epochs: Sequence[tuple[int, int]], start: int, end: int
) -> None:
    """Read every snapshot, the bootstrap's too, as a start would. Raises CorruptLog.

    The record before the end of each, if the log has it, must be of the snapshot's epoch.
    """
    for id in snapshot_ids(disk, log_path):
        path = snapshot_path(log_path, id)
        try:
            with SnapshotReader(disk, path) as reader:
                reader.check()
            if id != BOOTSTRAP:
                producers_state(disk, log_path, id)
            if start < id.offset <= end and not holds(id, start, end, epochs):
                text = f"{path} ends in epoch {id.epoch}, but the log's record before it does not"
                raise CorruptLog(text, path)
        except (KraftfastError, FileNotFoundError):
            if disk.exists(path):  # else a live replica has removed it meanwhile
                raise


def _check_state(
    disk: Disk, directory: ReplicaDirectory, recovery: Recovery, end: int
) -> ElectionState | None:
    """Read last: a replica that runs may have gone on meanwhile, never its log before it (D5)."""
    path = os.path.join(directory.log_path, quorum_state.NAME)
    try:
        data = disk.read_file(path)
    except FileNotFoundError:
        state = None
    else:
        state = quorum_state.decode(data, path)
        quorum_state.check_owner(data, path, directory.meta.directory_id)
    places = (end, recovery.last_epoch()), *recovery.places()
    check_quorum_state(state, path, places, directory.meta.node_id)
    return state


def _count_segment(segment: Segment, directory: LogDirectory, records: bool) -> Counts:
    counts = Counts(segment.file.path, segment.base_offset)
    taken = "any" if isinstance(directory, LooseLog) else directory.options.records
    counting = _Counting(counts, taken if records else None, not segment.has_page)
    batches = Batches(_copied(segment, segment.position), segment.base_offset)
    for begin, found in batches:
        counting.meet(begin, found)
    if batches.position < segment.position:  # changed since it was judged
        place = segment.file.path, batches.position, batches.offset
        raise corrupt_log(*place, scan.fault_text(batches.fault))
    counts = counting.finish()
    if not segment.has_page and not directory.adopted:
        counting.places.hold_whole(segment.index_bytes())
        counting.times.hold_whole(segment.time_index_bytes(True))
    return counts


def _copied(segment: Segment, end: int) -> CopiedFile:
    """Return the file of an open segment, up to ``end``."""
    return CopiedFile(segment.file.path, os.dup(segment.file.fd), end)


def _check_epochs(recovery: Recovery, kept: list[Segment], end: int) -> None:
    """Check the epochs also where recovery would rebuild the checkpoint, which has no authority.

    Kafka's begins at its log start, which a snapshot may have moved into the first segment.
    """
    if recovery.stored is None and kept and not recovery.directory.adopted:
        _refuse_checkpoint(recovery)
    if recovery.stored is None or recovery.anew:
        return
    start = kept[0].base_offset if kept else 0
    if recovery.stored and kept and recovery.stored[0][1] < kept[0].end_offset:
        start = max(start, recovery.stored[0][1])
    stored, found = (clip(each, start, end) for each in (recovery.stored, recovery.epochs))
    if stored != found:
        path = os.path.join(recovery.path, epoch_checkpoint.NAME)
        text = f"{path} says {stored}, but the batches say {found} (epoch, start offset)"
        raise CorruptLog(text, path, 0, start)


def _refuse_checkpoint(recovery: Recovery) -> NoReturn:
    """Ours is on disk before the first batch of an epoch (D18): without it, batches whose epoch
    has changed are told by nothing.
    """
    path = os.path.join(recovery.path, epoch_checkpoint.NAME)
    why = "does not parse" if os.path.exists(path) else "is missing"
    raise CorruptLog(
        f"{path} {why}: a start rebuilds it from the batches, whose epochs no checksum covers",
        path,
    )


def _tail_of_log(recovery: Recovery, log_path: str, end: int) -> Tail:
    if not recovery.segments:
        return Tail("none", log_path, 0, 0)
    if recovery.anew:
        path, size = recovery.segments[0].file.path, recovery.segments[0].file.size
        return Tail("torn", path, 0, size, recovery.cut_reason)
    size = rest = 0
    for segment in recovery.segments[recovery.keep - 1 :]:
        begin = segment.position if segment is recovery.segments[recovery.keep - 1] else 0
        stop = max(begin, segment.batches_end())
        size += _copied(segment, stop).data_end(begin, stop) - begin
        rest += stop - begin
    last = recovery.segments[recovery.keep - 1]
    place = last.file.path, last.position
    target = recovery.target
    if recovery.paged and end < target.offset:
        return Tail("phantom", *place, size, recovery.cut_reason, (target.offset, target.epoch))
    if size and not last.has_page:
        reason = recovery.cut_reason or "the bytes after its last batch are not a batch"
        raise corrupt_log(*place, end, reason)
    if size:
        return Tail("torn", *place, size, recovery.cut_reason or "no batch")
    return Tail("zeros" if rest else "none", *place, rest)


def _refuse_holes(recovery: Recovery) -> None:
    """Refuse holes: a torn tail of Kafka's looks like damage, and a start cuts all behind it."""
    expected = recovery.segments[0].base_offset
    for segment in recovery.segments:
        place, size = (segment.file.path, segment.position), segment.file.size
        reason = "the segment before it does not end where it begins"
        if segment.base_offset == expected:
            file, expected = _copied(segment, size), segment.end_offset
            if file.data_end(segment.position, size) == segment.position:
                continue
            *_, fault = file.walk(segment.position, expected, verify_crc=True)
            reason = scan.fault_text(fault)
        reason += "; a start cuts what is there and all behind it, as Kafka's does"
        raise corrupt_log(*place, expected, reason)


# --- one file -------------------------------------------------------------------------------------


def verify_file(path: str, records: bool = False) -> Verified:
    """Do as :func:`verify`, for one segment with its indexes, or one snapshot."""
    if path.endswith(SNAPSHOT_SUFFIX):
        return _verify_snapshot(path, records)
    segment = open_segment_file(path)
    batches = Batches(segment, segment.base_offset)
    counts = Counts(segment.path, segment.base_offset)
    counting = _Counting(counts, "any" if records else None, segment.page() is None)
    for begin, found in batches:
        counting.meet(begin, found)
    tail = tail_of(segment, batches.position, batches.offset, batches.fault)
    return Verified(path, segment.base_offset, batches.offset, tail, [counting.finish()])


class Batches:
    """The whole batches of a file whose CRCs hold: (where the copy begins, a batch in it)."""

    # position, offset, epoch, fault: where it stopped, and why.

    def __init__(self, file: CopiedFile, base_offset: int = 0, epoch: int = -1) -> None:
        self.file, self.epoch = file, epoch
        self.position, self.offset, self.fault = 0, base_offset, scan.WHOLE

    def __iter__(self) -> Iterator[tuple[int, BatchView]]:
        for data, end, self.offset, self.epoch, self.fault in self.file.spans(
            self.position, self.offset, self.epoch, verify_crc=True
        ):
            begin, self.position = self.position, end
            for found in record_batch.batches(data, 0, end - begin):
                yield begin, found


def open_segment_file(path: str) -> HeldSegment:
    """Open a ``.log`` file, held as long as it is in use. Raises InputError, StorageError."""
    directory, name = os.path.split(os.path.abspath(path))
    match = SEGMENT_FILE.fullmatch(name)
    if match is None:
        raise InputError(f"{path} is no segment: those are called by 20 digits and {LOG_SUFFIX}")
    try:
        return HeldSegment(directory, int(match[1]))
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None


def tail_of(segment: HeldSegment, position: int, offset: int, fault: int) -> Tail:
    """Return what stands where a walk over one segment stopped with ``fault``.

    Raises CorruptLog for what is known to have been on disk, and for all that stands behind the
    batches of a trimmed segment, where nothing tells a torn tail from damage.
    """
    if (cut := segment.lost_end()) >= 0:
        reason = f"the file ends here, and had {segment.size} bytes when it was opened"
        raise corrupt_log(segment.path, cut, offset, reason)
    size = segment.data_end(position, segment.limit) - position
    torn = size > 0 or fault != scan.END
    reason = scan.fault_text(fault) if torn else ""
    page = segment.page()
    if page is None:
        if torn:
            raise corrupt_log(segment.path, position, offset, reason)
        return _zeros(segment, position)
    _, _, target, flushed = page
    if target is None or flushed is None:
        reason = "neither durable watermark holds"
        raise corrupt_log(segment.path, segment.size - limits.PAGE_BYTES, offset, reason)
    if offset < flushed[0]:
        reason = f"{reason or 'it ends'}; everything below offset {flushed[0]} had been flushed"
        raise corrupt_log(segment.path, position, offset, reason)
    if offset < target[0]:
        return Tail("phantom", segment.path, position, size, reason, target)
    if torn:
        return Tail("torn", segment.path, position, size, reason)
    return _zeros(segment, position)


def _zeros(segment: HeldSegment, position: int) -> Tail:
    left = segment.limit - position
    return Tail("zeros" if left else "none", segment.path, position, left)


def open_file(path: str) -> CopiedFile:
    """Open any file. Raises InputError, StorageError."""
    try:
        return CopiedFile(path)
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None


def _verify_snapshot(path: str, records: bool) -> Verified:
    """Verify a snapshot, which is written at once: what stands behind its footer is damage."""
    file = open_file(path)
    with SnapshotReader(Disk(), path) as reader:
        reader.check()
    counting, batches = _Counting(Counts(path, 0), "any" if records else None), Batches(file)
    for begin, found in batches:
        counting.meet(begin, found)
    if batches.position < file.size:  # another file by now
        raise corrupt_log(path, batches.position, batches.offset, scan.fault_text(batches.fault))
    tail = Tail("none", path, file.size, 0)
    return Verified(path, 0, reader.end_offset, tail, [counting.finish()])


# --- batches and indexes --------------------------------------------------------------------------


class _Counting:
    """Counts the batches of one file, and holds the indexes beside it against them.

    ``taken``: which records the log takes (``any``, ``kafka-raft``) if they are looked at.
    ``indexed``: False for a prepared segment: what lies beside it is the first step of a trim that
    was not finished, and is written again before it counts.
    """

    def __init__(self, counts: Counts, taken: str | None, indexed: bool = True) -> None:
        self.counts, self.taken = counts, taken
        stem = counts.path.removesuffix(LOG_SUFFIX)
        self.places = IndexCheck(stem + INDEX_SUFFIX, counts.base_offset, indexed)
        self.times = IndexCheck(stem + TIME_INDEX_SUFFIX, counts.base_offset, indexed)

    def meet(self, begin: int, found: BatchView) -> None:
        """Check the next batch, in bytes that begin at ``begin`` of the file. Raises CorruptLog."""
        position = begin + found.position
        try:
            if self.taken is not None:
                found.check(records=self.taken)  # type: ignore[arg-type]
        except (CorruptBatch, RecordsRefused) as error:
            place = self.counts.path, position, found.base_offset
            raise corrupt_log(*place, error.reason) from None
        self.counts.add(found)
        self.places.meet_place(found, position)
        self.times.meet_time(found)

    def finish(self) -> Counts:
        """Check what only the whole shows, once all batches were met. Raises CorruptLog."""
        self.counts.index_entries = self.places.finish()
        self.counts.time_index_entries = self.times.finish()
        return self.counts
