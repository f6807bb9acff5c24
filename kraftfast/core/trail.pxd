"""The epoch trail of a log: where each epoch begins. See ``trail.pyx``."""

from libc.stdint cimport int32_t, int64_t


cdef class EpochTrail:
    cdef int32_t* _epochs  # ascending, without gaps in the array
    cdef int64_t* _starts  # start offset of each epoch, strictly ascending
    cdef Py_ssize_t _count
    cdef Py_ssize_t _room

    cdef int _grow(self) except -1
    cdef Py_ssize_t _epoch_position(self, int64_t epoch) noexcept
    cdef Py_ssize_t _offset_position(self, int64_t offset) noexcept
    cpdef bint assign(self, int64_t epoch, int64_t start_offset) except -1
    cpdef int64_t epoch_at(self, int64_t offset) except? -2
    cpdef int truncate_to(self, int64_t end_offset) except -1
    cpdef int truncate_from_start(self, int64_t start_offset) except -1
    cdef void end_of(
        self, int64_t epoch, int64_t log_end_offset, int64_t* end_offset, int64_t* end_epoch
    ) noexcept
