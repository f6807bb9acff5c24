"""A replica's memory as compiled code sees it. See ``state.py``."""

from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.replication.leader cimport Leader
from kraftfast.core.log_view cimport LogView
from kraftfast.core.request_manager cimport RequestManager


cdef class QuorumState:
    cdef public object config
    cdef public object local
    cdef public object static_voters
    cdef public object history
    cdef public object random
    cdef public LogView log
    cdef public object doubt
    cdef public str cluster_id
    cdef public long long floor_offset
    cdef public long long committed_offset
    cdef public object voters
    cdef public long long kraft_version
    cdef public bint for_all
    cdef public RequestManager peers
    cdef public object role
    cdef public object current
    cdef public Leader leader
    cdef public Follower follower
    cdef public long long epoch
    cdef public long long leader_id
    cdef public tuple leader_endpoints
    cdef public object leader_identity
    cdef public object voted
    cdef public object persisted
    cdef public long long resumed_epoch
    cdef public long long high_watermark
    cdef public list effects
    cdef public bint poll_due
    cdef public bint quorum_state_due
    cdef public bint writing
    cdef public long long fetch_at_ms
    cdef public long long fetch_failures
    cdef public bint ask_others
    cdef public bint displaced
    cdef public long long displaced_by
    cdef public bint superseded
    cdef public set unheard
    cdef public long long ask_until_ms
    cdef public long long slices_under_way
    cdef public list barriers
    cdef public long long barriers_correlation
    cdef public long long barriers_asked_ms
    cdef public bint tells_endpoints
    cdef public bint was_voter
    cdef public str warning
    cdef public long long next_stream
    cdef public long long next_probe
    cdef public object request_epochs
    cdef public object answer_epochs
    cdef public long long failover_round
    cdef public long long rival_until_ms
    cdef public long long shutdown_deadline_ms
    cdef public bint shutting_down
    cdef public bint stopped
