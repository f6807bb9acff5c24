"""What became of a producer's records, by ticket."""

from libc.stdint cimport int64_t


cdef struct Stretch:
    int64_t first_ticket  # from here on, until the next stretch begins,
    int64_t delta         # offset = ticket + delta; FAILED: these were not acknowledged


cdef class Outcomes:
    cdef readonly int64_t next_ticket   # of the next record
    cdef readonly int64_t resolved      # every ticket below has an offset or a failure
    cdef Stretch *stretches
    cdef Py_ssize_t count, room         # of stretches: in use, allocated
    cdef dict failures                  # first ticket of a FAILED stretch -> its exception

    # The next records to be resolved are committed from base_offset on; or failed to end_ticket.
    # Neither runs Python code.
    cdef int committed(self, int64_t first_ticket, int64_t records, int64_t base_offset) except -1
    cdef int failed(self, int64_t end_ticket, exception) except -1
    cdef int forget_oldest_failure(self) except -1
    cdef int begin_stretch(self, int64_t first_ticket, int64_t delta) except -1
    # Number of the stretch that holds a ticket, -1 if it is forgotten.
    cdef Py_ssize_t place(self, int64_t ticket) noexcept
    cpdef int64_t offset_of(self, int64_t ticket) except? -1
    cdef failure_at(self, Py_ssize_t number)
