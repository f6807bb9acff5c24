"""Compiled form of ``on_flushed.py``."""

cimport cython

from kraftfast.core.events cimport Flushed
from kraftfast.core.replication.fetching cimport fetch_next, update_stream
from kraftfast.core.replication.flush_policy cimport flush_follower, flush_leader
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.replication.leader cimport Leader
from kraftfast.core.replication.high_watermark cimport acknowledge_self
from kraftfast.core.replication.on_append cimport request_drain
from kraftfast.core.replication.high_watermark cimport maybe_update_high_watermark
from kraftfast.core.state cimport QuorumState


@cython.locals(moved=bint, leader=Leader, follower=Follower)
cpdef on_flushed(QuorumState state, Flushed event, long long now_ms)
