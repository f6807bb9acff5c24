"""What stands in segments, by headers and last pages: walks make no Python object a batch."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraftfast.buffer cimport Hold, hold
from kraftfast.log.idempotence.producers cimport Producers
from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport *
from kraftfast.record.judge cimport *

from kraftfast.record.shapes import FAULT_TEXTS

WHOLE = KF_BATCH_OK
END = KF_BATCH_EMPTY
INCOMPLETE = KF_BATCH_INCOMPLETE
OFFSET = KF_BATCH_OFFSET
cdef uint64_t UNKNOWN = 0xFFFFFFFFFFFFFFFF


def fault_text(int fault) -> str:
    """Return why a walk stopped, in words."""
    return FAULT_TEXTS[fault]


def walk(buffer, uint64_t position, uint64_t limit, int64_t offset,
         int32_t epoch=-1, *, int64_t end_offset=0x7FFFFFFFFFFFFFFF,
         uint64_t bytes_max=0x7FFFFFFFFFFFFFFF, int32_t epoch_max=0x7FFFFFFF,
         bint verify_crc=False):
    """Return (position, offset, epoch, fault) behind the whole batches from ``position`` on.

    The first has base offset ``offset``, each next one follows it, and epochs do not fall below
    ``epoch``, nor rise above ``epoch_max``. Stops with ``WHOLE`` before the first batch that ends
    beyond ``end_offset`` (which is the one that holds ``end_offset``) or, after at least one,
    beyond ``bytes_max`` bytes; with ``END`` at ``limit`` or at zeros; with another fault at what is
    no batch of this log.
    """
    cdef Hold held = hold(buffer)
    cdef const uint8_t *data = held.data
    cdef uint64_t begin = position
    cdef kf_batch_header h
    cdef int fault = KF_BATCH_EMPTY
    if not position <= limit <= <uint64_t>held.size:
        raise ValueError(f"bytes {position} to {limit} of a buffer of {held.size}")
    if position == limit:
        return position, offset, epoch, fault
    with nogil:
        while position < limit:
            fault = kf_batch_parse(data + position, limit - position, &h)
            if fault == KF_BATCH_INCOMPLETE and limit - position < KF_BATCH_HEADER:
                if kf_is_zero(data, position, limit):
                    fault = KF_BATCH_EMPTY
            if fault != KF_BATCH_OK:
                break
            if h.base_offset != offset:
                fault = KF_BATCH_OFFSET
                break
            if h.leader_epoch < epoch or h.leader_epoch > epoch_max:
                fault = KF_BATCH_EPOCH
                break
            if offset + h.record_count > end_offset:
                break
            if position > begin and position + h.size - begin > bytes_max:
                break
            if verify_crc:
                if not kf_batch_crc_holds(data + position, &h):  # of what was judged (D20)
                    fault = KF_BATCH_CRC
                    break
            position += h.size
            offset += h.record_count
            epoch = h.leader_epoch
            fault = KF_BATCH_EMPTY
    return position, offset, epoch, fault


def note_batches(Segment segment not None, int64_t expected, uint64_t limit,
                 Producers producers not None, list epochs, stored_epoch) -> int:
    """Walk over the batches of a segment until one does not check (I14); ``END`` at a clean end.

    The first has base offset ``expected``, each next one follows it. ``limit``: how many bytes of
    the segment may be batches. ``epochs``: (epoch, start offset) of the batches so far, which do
    not fall. ``stored_epoch(offset)``: the epoch that is stored for it, or -1, and up to where.
    """
    cdef kf_batch_header h
    cdef int32_t epoch = epochs[-1][0] if epochs else 0, stored = 0
    cdef int64_t stored_until = -1, last
    cdef int fault = KF_BATCH_EMPTY
    producers.mark(expected)
    while segment.position < limit:
        if segment.file.copied:
            segment.file.look(segment.position, limit)
        with nogil:
            fault = kf_batch_check(
                segment.file.base + segment.position, limit - segment.position, &h
            )
        last = expected + h.record_count - 1 - segment.base_offset
        if fault == KF_BATCH_OK and (h.base_offset != expected or last > RELATIVE_OFFSET_MAX):
            fault = KF_BATCH_OFFSET
        if fault == KF_BATCH_OK:
            if expected >= stored_until:
                stored, stored_until = stored_epoch(expected)
            if h.leader_epoch < epoch or (stored >= 0 and h.leader_epoch != stored):
                fault = KF_BATCH_EPOCH
        if fault == KF_BATCH_INCOMPLETE and limit - segment.position < KF_BATCH_HEADER \
                and kf_is_zero(segment.file.base, segment.position, limit):
            fault = KF_BATCH_EMPTY
        if fault != KF_BATCH_OK:
            break
        if h.leader_epoch != epoch or not epochs:
            epochs.append((h.leader_epoch, expected))
            epoch = h.leader_epoch
        if h.producer_id != -1 or h.attributes & KF_ATTRIBUTE_CONTROL:
            producers.note(&h, expected, segment.file.base + segment.position)
        segment.note_batch(&h, expected)
        expected = segment.end_offset
        fault = KF_BATCH_EMPTY
    if segment.file.copied:
        segment.file.look_away()
    return fault


def data_end(buffer, uint64_t position, uint64_t limit) -> int:
    """Return the end of the last byte of [position, limit) that is not zero, or ``position``."""
    cdef Hold held = hold(buffer)
    if not position <= limit <= <uint64_t>held.size:
        raise ValueError(f"bytes {position} to {limit} of a buffer of {held.size}")
    while limit > position and held.data[limit - 1] == 0:
        limit -= 1
    return limit


def page_words(page):
    """Return (generation, batches_end, target, flushed) of a segment's last page; None if it is
    none.

    Batches stand below ``batches_end``, which is None where the page does not say. ``target`` and
    ``flushed`` are (offset, epoch), both None where no slot of the watermark holds.
    """
    cdef Hold held = hold(page)
    cdef kf_watermark w
    cdef uint64_t end
    if held.size != KF_PAGE_BYTES:
        raise ValueError(f"a page of {held.size} bytes")
    if not kf_page_valid(held.data):
        return None
    target = flushed = None
    if not kf_watermark_load(held.data, &w):
        target, flushed = (w.target.offset, w.target.epoch), (w.flushed.offset, w.flushed.epoch)
    end = kf_page_batches_end(held.data)
    return kf_generation_load(held.data), None if end == UNKNOWN else end, target, flushed


def control_batches(Log log not None, int64_t from_offset) -> list[bytes]:
    """Return the control batches from the one that holds ``from_offset`` on.

    A follower asks this of each copy: one more look at each header, which was just stored.
    """
    cdef Segment segment = log.segment_of(max(from_offset, log.log_start_offset))
    cdef Py_ssize_t index
    cdef int64_t position
    cdef list found = []
    if segment is None or from_offset >= log.end_offset:
        return found
    position = segment.find(max(from_offset, log.log_start_offset))
    assert position >= 0, "an offset below the end is in a batch"
    find_controls(segment, position, found)
    if segment is log.active:
        return found
    for index in range(log.segments.index(segment) + 1, len(log.segments)):
        find_controls(log.segments[index], 0, found)
    return found


cdef int find_controls(Segment segment, uint64_t position, list found) except -1:
    cdef const uint8_t *base = segment.file.base
    cdef kf_batch_header h
    while position < segment.position:
        fault = kf_batch_parse(base + position, segment.position - position, &h)
        assert fault == KF_BATCH_OK, "what was taken into the log is whole"
        if h.attributes & KF_ATTRIBUTE_CONTROL:
            found.append(bytes(base[position:position + h.size]))
        position += h.size
    return 0
