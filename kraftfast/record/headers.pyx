"""The headers of many batches as one numpy array: a look at a log without touching its records.

A batch whose CRC does not hold is reported and passed over, for its header says where the next one
begins; the walk stops at what is no header at all.
"""

from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.errno cimport EINTR, ENOMEM, errno
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free, realloc
from posix.unistd cimport pread

import os

import numpy as np

from kraftfast.buffer cimport Hold, hold
from kraftfast.record.batch cimport bounded_end
from kraftfast.record.judge cimport (
    KF_BATCH_HEADER, KF_BATCH_INCOMPLETE, KF_BATCH_OK, kf_batch_crc_holds, kf_batch_header,
    kf_batch_read_header,
)

from kraftfast import errors
from kraftfast.record import shapes


cdef enum:
    FAR_BYTES = 1 << 14  # behind so large a batch one header is read, and no window
    WINDOW_BYTES = 1 << 18


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


cdef struct RowList:
    Row *rows
    int64_t count
    int64_t room


cdef int append(
    RowList *list, int64_t position, const kf_batch_header *h, bint crc_ok
) noexcept nogil:
    """Add a header; -1 without memory."""
    cdef Row *grown
    if list.count == list.room:
        grown = <Row *>realloc(list.rows, <size_t>(2 * list.room + 64) * sizeof(Row))
        if grown is NULL:
            return -1
        list.rows, list.room = grown, 2 * list.room + 64
    list.rows[list.count] = Row(
        position, h.size, h.base_offset, h.base_offset + h.last_offset_delta + 1,
        h.base_timestamp, h.max_timestamp, h.producer_id, h.leader_epoch,
        h.record_count, h.crc, h.base_sequence, h.producer_epoch, h.attributes, crc_ok,
    )
    list.count += 1
    return 0


cdef headers_of(RowList *list, int64_t position, int fault):
    """Return the :class:`Headers` of a list."""
    data = PyBytes_FromStringAndSize(
        <const char *>list.rows, list.count * <int64_t>sizeof(Row)
    )
    reason = shapes.FAULT_TEXTS[fault] if fault != KF_BATCH_OK else ""
    return Headers(np.frombuffer(data, HEADER), position, reason)


def decode_headers(
    buffer, int64_t position=0, end=None, *, int64_t batches_max=1 << 20, bint verify_crc=False
) -> Headers:
    """Return the headers of the batches between two byte positions, ``batches_max`` at most.

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
    cdef RowList list = RowList(NULL, 0, 0)
    cdef kf_batch_header h
    cdef int fault = KF_BATCH_OK, failed = 0
    cdef const uint8_t *p
    if batches_max < 1:
        raise errors.InvalidOption(f"batches_max={batches_max}")
    try:
        with nogil:
            while position < stop and list.count < batches_max:
                p = source.data + position
                fault = kf_batch_read_header(p, stop - position, &h)
                if fault != KF_BATCH_OK:
                    break
                failed = append(
                    &list, position, &h, not verify_crc or kf_batch_crc_holds(p, &h)
                )
                if failed:
                    break
                position += h.size
            if fault != KF_BATCH_OK and zeros(source.data + position, source.data + stop):
                fault = KF_BATCH_OK
        if failed:
            raise MemoryError("headers")
        return headers_of(&list, position, fault)
    finally:
        free(list.rows)


# --- of a file that may change meanwhile ---


cdef struct Window:  # a private copy of [at, at + size) of a file
    uint8_t *bytes
    int64_t room
    int64_t at
    int64_t size


cdef int fill(Window *window, int fd, int64_t position, int64_t size) noexcept nogil:
    """Copy ``size`` bytes from ``position`` on, fewer if the file ends. 0, or an errno."""
    cdef uint8_t *grown
    cdef int64_t got
    if size > window.room:
        grown = <uint8_t *>realloc(window.bytes, <size_t>size)
        if grown is NULL:
            return ENOMEM
        window.bytes, window.room = grown, size
    window.at, window.size = position, 0
    while window.size < size:
        got = pread(
            fd, window.bytes + window.size, <size_t>(size - window.size), position + window.size
        )
        if got < 0:
            if errno == EINTR:
                continue
            return errno
        if got == 0:
            break
        window.size += got
    return 0


cdef int look(
    Window *window, int fd, int64_t position, int64_t stop, int64_t ahead, bint whole,
    kf_batch_header *h, int *fault, bint *crc_ok,
) noexcept nogil:
    """Judge the batch at ``position``, with all its bytes if ``whole``. 0, or an errno.

    Header and body are of one copy: where the window lacks a part, all of it is copied again.
    """
    cdef int64_t need = min(<int64_t>KF_BATCH_HEADER, stop - position)
    cdef int64_t at
    cdef int error
    while True:
        at = position - window.at
        if at < 0 or at + need > window.size:
            error = fill(window, fd, position, min(max(need, ahead), stop - position))
            if error:
                return error
            at = 0
            if window.size < need:  # the file is shorter by now
                fault[0] = KF_BATCH_INCOMPLETE
                return 0
        fault[0] = kf_batch_read_header(window.bytes + at, stop - position, h)
        if fault[0] != KF_BATCH_OK or not whole:
            return 0
        if at + h.size <= window.size:
            crc_ok[0] = kf_batch_crc_holds(window.bytes + at, h)
            return 0
        need = h.size


cdef int rest_is_zero(
    Window *window, int fd, int64_t position, int64_t stop, bint *found
) noexcept nogil:
    """Return whether [position, stop) is there and holds nothing but zeros. 0, or an errno."""
    cdef int error
    found[0] = False
    while position < stop:
        error = fill(window, fd, position, min(<int64_t>WINDOW_BYTES, stop - position))
        if error:
            return error
        if not window.size or not zeros(window.bytes, window.bytes + window.size):
            return 0
        position += window.size
    found[0] = True
    return 0


def read_headers(
    int fd, int64_t position, int64_t end, *, int64_t batches_max=1 << 20, bint verify_crc=False,
    int64_t until_offset=-1,
) -> Headers:
    """Do as :func:`decode_headers`, of a file that another process may change or cut short.

    What is judged are private copies, of a batch at most. Without ``verify_crc`` the bodies of
    large batches are not read. A file that ends before ``end`` ends in a truncated batch.
    ``until_offset``: stop behind a batch that ends exactly there. Raises OSError, InvalidOption.
    """
    cdef RowList list = RowList(NULL, 0, 0)
    cdef Window window = Window(NULL, 0, 0, 0)
    cdef kf_batch_header h
    cdef int fault = KF_BATCH_OK, error = 0
    cdef bint crc_ok = True, zero = False
    cdef int64_t ahead = KF_BATCH_HEADER if batches_max == 1 else WINDOW_BYTES
    if batches_max < 1 or not 0 <= position <= end:
        raise errors.InvalidOption(f"{batches_max} batches of bytes {position} to {end} of a file")
    try:
        with nogil:
            while position < end and list.count < batches_max:
                error = look(
                    &window, fd, position, end, ahead, verify_crc, &h, &fault, &crc_ok
                )
                if error or fault != KF_BATCH_OK:
                    break
                if append(&list, position, &h, crc_ok):
                    error = ENOMEM
                    break
                position += h.size
                if list.rows[list.count - 1].end_offset == until_offset:
                    break
                if batches_max > 1 and not verify_crc:
                    ahead = KF_BATCH_HEADER if h.size >= FAR_BYTES else WINDOW_BYTES
            if not error and fault != KF_BATCH_OK:
                error = rest_is_zero(&window, fd, position, end, &zero)
                if zero:
                    fault = KF_BATCH_OK
        if error:
            raise OSError(error, os.strerror(error))
        return headers_of(&list, position, fault)
    finally:
        free(list.rows)
        free(window.bytes)
