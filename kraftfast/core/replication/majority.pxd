"""Acknowledged offsets of the voters in force. See ``majority.pyx``."""

from libc.stdint cimport int64_t


cdef int64_t reached_by(const int64_t* offsets, int count, int needed) noexcept nogil


cdef class Acknowledged:
    cdef int64_t _offsets[64]  # by slot; -1: unknown
    cdef int _count
    cdef readonly tuple voter_ids  # ascending; a voter's slot is its place here

    cpdef int slot(self, int voter_id) except -2
    cpdef int put(self, int slot, int64_t offset) except -1
    cpdef int64_t get(self, int slot) except? -2
    cpdef int64_t by_majority(self) noexcept
    cpdef int64_t by_all(self) noexcept
    cpdef int64_t by_others(self, int slot, int needed) noexcept
