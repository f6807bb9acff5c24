"""Control batches of a log, found by their headers: whole segments at a start, copies as they come.

A copy costs one more look at each header, which was just stored; only control batches become
Python objects.
"""

from libc.stdint cimport int64_t, uint8_t, uint64_t

from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport Segment
from kraftfast.record.judge cimport (
    KF_ATTRIBUTE_CONTROL, KF_BATCH_OK, kf_batch_header, kf_batch_parse,
)


cpdef list control_batches(Log log, int64_t from_offset):
    """Return the control batches from the one that holds ``from_offset`` on, as bytes."""
    cdef Segment segment = log.segment_of(max(from_offset, log.log_start_offset))
    cdef Py_ssize_t index
    cdef int64_t position
    cdef list found = []
    if segment is None or from_offset >= log.end_offset:
        return found
    position = segment.find(max(from_offset, log.log_start_offset))
    assert position >= 0, "an offset below the end is in a batch"
    _walk(segment, position, found)
    if segment is log.active:
        return found
    for index in range(log.segments.index(segment) + 1, len(log.segments)):
        _walk(log.segments[index], 0, found)
    return found


cdef int _walk(Segment segment, uint64_t position, list found) except -1:
    cdef const uint8_t *base = segment.file.base
    cdef kf_batch_header h
    while position < segment.position:
        fault = kf_batch_parse(base + position, segment.position - position, &h)
        assert fault == KF_BATCH_OK, "what was taken into the log is whole"
        if h.attributes & KF_ATTRIBUTE_CONTROL:
            found.append(bytes(base[position:position + h.size]))
        position += h.size
    return 0
