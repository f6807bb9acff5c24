"""When to flush, for compiled callers. See ``flush_policy.py``."""

cimport cython

from kraftfast.core.replication.leader cimport Leader
from kraftfast.core.log_view cimport LogView
from kraftfast.core.state cimport QuorumState


@cython.locals(log=LogView, at_once=bint)
cpdef flush_leader(QuorumState state, Leader leader, bint idle, long long now_ms)


@cython.locals(log=LogView)
cpdef bint is_due(QuorumState state, Leader leader, long long now_ms) except -1


@cython.locals(log=LogView)
cpdef flush_follower(QuorumState state)


@cython.locals(log=LogView, inline=bint)
cpdef start_flush(QuorumState state, bint may_inline)
