"""The identity of a producer in its quorum: see identity.pyx."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from kraftfast.client.producer.outcomes cimport Outcomes
from kraftfast.record.encode cimport BatchSettings
from kraftfast.record.judge cimport kf_batch_header


# Whether the bytes are one sound batch of this size and so many records; then *header is its.
cdef bint is_whole(const uint8_t *batch, int64_t size, int64_t records,
                   kf_batch_header *header) noexcept


cdef class Identity:
    cdef readonly str name             # None: this producer is never continued
    cdef readonly int64_t id           # -1: none yet
    cdef readonly int epoch
    cdef readonly int64_t delta        # the number of a record is its ticket plus this
    cdef readonly int64_t doubtful_end  # tickets below may be in a log although no answer said so
    cdef readonly bint spent           # a sequence is missing: the next record needs another epoch
    cdef readonly int64_t missing_from  # while it is spent: the first ticket that has no number
    cdef readonly bint uncertain       # a ticket from there on may have one in the log all the same
    cdef readonly bint forgotten       # a leader does not know this id: it may never take it again
    cdef readonly object fenced        # the ProducerFenced that ended it, or None

    cdef void stamp(self, BatchSettings *settings, int64_t ticket) noexcept
    cdef int restamp(self, uint8_t *batch, int64_t size, int64_t ticket) except -1
    cdef bint stamped(self, const kf_batch_header *header, int64_t ticket) noexcept
    cdef object failure_of(self, bint unknown, int32_t code, int64_t first_ticket)
    cdef bint may_be_appended(self, bint silent, bint denied, int32_t code)
    cdef void doubt(self, int64_t end_ticket) noexcept
    cdef void skip(self, int64_t first_ticket, int64_t end_ticket) noexcept
    cdef int fail_until(self, Outcomes outcomes, int64_t end_ticket, unknown) except -1
    cdef void spend(self, int64_t first_ticket) noexcept
