"""What stands in segments, by headers and last pages: walks make no Python object a batch."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t

from kraftfast.buffer cimport Hold, hold
from kraftfast.log.idempotence.producers cimport Producers
from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport *
from kraftfast.record.judge cimport *

from kraftfast.errors import CorruptLog
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


def control_batches(Log log not None, int64_t from_offset, place=None) -> list[bytes]:
    """Return the control batches from the one that holds ``from_offset`` on.

    ``place``: (segment, position) where it begins. A follower asks this of each copy, and knows it:
    one more look at each header, which was just stored, and none at what may be damaged before.
    """
    cdef Segment segment
    cdef Py_ssize_t index
    cdef int64_t position
    cdef list found = []
    if from_offset >= log.end_offset:
        return found
    if place is None:
        from_offset = max(from_offset, log.log_start_offset)
        segment = log.segment_of(from_offset)
        place = segment, segment.find(from_offset)
    segment, position = place
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


# --- by time ----------------------------------------------------------------------------------


cdef struct Place:
    uint64_t position
    int64_t offset    # of the first record of the batch there


cdef Place rise(Segment segment, Py_ssize_t entry) noexcept:
    """Return from where on the largest timestamp is above that at the entry before this one.

    An entry is made with the first one of the offset index behind the batch that it is about, so
    only what lies between two of those has to be walked.
    """
    cdef int64_t offset = segment.end_offset
    if entry < segment.times_count:
        offset = segment.base_offset + segment.times[entry].relative_offset
    return Place(segment.indexed(offset), segment.indexed_base(offset))


cdef object damaged(Segment segment, uint64_t position, int64_t offset, str reason):
    path = segment.file.path
    text = f"{path} is damaged at byte {position} (offset {offset}): {reason}"
    return CorruptLog(text, path, position, offset)


cdef int read_header(Segment segment, Place *place, kf_batch_header *h) except -1:
    """Read the header of the batch at ``place``. Raises CorruptLog: what is passed over would be
    missing from the answer (D10).
    """
    cdef uint64_t position = place.position
    cdef int fault = kf_batch_parse(segment.file.base + position, segment.position - position, h)
    if fault == KF_BATCH_OK and h.base_offset != place.offset:
        fault = KF_BATCH_OFFSET
    if fault:
        raise damaged(segment, position, place.offset, FAULT_TEXTS[fault])
    return 0


cdef Place place_of(Segment segment, int64_t offset) except *:
    """Return where the batch begins that holds an ``offset`` of this segment. Raises CorruptLog."""
    cdef int64_t base_offset = 0
    cdef int64_t position = segment.seek(offset, &base_offset)
    if position < 0:
        raise damaged(segment, segment.indexed(offset), offset, "no batch from there on holds it")
    return Place(position, base_offset)


cdef int go_on(Place *place, const kf_batch_header *h) noexcept:
    """Put ``place`` behind this batch."""
    place.position += h.size
    place.offset += h.record_count
    return 0


def batch_from_timestamp(Segment segment not None, int64_t timestamp, int64_t offset,
                         int64_t headers_max):
    """Look for the first batch that may hold a record at or after both, for so many headers.

    Return (position, base offset, headers looked at), or -1 and the offset to go on from. Raises
    CorruptLog.
    """
    cdef Py_ssize_t low = 0, high = segment.times_count, middle
    cdef int64_t looked = 0
    cdef Place place, later
    cdef kf_batch_header h
    if segment.max_timestamp < timestamp:
        return -1, segment.end_offset, looked
    while low < high:
        middle = (low + high) // 2
        if segment.times[middle].timestamp < timestamp:
            low = middle + 1
        else:
            high = middle
    place, later = place_of(segment, offset), rise(segment, low)
    if later.position > place.position:
        place = later
    while place.position < segment.position and looked < headers_max:
        read_header(segment, &place, &h)
        looked += 1
        if h.max_timestamp >= timestamp:
            return place.position, place.offset, looked
        go_on(&place, &h)
        offset = place.offset
    return -1, offset, looked


def batch_of_max_timestamp(Segment segment not None, int64_t offset, int64_t end_offset,
                           int64_t headers_max):
    """Look at the batches between two offsets for the largest timestamp, at so many headers.

    Return (timestamp, an offset of its first batch, the offset to go on from, headers looked at);
    -1, -1 if none has a time. A batch that begins before or ends behind does not count. Raises
    CorruptLog.
    """
    cdef int64_t largest = -1, found = -1, looked = 0
    cdef Py_ssize_t low = 0, high = segment.times_count, middle
    cdef Place place, later
    cdef kf_batch_header h
    if segment.max_timestamp < 0:
        return -1, -1, segment.end_offset, looked
    place = place_of(segment, offset)
    if place.offset < offset:
        read_header(segment, &place, &h)
        go_on(&place, &h)
        offset = place.offset
    if offset <= segment.max_timestamp_offset < end_offset:
        return segment.max_timestamp, segment.max_timestamp_offset, segment.end_offset, looked
    while low < high:  # the first entry that is about a batch at or behind the end
        middle = (low + high) // 2
        if segment.base_offset + segment.times[middle].relative_offset < end_offset:
            low = middle + 1
        else:
            high = middle
    if low and segment.base_offset + segment.times[low - 1].relative_offset >= offset:
        largest = segment.times[low - 1].timestamp
        found = segment.base_offset + segment.times[low - 1].relative_offset
    if not low or found >= 0:  # else what the index knows of lies before the first offset
        later = rise(segment, low)
        if later.position > place.position:
            place = later
    while place.position < segment.position and looked < headers_max:
        read_header(segment, &place, &h)
        looked += 1
        go_on(&place, &h)
        offset = place.offset
        if offset > end_offset:
            break
        if h.max_timestamp > largest:
            largest, found = h.max_timestamp, h.base_offset
    return largest, found, offset, looked
