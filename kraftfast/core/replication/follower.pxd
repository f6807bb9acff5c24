"""A follower as compiled code sees it. See ``follower.py``."""


cdef class Follower:
    cdef public long long fetch_deadline_ms
    cdef public bint has_fetched
    cdef public long long leader_high_watermark
    cdef public long long stream
    cdef public long long stream_deadline_ms
    cdef public long long update_at_ms
    cdef public long long membership_at_ms
    cdef public long long membership_correlation
    cdef public object download
    cdef public long long downloads_refused
    cdef public long long download_at_ms
    cdef public bint leader_updated
