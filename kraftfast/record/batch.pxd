# Batches in Python buffers, for other compiled modules; on raw pointers: judge.pxd.
from libc.stdint cimport int64_t

from kraftfast.buffer cimport Hold
from kraftfast.record.judge cimport kf_batch_header, kf_batch_read_header


# end (None: the end of the buffer), once 0 <= position <= end <= size; else raises InvalidOption.
cdef int64_t bounded_end(Hold source, int64_t position, object end) except -1


# A batch in a buffer that it keeps alive. Header fields were bounded by kf_batch_read_header().
cdef class BatchView:
    cdef kf_batch_header header
    cdef Hold source
    cdef readonly int64_t position  # of its first byte in the buffer
    cdef readonly int64_t largest_timestamp  # of its records, once they were checked

    # What keeps the bytes alive; raises TypeError for a view that this module did not make.
    cdef Hold held(self)
    # The bytes from byte `at` of the batch on, as a memoryview.
    cdef object bytes_from(self, int64_t at)
    # The records of a compressed batch; raises CorruptBatch or UnsupportedCodec.
    cdef Hold decompressed(self)

# The batch at `position`, of at most end - position bytes, and what kf_batch_read_header() says.
cdef BatchView view_at(Hold source, int64_t position, int64_t end, int *fault)
