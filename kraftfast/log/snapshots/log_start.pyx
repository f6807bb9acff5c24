"""Where a log starts: old segments are given up, or a snapshot takes the place of all of them.

Both leave what Kafka's rules make a log of after a crash at any step: segments without a gap that
hold the newest snapshot's end, or that are behind or beside it and go at the next start
(``log/recovery.py``). The start itself is not stored.
"""

import os

from libc.stdint cimport int64_t

from kraftfast.errors import CorruptLog, DiskFull, FlushFailed, StorageError
from kraftfast.log.small_files import epoch_checkpoint, marks
from kraftfast.log.small_files.draft import Draft
from kraftfast.log.snapshots.newest_snapshot import clip
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.log.trimming import remove
from kraftfast.log.snapshots.snapshot_footer import producers_state
from kraftfast.types import OffsetAndEpoch

from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport *


def delete_before(Log log not None, int64_t offset) -> int:
    """Let the log begin at ``offset``, where a snapshot ends; returns the bytes given up.

    Segments wholly below go: their files to the nursery when no process maps them, else they are
    unlinked. Each is gone for certain before the next one goes: a crash leaves no gap, and after
    a StorageError ``log.failed`` is set, or the next call would leave one (D25).
    """
    cdef Segment segment
    cdef int64_t freed = 0
    assert offset <= log.end_offset
    if offset <= log.log_start_offset:
        return 0
    log.trims.stop()
    try:
        log.producers.forget_before(offset, log.segments)
    except CorruptLog:  # in what goes; the snapshot was made before that
        log.producers.forget_before(offset, log.segments, _filed_at(log, offset))
    below = [entry for entry in log.epochs if entry[1] < offset]
    log.start_epoch = below[-1][0] if below else log.start_epoch
    log.log_start_offset = offset
    log.flushed_end_offset = max(log.flushed_end_offset, offset)  # durability=memory alone
    while len(log.segments) > 1 and log.segments[1].base_offset <= offset:
        segment = log.segments.pop(0)
        freed += segment.position
        try:
            remove(log, segment, recycle=True, page=True)
        except StorageError as error:
            log.failed = log.failed or error
            raise
    _drop_old_epochs(log)
    return freed


cdef bytes _filed_at(Log log, int64_t offset):
    """Return the state of producers by the snapshot that ends at ``offset``; None without one."""
    for snapshot_id in snapshot_ids(log.disk, log.path):
        if snapshot_id.offset == offset:
            return producers_state(log.disk, log.path, snapshot_id)
    return None


cdef _drop_old_epochs(Log log):
    """Drop epochs that ended at or before the first segment; the one in force there starts there.

    A start passes over what lies before the log, so the checkpoint is written only if it gets
    shorter (and at the close): appends wait for that. On a full disk all stay until the next time.
    """
    kept = clip(log.epochs, log.segments[0].base_offset, log.end_offset)
    if len(kept) == len(log.epochs):
        log.epochs = kept
        return
    try:
        log.rewrite(log.checkpoint_path, epoch_checkpoint.encode(kept))
    except DiskFull:  # the segments are gone already (D25)
        return
    log.epochs = kept


def install_snapshot(Log log not None, snapshot_id):
    """Begin again at the end of a snapshot that is on disk under its name, durably (I15).

    D25: everything that may fail (decoding, space) comes before the first segment is removed. A
    StorageError before that leaves the log as it was. After it ``log.failed`` is set: the process
    must end, and the next start finishes, because what is left is behind or beside the snapshot.
    The truncation counter rises (D2); no flush may be under way.
    """
    assert log.failed is None
    drafts, made = [], OffsetAndEpoch(*snapshot_id)
    mark = os.path.join(log.path, marks.DURABLE_END)
    producers = producers_state(log.disk, log.path, made)
    try:
        drafts.append(Draft(log.disk, log.checkpoint_path, epoch_checkpoint.encode([])))
        drafts.append(Draft(log.disk, mark, marks.encode(made)))
        spare = log.nursery.spare_now()
    except FlushFailed as error:
        log.failed = error  # D9
        raise
    except StorageError:
        for draft in drafts:
            draft.drop()
        for path in (log.checkpoint_path, mark):
            log.disk.reserve_rewrite(path)
        raise
    try:
        _replace_all(log, made, producers, drafts, spare)
    except StorageError as error:
        log.failed = log.failed or error
        raise


cdef _replace_all(Log log, start, bytes producers, list drafts, spare):
    """Remove every segment, then begin an empty one at ``start``, where the snapshot ends."""
    cdef Segment segment
    offset, epoch = start
    log.trims.stop()
    log.truncations += 1
    for segment in reversed(log.segments):  # the newest first: what is left is a prefix
        remove(log, segment, recycle=True)
    log.segments = []
    log.log_start_offset = log.end_offset = log.flushed_end_offset = offset
    log.start_epoch = log.last_epoch = epoch
    log.epochs = []
    log.durable_end = start
    for draft in drafts:
        draft.publish()
    log.sync_names()  # durable before the name of a segment says that the log begins there
    for path in (log.checkpoint_path, os.path.join(log.path, marks.DURABLE_END)):
        log.disk.reserve_rewrite(path)  # the draft took its place
    log.producers.load(offset, producers)
    log.start_segment(spare)
    log.sync_names()
