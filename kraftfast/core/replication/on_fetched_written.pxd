"""Compiled form of ``on_fetched_written.py``."""

cimport cython

from kraftfast.core.events cimport FetchedWritten
from kraftfast.core.replication.fetching cimport fetch_next, update_stream
from kraftfast.core.replication.flush_policy cimport flush_follower
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.log_view cimport LogView
from kraftfast.core.replication.on_fetch_response cimport learn_high_watermark
from kraftfast.core.state cimport QuorumState


@cython.locals(log=LogView, follower=Follower)
cpdef on_fetched_written(QuorumState state, FetchedWritten event, long long now_ms)
