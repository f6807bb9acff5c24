# A look at records before the first of them is handed over.
from libc.stdint cimport int64_t

from kraftfast.record.builder cimport Values
from kraftfast.record.encode cimport OpenBatch

# What value, key and headers of record `i` take together, as RECORD_BYTES_MAX counts; below 0: a
# RecordFault.
cdef int64_t record_size(Values values, int64_t i) noexcept

# Appends record `i` to an open batch; False if it did not take it.
cdef bint append_number(OpenBatch *batch, int64_t timestamp, Values values, int64_t i) noexcept

# value or key of a record: bytes-like or None. Raises InvalidOption
cdef bytes bytes_of(str name, item)
