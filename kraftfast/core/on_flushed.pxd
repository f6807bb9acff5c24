"""Compiled form of ``on_flushed.py``."""

cimport cython

from kraftfast.core.events cimport Flushed
from kraftfast.core.follower cimport Follower
from kraftfast.core.leader cimport Leader
from kraftfast.core.state cimport ReplicaState


@cython.locals(moved=bint, leader=Leader, follower=Follower)
cpdef on_flushed(ReplicaState state, Flushed event, long long now_ms)
