"""Compiled form of ``on_written.py``."""

cimport cython

from kraftfast.core.events cimport FetchedWritten
from kraftfast.core.fetching cimport fetch_next, update_stream
from kraftfast.core.flush_policy cimport flush_follower
from kraftfast.core.follower cimport Follower
from kraftfast.core.log_view cimport LogView
from kraftfast.core.on_fetch_response cimport learn_high_watermark
from kraftfast.core.state cimport ReplicaState


@cython.locals(log=LogView, follower=Follower)
cpdef on_fetched_written(ReplicaState state, FetchedWritten event, long long now_ms)
