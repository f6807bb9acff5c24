"""What became of a producer's records, by ticket."""

from libc.stdint cimport int64_t, uint64_t


cdef struct Stretch:
    int64_t first_ticket   # from here on, until the next stretch begins,
    int64_t delta          # offset = ticket + delta


cdef class Ledger:
    cdef readonly int64_t next_ticket   # of the next record
    cdef readonly int64_t resolved      # every ticket below has an offset or a failure
    cdef Stretch *stretches
    cdef Py_ssize_t count, first, room  # entries [first, count) are in use
    cdef readonly list failures         # [(first ticket, end ticket, exception)]

    cdef int committed(self, int64_t first_ticket, int64_t records, int64_t base_offset) except -1
    cdef int64_t find(self, int64_t ticket) noexcept
