"""Cutting a log: what a leader of a later epoch does not have goes, and never comes back (D8)."""

from libc.stdint cimport int64_t, uint64_t

from kraftfast.errors import DiskFull
from kraftfast.log.small_files import epoch_checkpoint, marks
from kraftfast.log import trimming
from kraftfast.log.used_again import tell_apart
from kraftfast.types import OffsetAndEpoch

from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport *
from kraftfast.record.judge cimport *


cpdef int64_t boundary(Segment segment, int64_t offset) noexcept:
    """Return where the batches before ``offset`` end; -1 within one, -2 behind damage."""
    # The header that stands there is not read: it may be damaged, and be what is cut (L5).
    cdef uint64_t position = 0
    cdef int64_t follows = segment.base_offset
    cdef kf_batch_header h
    while follows < offset:
        if kf_batch_parse(segment.file.base + position, segment.position - position, &h):
            return -2
        position += h.size
        follows += h.record_count
    return <int64_t>position if follows == offset else -1


def truncate(Log log not None, int64_t end_offset):
    """Cut the log to ``end_offset``, which lies between batches, durably.

    What is cut can never come back: generations first, then the watermarks lowered and synced,
    then zeros (or whole files gone) and synced, before anything is appended there again.
    Raises DiskFull, and then nothing was cut.
    """
    cdef Segment segment
    assert log.log_start_offset <= end_offset <= log.end_offset
    keep = [segment for segment in log.segments if segment.base_offset < end_offset]
    keep = keep or log.segments[:1]
    segment = keep[-1]
    position = segment.position
    if end_offset < segment.end_offset or segment.page != NULL:
        found = boundary(segment, end_offset)
        if found == -2:  # D10: what is kept is damaged; told before any watermark is lowered
            from kraftfast.log.reading.served import check_stored_batches

            check_stored_batches(log, segment, 0, segment.position, segment.base_offset)
        assert found >= 0, "cut inside a batch"
        position = found
    producers = log.producers.before_cut(end_offset, keep)  # D25: it may be refused
    epochs = [entry for entry in log.epochs if entry[1] < end_offset]
    last_epoch = epochs[-1][0] if epochs else log.start_epoch
    log.trims.stop()
    spare = log.nursery.spare_now() if segment.page == NULL else None
    # Lowered first: what is cut is no damage. Where no page is left to tell what was on disk until
    # the next segment has its name, this does (D10).
    if end_offset < log.durable_end.offset or segment.page == NULL:
        lowered = OffsetAndEpoch(end_offset, last_epoch)
        try:
            marks.rewrite(log.disk, log.path, marks.DURABLE_END, lowered)
        except DiskFull as error:
            if spare is not None:
                log.nursery.put_back(spare, error, log.now_ms)
            raise
        log.durable_end = lowered
    log.truncations += 1
    log.flushed_end_offset = min(log.flushed_end_offset, end_offset)
    log.epochs, log.last_epoch, log.end_offset = epochs, last_epoch, end_offset
    log.producers.cut(end_offset, producers)
    for later in reversed(log.segments[len(keep):]):
        trimming.remove(log, later)
    log.segments = keep
    log.go_on_in(segment)
    if log.names_dirty:  # D10: names are durable before a page says what was flushed
        log.sync_names()
    for segment in keep[:-1]:  # what is on disk stays a run of whole segments
        if segment.flushed_position < segment.position:
            log.sync_file(segment.file)
            segment.note_flushed(segment.position)
    if spare is None:
        _cut_prepared(log, log.active, position)
    else:
        trimming.cut_trimmed(log, log.active, position)
        log.start_segment(spare)
        log.settle(log.active, log.end_offset, log.last_epoch, log.active.voucher)
        log.sync_names()
    assert log.active.end_offset == end_offset
    log.rewrite(log.checkpoint_path, epoch_checkpoint.encode(log.epochs))
    log.names_dirty = True


def _cut_prepared(Log log, Segment segment, uint64_t position):
    """Write zeros over what is cut, on disk when this returns (D8)."""
    kf_generation_bump(segment.page)  # D20: a reader by reference checks it after each batch
    log.nursery.release(segment)
    segment.cut(position)
    segment.mark_end()
    log.settle(segment, segment.end_offset, log.last_epoch, segment.voucher)  # D10: then zeros
    if segment.clear_dirt():
        log.sync_file(segment.file)
    segment.note_flushed(segment.position)
    if tell_apart(segment, log.disk):  # it rolled before it was ready for more
        log.go_on_in(segment)
