"""The headers of many batches as one numpy array: a look at a log without touching its records.

A batch whose CRC does not hold is told of and passed over, for its header says where the next one
begins; the walk stops at what is no header at all.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport pread

import numpy as np

from kraftfast.record.batch cimport Hold, bounded_end, hold
from kraftfast.record.parse cimport (
    FAULT_NONE, HEADER_BYTES, BatchHeader, crc_holds, parse_header,
)

from kraftfast import errors
from kraftfast.record import shapes


cdef enum:
    FAR_BYTES = 1 << 14  # to touch a page of a map costs five times a read of what is so far ahead


cdef packed struct Row:
    int64_t position
    int64_t size
    int64_t base_offset
    int64_t end_offset
    int64_t base_timestamp
    int64_t max_timestamp
    int64_t producer_id
    int32_t epoch
    int32_t count
    uint32_t crc
    int32_t base_sequence
    int16_t producer_epoch
    int16_t attributes
    uint8_t crc_ok


HEADER = np.dtype([
    ("position", "i8"), ("size", "i8"), ("base_offset", "i8"), ("end_offset", "i8"),
    ("base_timestamp", "i8"), ("max_timestamp", "i8"), ("producer_id", "i8"), ("epoch", "i4"),
    ("count", "i4"), ("crc", "u4"), ("base_sequence", "i4"), ("producer_epoch", "i2"),
    ("attributes", "i2"), ("crc_ok", "?"),
])
assert HEADER.itemsize == sizeof(Row)


class Headers:
    """What a walk met.

    * ``rows``: a numpy array of dtype :data:`HEADER`, in the order of the bytes; ``position`` is
      where the batch begins in the buffer, timestamps are milliseconds, ``crc_ok`` is true where
      CRCs were not looked at
    * ``position``: behind the last batch
    * ``fault``: why it stopped there, in words; "" at the bound that was asked for, at the end and
      at zeros to the end
    """

    __slots__ = ("rows", "position", "fault")

    def __init__(self, rows, position, fault):
        self.rows = rows
        self.position = position
        self.fault = fault


cdef bint zeros(const uint8_t *p, const uint8_t *end) noexcept nogil:
    while p < end:
        if p[0]:
            return False
        p += 1
    return True


def decode_headers(
    buffer, int64_t position=0, end=None, *, int64_t batches_max=1 << 20, bint verify_crc=False,
    int fd=-1,
) -> Headers:
    """The headers of the batches between two byte positions, ``batches_max`` at most.

    ``fd``: of the file that ``buffer`` maps, if there is one: headers far apart are read from it.
    Zeros to the end are what a log prepares for its appends. Nothing is asked of offsets and
    epochs. Raises :class:`~kraftfast.errors.InvalidOption` for bounds that cannot be.

    >>> from kraftfast.record import pure
    >>> data = pure.encode_batch(pure.values_to_records([b"a", b"b"], timestamp=0))
    >>> found = decode_headers(data + bytes(100), verify_crc=True)
    >>> found.rows[["base_offset", "end_offset", "count", "crc_ok"]].tolist(), found.fault
    ([(0, 2, 2, True)], '')
    """
    cdef Hold source = hold(buffer)
    cdef int64_t stop = bounded_end(source, position, end)
    cdef int64_t count = 0, room = 0
    cdef Row *rows = NULL
    cdef Row *grown
    cdef BatchHeader h
    cdef int fault = FAULT_NONE
    cdef uint8_t[HEADER_BYTES] taken
    cdef const uint8_t *p
    if batches_max < 1:
        raise errors.InvalidOption(f"batches_max={batches_max}")
    try:
        with nogil:
            while position < stop and count < batches_max:
                p = source.data + position
                if fd >= 0 and count and rows[count - 1].size >= FAR_BYTES:
                    if pread(fd, taken, HEADER_BYTES, position) == HEADER_BYTES:
                        p = taken
                fault = parse_header(p, stop - position, &h)
                if fault != FAULT_NONE:
                    break
                if count == room:
                    grown = <Row *>realloc(rows, <size_t>(2 * room + 64) * sizeof(Row))
                    if grown is NULL:
                        with gil:
                            raise MemoryError
                    rows, room = grown, 2 * room + 64
                rows[count] = Row(
                    position, h.size, h.base_offset, h.base_offset + h.last_offset_delta + 1,
                    h.base_timestamp, h.max_timestamp, h.producer_id, h.leader_epoch,
                    h.record_count, h.crc, h.base_sequence, h.producer_epoch, h.attributes,
                    not verify_crc or crc_holds(source.data + position, &h),
                )
                count += 1
                position += h.size
            if fault != FAULT_NONE and zeros(source.data + position, source.data + stop):
                fault = FAULT_NONE
        data = PyBytes_FromStringAndSize(<const char *>rows, count * <int64_t>sizeof(Row))
    finally:
        free(rows)
    reason = shapes.FAULT_TEXTS[shapes.Fault(fault)] if fault != FAULT_NONE else ""
    return Headers(np.frombuffer(data, HEADER), position, reason)
