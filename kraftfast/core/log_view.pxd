"""The log as compiled code sees it. See ``log_view.py``."""

from kraftfast.core.trail cimport EpochTrail


cdef class LogView:
    cdef public EpochTrail trail
    cdef public long long start_offset
    cdef public long long end_offset
    cdef public long long flushed_end_offset
    cdef public bint in_memory
    cdef public long long unflushed_since_ms
    cdef public list snapshots
    cdef public long long truncations
    cdef public bint flushing
    cdef public long long flushing_end_offset
    cdef public long long flushing_bytes
    cdef public long long flushing_since_ms
    cdef public long long unflushed_bytes
    cdef public long long held_from
    cdef public long long held_to

    cpdef long long last_epoch(self) except? -2
    cpdef long long ackable_end_offset(self) except? -1
    cpdef appended(self, long long end_offset, long long size, long long now_ms)
    cpdef begin_flush(self)
    cpdef bint flushed(self, long long end_offset, long long truncations) except -1
    cpdef long long oldest_unflushed_ms(self) except? -1
