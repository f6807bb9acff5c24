"""Peers as compiled code sees them. See ``request_manager.py``."""


cdef class Peer:
    cdef public long long id
    cdef public long long correlation
    cdef public bint is_fetch
    cdef public long long deadline_ms
    cdef public long long ready_at_ms
    cdef public bint up
    cdef public bint streaming
    cdef public bint pre_vote
    cdef public bint ended
    cdef public bytes directory_id
    cdef public tuple ended_at


cdef class RequestManager:
    cdef public long long request_timeout_ms
    cdef public long long retry_backoff_ms
    cdef public long long next_correlation
    cdef public Peer fetching
    cdef public dict _peers

    cpdef Peer peer(self, long long peer_id)
    cpdef bint is_ready(self, long long peer_id, long long now_ms) except -1
    cpdef bint answered(self, long long peer_id, long long correlation) except -1
