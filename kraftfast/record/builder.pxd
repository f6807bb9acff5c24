# Settings, columns of values and an open batch as Python objects, for other compiled modules.
from libc.stdint cimport int64_t, uint8_t

from kraftfast.buffer cimport Hold
from kraftfast.record.encode cimport BatchSettings, Column, HeaderColumn, OpenBatch


# BatchSettings as a Python object.
cdef class Settings:
    cdef BatchSettings settings


# Headers of many records, of an Arrow array that it keeps alive.
cdef class HeaderList:
    cdef HeaderColumn column
    cdef Hold offsets
    cdef Hold valid
    cdef Hold item_valid
    cdef Values keys
    cdef Values values


# A column of values made from Python objects, which it keeps alive. `keys`, `headers`: of the same
# records, NULL where there are none.
cdef class Values:
    cdef Column column
    cdef const Column *keys
    cdef const HeaderColumn *headers
    cdef Values key_values
    cdef HeaderList header_values
    cdef Hold data
    cdef Hold offsets
    cdef Hold valid
    cdef tuple items
    cdef int take_source(self, source, offsets, size) except -1
    cdef int take_items(self, source) except -1
    cdef int take_offsets(self, source, offsets) except -1
    cdef int take_rows(self, source, size) except -1
    cdef int take_data(self, source) except -1
    cdef int take_arrow(self, source) except -1


# An open batch in a Python buffer or, by begin(), in memory of the caller's.
cdef class BatchBuilder:
    cdef OpenBatch batch
    cdef Hold target
    cdef bint open
    # Begins at dst, which must stay there until finish(); drops a batch that was open.
    cdef void begin(self, uint8_t *dst, int64_t capacity, const BatchSettings *settings) noexcept
    cdef int append_any(self, bytes value, bytes key, headers, timestamp) except? -9

# Bytes-like objects as bytes, None as None; raises InvalidOption for anything else.
cdef object as_bytes(object item)

# Headers as they stand in a record, without their count.
cdef bytes encode_headers(headers)
