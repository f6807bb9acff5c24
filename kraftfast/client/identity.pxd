"""Who a producer is to its quorum: see identity.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftfast.record.encode cimport BatchSettings
from kraftfast.record.parse cimport BatchHeader


cdef class Identity:
    cdef readonly str name             # None: nobody asks for this producer again
    cdef readonly int64_t id           # -1: none yet
    cdef readonly int epoch
    cdef readonly int64_t delta        # the number of a record is its ticket plus this
    cdef readonly int64_t doubtful_end # tickets below may be in a log although nobody said so
    cdef readonly bint spent           # a sequence is missing: the next record needs another epoch
    cdef readonly object fenced        # the ProducerFenced that ended it, or None

    cdef void stamp(self, BatchSettings *settings, int64_t ticket) noexcept
    cdef int restamp(self, uint8_t *batch, int64_t size, int64_t ticket) except -1
    cdef bint stamped(self, const BatchHeader *header, int64_t ticket) noexcept
    cdef object failure_of(self, bint unknown, int32_t code, int64_t first_ticket)
    cdef void doubt(self, int64_t end_ticket) noexcept
    cdef void skip(self, int64_t end_ticket) noexcept
