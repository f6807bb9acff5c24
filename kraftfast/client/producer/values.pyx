"""A look at many records before the first of them is handed over."""

from cpython.bytes cimport PyBytes_CheckExact
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftfast.buffer cimport bytes_in
from kraftfast.record.builder cimport Values
from kraftfast.record.encode cimport (
    COLUMN_FIXED, HEADERS_NO_KEY, HEADERS_TOO_MANY, Column, HeaderColumn, OpenBatch, append_from,
    headers_size, value_at,
)

from kraftfast import limits
from kraftfast.arguments import refuse
from kraftfast.errors import InvalidOption, RecordsRefused, RecordTooLarge

cdef enum RecordFault:
    BAD_OFFSETS = -1
    TOO_MANY_HEADERS = -2
    HEADER_WITHOUT_KEY = -3

FAULTS = {
    BAD_OFFSETS: "has offsets that decrease or leave the data",
    TOO_MANY_HEADERS: f"has more than {limits.HEADERS_PER_RECORD_MAX} headers",
    HEADER_WITHOUT_KEY: "has a header whose key is null: leave it out",
}


cdef bytes bytes_of(str name, item):
    """Return value or key of a record. Raises InvalidOption."""
    if item is None or PyBytes_CheckExact(item):
        return item
    try:
        return bytes_in(item)
    except (TypeError, ValueError, BufferError):
        refuse(name, "bytes-like or None", item)


cdef int64_t record_size(Values values, int64_t i) noexcept:
    return size_of(&values.column, values.keys, values.headers, i)


cdef bint append_number(OpenBatch *batch, int64_t timestamp, Values values, int64_t i) noexcept:
    return append_from(batch, timestamp, &values.column, values.keys, values.headers, i) == 1


cdef int64_t size_of(const Column *values, const Column *keys, const HeaderColumn *headers,
                     int64_t i) noexcept nogil:
    cdef const uint8_t *data = NULL
    cdef int64_t key_size = 0, header_size = 0, size = value_at(values, i, &data)
    cdef int32_t count = 0
    if keys is not NULL:
        key_size = value_at(keys, i, &data)
    if size < -1 or key_size < -1:
        return BAD_OFFSETS
    if headers is not NULL:
        header_size = headers_size(headers, i, &count)
        if header_size < 0:
            if header_size == HEADERS_NO_KEY:
                return HEADER_WITHOUT_KEY
            return TOO_MANY_HEADERS if header_size == HEADERS_TOO_MANY else BAD_OFFSETS
    return max(size, 0) + max(key_size, 0) + header_size


cdef bint is_plain(const Column *values, const Column *keys, const HeaderColumn *headers,
                   int64_t i) noexcept nogil:
    """Return whether a record is a value that is not empty, and nothing else."""
    cdef const uint8_t *data = NULL
    cdef int32_t count = 0
    if keys is not NULL and value_at(keys, i, &data) != -1:
        return False
    if headers is not NULL and (headers_size(headers, i, &count) or count):
        return False
    return value_at(values, i, &data) > 0


def check_values(Values values not None, bint kafka_raft, int64_t bytes_max) -> int:
    """Check that a log takes them all, so that a bad one costs nothing; return the largest size.

    Raises InvalidOption, RecordsRefused, RecordTooLarge.
    """
    cdef const Column *column = &values.column
    cdef const Column *keys = values.keys
    cdef const HeaderColumn *headers = values.headers
    cdef int64_t i, size = 0, largest = 0
    cdef bint refused = False
    cdef bint alike = (
        keys is NULL and headers is NULL and column.kind == COLUMN_FIXED and column.valid is NULL)
    with nogil:
        for i in range(column.count):
            size = size_of(column, keys, headers, i)
            refused = size < 0 or size > bytes_max or (
                kafka_raft and not is_plain(column, keys, headers, i))
            if refused:
                break
            largest = max(largest, size)
            if alike:
                break
    if refused:
        alone = keys is NULL and headers is NULL
        which = f"value {i}" if alone else f"record {i}"
        if size < 0:
            raise InvalidOption(f"{which} {FAULTS[size]}")
        if size > bytes_max:
            raise RecordTooLarge(f"{which} has {size} bytes; at most {bytes_max} can be sent")
        raise RecordsRefused(
            f"{which} is null or empty{'' if alone else ', or has a key or headers'}: this log "
            "does not take it (records=kafka-raft)")
    return largest
