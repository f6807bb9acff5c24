"""Compiled form of ``on_written.py``."""

cimport cython

from kraftfast.core.events cimport FetchedWritten
from kraftfast.core.follower cimport Follower
from kraftfast.core.log_view cimport LogView
from kraftfast.core.state cimport ReplicaState


@cython.locals(log=LogView, follower=Follower)
cpdef on_fetched_written(ReplicaState state, FetchedWritten event, long long now_ms)
