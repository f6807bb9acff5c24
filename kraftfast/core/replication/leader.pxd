"""A leader as compiled code sees it. See ``leader.py``."""

from kraftfast.core.replication.majority cimport Acknowledged


cdef class Progress:
    cdef public object key
    cdef public long long slot
    cdef public long long acknowledged_end_offset
    cdef public long long last_fetch_ms
    cdef public long long last_heard_ms
    cdef public long long last_fetch_log_end_offset
    cdef public tuple endpoints
    cdef public tuple kraft_versions
    cdef public long long last_caught_up_ms
    cdef public long long stream
    cdef public object source
    cdef public long long max_bytes
    cdef public long long copied_end_offset
    cdef public long long sent_end_offset
    cdef public long long sent_high_watermark
    cdef public bint pushing
    cdef public object pushed
    cdef public bint bare_unanswered
    cdef public bint blocked
    cdef public long long last_push_ms

    cpdef fetched(self, long long fetch_offset, long long log_end_offset, long long now_ms)
    cpdef read_to(self, long long copied_end_offset)


cdef class Parked:
    cdef public object source
    cdef public long long replica_id
    cdef public long long offset
    cdef public long long max_bytes
    cdef public long long deadline_ms
    cdef public bint tells_place
    cdef public bint is_voter


cdef class Leader:
    cdef public long long epoch_start_offset
    cdef public long long began_ms
    cdef public Acknowledged acknowledged
    cdef public long long slot
    cdef public long long needed_of_others
    cdef public dict voters
    cdef public dict observers
    cdef public list streams
    cdef public list parked
    cdef public long long parked_deadline_ms
    cdef public long long all_acknowledged
    cdef public set fetched_since
    cdef public long long check_quorum_deadline_ms
    cdef public long long begin_quorum_epoch_at_ms
    cdef public bint appends_queued
    cdef public bint draining
    cdef public long long flush_began_ms
    cdef public object change
    cdef public dict reported
    cdef public object transfer
    cdef public bint assigning
    cdef public long long move_at_ms
    cdef public long long handed_over_ms
    cdef public list barriers
    cdef public long long barrier_round
    cdef public set confirmed
    cdef public dict round_asks
    cdef public object waiting_slices
    cdef public dict leases
    cdef public bint watches_commit

    cpdef Progress find(self, object key)
    cpdef update_check_quorum(self, long long voter_id, long long now_ms, long long timeout_ms)
