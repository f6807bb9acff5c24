"""What time it is, for compiled code of this room: see clock.pyx."""

from libc.stdint cimport int64_t, uint64_t


cdef class Clock:
    cdef uint64_t monotonic_ns(self) noexcept nogil
    cdef int64_t wall_ms(self) noexcept nogil
