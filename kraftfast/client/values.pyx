"""A look at many values before the first of them is handed over."""

from libc.stdint cimport int64_t, uint8_t

from kraftfast.record.builder cimport Values
from kraftfast.record.encode cimport COLUMN_FIXED, Column, value_at

from kraftfast.errors import InvalidOption, RecordsRefused, RecordTooLarge


def check_values(Values values not None, bint kafka_raft, int64_t bytes_max) -> int:
    """Whether a log takes them all, so that a bad one costs nothing; the size of the largest.

    Raises InvalidOption, RecordsRefused, RecordTooLarge.
    """
    cdef Column *column = &values.column
    cdef const uint8_t *value = NULL
    cdef int64_t i, size = 0, largest = 0
    cdef bint refused = False
    with nogil:
        for i in range(column.count):
            size = value_at(column, i, &value)
            refused = size < -1 or (kafka_raft and size <= 0) or size > bytes_max
            if refused:
                break
            largest = max(largest, size)
            if column.kind == COLUMN_FIXED and column.valid == NULL:
                break
    if refused:
        if size < -1:
            raise InvalidOption(f"offsets of value {i} decrease or leave the data")
        if size > bytes_max:
            raise RecordTooLarge(f"value {i} has {size} bytes; at most {bytes_max} can be sent")
        raise RecordsRefused(
            f"value {i} is null or empty: this log does not take it (records=kafka-raft)")
    return largest
