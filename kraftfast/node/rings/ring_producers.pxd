"""Producers on this host, for compiled code. See ``ring_producers.pyx``."""

from libc.stdint cimport int32_t, int64_t

from kraftfast.link.stats cimport Stats
from kraftfast.log.log cimport Log


cdef class RingProducers:
    cdef readonly list producers
    cdef int next                 # which one is first next time
    cdef int64_t committed        # everything below may be acknowledged, under any leader
    cdef readonly bint muted      # the idle loop does not look at their rings

    cpdef bint waiting(self)
    cpdef int64_t drain(self, Log log, int32_t epoch, int64_t bytes_max, Stats stats) except -1
    cpdef commit(self, int64_t end_offset, Stats stats)
    cpdef publish(self)
