# Many batches taken apart in two passes, for other compiled modules that lay out columns.
from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftfast.buffer cimport Hold
from kraftfast.record.batch cimport BatchView
from kraftfast.record.judge cimport kf_batch_header, kf_record

# A batch whose records are to be taken apart.
cdef struct Part:
    kf_batch_header header
    const uint8_t *records  # decompressed
    int64_t size
    int64_t position  # of the batch in the buffer

# The first pass: which batches, and how much they can hold at most.
cdef class Parts:
    cdef Part *parts
    cdef int64_t count
    cdef int64_t room  # parts that are allocated
    cdef int64_t record_count
    cdef int64_t byte_count
    cdef int64_t position  # behind the last batch that was looked at
    cdef Hold source
    cdef list decompressed  # keeps their bytes alive

    cdef int add(self, BatchView batch) except -1

cdef Parts find_parts(
    object buffer, int64_t position, object end, int64_t first_offset, int64_t records_max,
    int64_t bytes_max, bint control, bint partial, int64_t end_offset=*, bint verify_crc=*,
)

# How many bytes are taken at once; raises InvalidOption. None: as many as 32-bit offsets hold.
cdef int64_t bounded_bytes(bytes_max) except -1

# Record `number` of a part; after its last one, whether anything is left over.
cdef int next_record(
    const Part *part, const uint8_t **p, int64_t number, int32_t *last_delta, kf_record *record
) noexcept nogil

# A column of byte strings that is being filled; the memory belongs to numpy arrays.
cdef struct Bytes:
    int32_t *offsets
    uint8_t *data
    uint8_t *valid  # a bit for each value, zeroed before
    int32_t at  # bytes in data
    int64_t null_count

cdef void put(Bytes *column, int64_t i, const uint8_t *data, int32_t size) noexcept nogil

# The numpy arrays behind a Bytes, cut to length in the end.
cdef class Arrays:
    cdef object offsets
    cdef object data
    cdef object valid
    cdef list holds  # of the three, as long as something may be stored to them

    cdef int allocate(self, int64_t count, int64_t size, Bytes *column) except -1
    cdef object cut(self, int64_t count, const Bytes *column)
