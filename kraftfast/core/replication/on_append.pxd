"""Compiled form of ``on_append.py``."""

cimport cython

from kraftfast.core.events cimport Appended, AppendsQueued
from kraftfast.core.replication.flush_policy cimport flush_leader
from kraftfast.core.replication.leader cimport Leader
from kraftfast.core.log_view cimport LogView
from kraftfast.core.replication.fetch_answers cimport answer_parked
from kraftfast.core.replication.high_watermark cimport acknowledge_self
from kraftfast.core.replication.fetch_answers cimport push_all
from kraftfast.core.replication.high_watermark cimport maybe_update_high_watermark
from kraftfast.core.state cimport QuorumState


@cython.locals(leader=Leader)
cpdef on_appends_queued(QuorumState state, AppendsQueued event, long long now_ms)


@cython.locals(leader=Leader, log=LogView, before=cython.longlong, idle=bint)
cpdef on_appended(QuorumState state, Appended event, long long now_ms)


@cython.locals(log=LogView)
cpdef on_appended_late(QuorumState state, Appended event, long long now_ms)


@cython.locals(log=LogView, room=cython.longlong)
cpdef request_drain(QuorumState state, Leader leader, long long now_ms)
