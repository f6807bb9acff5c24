"""Field types of the events for compiled code."""


cdef class Tick:
    pass


cdef class RequestReceived:
    cdef public object source
    cdef public object request


cdef class ResponseReceived:
    cdef public long long peer_id
    cdef public long long correlation
    cdef public object response
    cdef public object payload


cdef class AppendsQueued:
    pass


cdef class Appended:
    cdef public long long epoch
    cdef public long long end_offset
    cdef public long long bytes
    cdef public object controls


cdef class FetchedWritten:
    cdef public long long end_offset
    cdef public long long bytes
    cdef public tuple epochs
    cdef public bint rejected
    cdef public object controls


cdef class Flushed:
    cdef public long long end_offset
    cdef public long long truncations


cdef class StreamAnswered:
    cdef public long long replica_id
    cdef public long long stream
    cdef public long long end_offset
