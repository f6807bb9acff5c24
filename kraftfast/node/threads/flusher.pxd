"""The flush of the log, for compiled code. See ``flusher.pyx``."""

from libc.stdint cimport uint64_t

from kraftfast.log.log cimport Log
from kraftfast.log.segment cimport kf_flush_job


cdef extern from "flusher.h":
    ctypedef struct kf_flusher:
        kf_flush_job job
        int error
        uint64_t began_ns
        uint64_t duration_ns


cdef class Flusher:
    cdef kf_flusher *thread
    cdef public uint64_t began_ns, duration_ns, slowest_ns
    cdef public uint64_t truncations

    cpdef ask(self, Log log)
    cpdef run(self, Log log)
    cpdef bint take(self, Log log) except -1
    cpdef bint busy(self)
    cpdef uint64_t take_slowest_ns(self)
    cdef void _note(self, uint64_t began_ns, uint64_t duration_ns) noexcept
    cdef _stop(self)
