"""Field types of the effects for compiled code."""


cdef class Persisted:
    cdef public long long epoch


cdef class FlushedTo:
    cdef public long long end_offset


cdef class Send:
    cdef public long long peer_id
    cdef public long long correlation
    cdef public object request
    cdef public object after


cdef class Reply:
    cdef public object source
    cdef public object response
    cdef public object after


cdef class AnswerFetch:
    cdef public object source
    cdef public object response
    cdef public long long read_offset
    cdef public long long max_bytes
    cdef public long long end_offset_max


cdef class DrainAppends:
    cdef public long long epoch
    cdef public long long max_bytes


cdef class AppendControl:
    cdef public long long epoch
    cdef public tuple records


cdef class WriteFetched:
    cdef public object payload
    cdef public long long epoch
    cdef public long long offset


cdef class Flush:
    cdef public long long end_offset
    cdef public bint inline


cdef class AdvanceHighWatermark:
    cdef public long long offset


cdef class AcknowledgedByAll:
    cdef public long long offset


cdef class Stopped:
    pass
