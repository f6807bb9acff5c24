"""Field types of the executor for compiled code. See ``executor.py``."""


cdef class Executor:
    cdef public object stalled, control
    cdef public long long stalled_ms, persisted_epoch
    cdef public bint flush_wanted, stopped, lost
    cdef readonly bint _running
    cdef public object _events
    cdef dict _handlers

    cpdef step(self, event)
    cpdef run_events(self)
    cpdef list _decide(self, event)
    cpdef _carry_out(self, list effects)
    cpdef long long now_ms(self) except -1
    cpdef long long end_offset(self) except -1
    cpdef long long flushed_end_offset(self) except -1
    cpdef object link_for(self, effect)
    cpdef reply_to(self, source, response)
    cpdef long long take_appends(self, effect) except -1
    cpdef object copy_fetched(self, effect)
    cpdef bint flush_inline(self) except -1
    cpdef run_flush(self)
    cpdef begin_flush(self)
    cpdef wait_for_flush(self)
