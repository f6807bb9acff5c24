"""Files that are used again: what they held before is told from what was appended since.

Nothing is written over when a file is taken in again: behind the batches, and after a power cut in
the place of pages that did not reach the disk, stands what it held before. That may be batches, at
any place, of any offset and epoch: a record's value may hold what its producer liked. So no batch
behind the flushed end is believed for being one that follows. The words of the last page vouch
for it: they say where batches ended, and a digest of all their headers under a key that was drawn
when the file was taken in (``kf_batch_vouch``), after everything that it held before was written.
"""

from libc.stdint cimport int64_t, uint64_t

from kraftfast.errors import CorruptLog
from kraftfast.types import OffsetAndEpoch

from kraftfast.log.segment cimport *
from kraftfast.record.judge cimport *


def take_in(Segment segment not None, uint64_t key) -> bool:
    """Take in a file that still has its last page; return whether it had a key before.

    Its words stay: what they say was flushed is true, and ends where the new batches begin or
    earlier. If it had no key, the new one must be on disk before the first batch is stored: under
    an old page without one, whatever follows a batch would be believed. An old key does no harm:
    under it none of the new batches are vouched for.
    """
    cdef bint had_key = 0 < segment.key <= KF_KEY_MAX
    assert segment.page != NULL and not segment.position
    segment.key, segment.voucher = key, KF_VOUCHER_START
    kf_key_store(segment.page, key)
    kf_end_store(segment.page, kf_mark(0, 0, 0), segment.voucher, 0)
    return had_key


def tell_apart(Segment segment not None, disk) -> bool:
    """Have what stands behind the batches, all of which are on disk, told from what comes there.

    Returns whether it took a new key. Raises FlushFailed.
    """
    if segment.key > KF_KEY_MAX or holds_older(segment):
        begin_life(segment, disk, True)
        return True
    return False


cdef bint holds_older(Segment segment):
    """Return whether something stands behind what the page says was prepared.

    Older batches, as a version without keys left them; or those of a process whose words a power
    cut took.
    """
    cdef uint64_t end = min(segment.file.data_end(), segment.capacity)
    cdef uint64_t begin = max(segment.stored_prepared(), segment.position)
    return not segment.key and not kf_is_zero(segment.file.base, begin, end)


def begin_life(Segment segment not None, disk, bint used):
    """Vouch for the batches from now on, all of which are on disk: anything may stand behind (D10).

    ``used``: older bytes may stand behind now.
    The words are on disk before their key: without it, or under a damaged one, recovery ignores
    vouchers; under it, those of no other key would pass for damage.
    """
    cdef kf_watermark w
    cdef kf_batch_header h
    cdef uint64_t at = 0, key = disk.secret(KF_KEY_MAX)
    assert segment.page != NULL and not kf_watermark_load(segment.page, &w)
    assert w.flushed.offset == segment.end_offset
    segment.key, segment.voucher, segment.used = key, KF_VOUCHER_START, segment.used or used
    while at < segment.position:
        fault = kf_batch_parse(segment.file.base + at, segment.position - at, &h)
        assert fault == KF_BATCH_OK
        segment.voucher = kf_batch_vouch(segment.voucher, key, &h, h.base_offset)
        at += h.size
    kf_watermark_store(segment.page, w.target, w.flushed, segment.voucher, segment.voucher)
    segment.mark_end()
    segment.file.sync()
    kf_key_store(segment.page, key)
    segment.file.sync()


def appended_end(recovery):
    """Return (offset, epoch) up to which something was appended, ``target`` at least (D10).

    With durability=memory all of that may have been acknowledged; a page stays there for as long as
    its kernel runs, unless the file system lost it.
    """
    cdef kf_watermark w
    cdef Segment segment
    reached = recovery.target
    for segment in recovery.segments:
        if 0 < segment.key <= KF_KEY_MAX and not kf_end_load(segment.page, &w):
            epoch = max(w.target.epoch, reached.epoch)  # one without batches knows none
            reached = max(reached, OffsetAndEpoch(w.target.offset, epoch))
    return reached


def held_more(Segment segment not None) -> bool:
    """Return whether this file alone tells that more was on disk here than was found (D10)."""
    cdef kf_watermark w
    if segment.page == NULL:  # zeros: a cut could not take them off while a process mapped it
        if segment.file.copied:
            segment.file.look(segment.position, segment.file.size)
        return not kf_is_zero(segment.file.base, segment.position, segment.file.size)
    return not kf_watermark_load(segment.page, &w) and w.flushed.offset > segment.end_offset


cdef struct Mark:
    int64_t offset  # -1: unknown
    uint64_t voucher


def vouched_end(Segment segment not None, int64_t flushed_offset) -> int:
    """Return up to which position batches are certain to be of this log, by their headers alone.

    Those below ``flushed_offset`` were on disk; of those behind it the last page has to tell. Where
    zeros stood behind the batches it is as far as batches may stand at all. Raises CorruptLog where
    other batches stand than were flushed: a write that the disk has lost.
    """
    cdef kf_watermark w
    cdef Mark target = Mark(-1, 0), flushed = Mark(-1, 0), end = Mark(-1, 0)
    cdef uint64_t at = 0, found = 0, limit = segment.batches_end_max()
    cdef uint64_t voucher = KF_VOUCHER_START
    cdef int64_t offset = segment.base_offset
    cdef kf_batch_header h
    if not segment.key:
        return limit
    if segment.key <= KF_KEY_MAX:  # else what was flushed is all that is known
        if not kf_watermark_load(segment.page, &w):
            target = Mark(w.target.offset, w.voucher)
            flushed = Mark(w.flushed.offset, w.flushed_voucher)
        if not kf_end_load(segment.page, &w):
            end = Mark(w.target.offset, w.voucher)
    while at < limit:
        if segment.file.copied:
            segment.file.look(at, limit)
        if kf_batch_parse(segment.file.base + at, limit - at, &h) or h.base_offset != offset:
            break
        voucher = kf_batch_vouch(voucher, segment.key, &h, offset)
        at += h.size
        offset += h.record_count
        if flushed.offset == offset and flushed.voucher != voucher:
            raise CorruptLog(
                f"{segment.file.path}: what stands below byte {at} (offset {offset}) is not what "
                "was flushed there", segment.file.path, at, offset)
        if (offset <= flushed_offset
                or target.offset == offset and target.voucher == voucher
                or end.offset == offset and end.voucher == voucher):
            found = at
    return found
