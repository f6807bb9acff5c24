"""Compiled form of ``on_fetch.py``."""

cimport cython

from kraftfast.core.events cimport RequestReceived
from kraftfast.core.replication.flush_policy cimport flush_leader
from kraftfast.core.replication.leader cimport Leader, Parked, Progress
from kraftfast.core.messages cimport FetchRequest, FetchResponse
from kraftfast.core.replication.fetch_answers cimport answer_fetch
from kraftfast.core.replication.high_watermark cimport acknowledge
from kraftfast.core.replication.high_watermark cimport maybe_update_high_watermark
from kraftfast.core.replication.fetch_answers cimport is_readable, push
from kraftfast.core.state cimport QuorumState


@cython.locals(request=FetchRequest)
cpdef on_fetch(QuorumState state, RequestReceived event, long long now_ms)


@cython.locals(is_anonymous=bint)
cpdef error_of_fetch(QuorumState state, FetchRequest request)


@cython.locals(
    request=FetchRequest, leader=Leader, progress=Progress, moved=bint, response=FetchResponse,
    tells_place=bint
)
cpdef on_valid_fetch(QuorumState state, RequestReceived event, long long now_ms)


@cython.locals(progress=Progress)
cpdef Progress record_contact(
    QuorumState state, Leader leader, FetchRequest request, long long now_ms
)

cpdef bint may_have_lost_leader(Leader leader, FetchRequest request, Progress progress) except -1


@cython.locals(request=FetchRequest, parked=Parked)
cpdef answer_or_park(
    QuorumState state, Leader leader, RequestReceived event, bint tells_place, long long now_ms
)


@cython.locals(
    leader=Leader, progress=Progress, offset=cython.longlong, copied_end_offset=cython.longlong
)
cpdef on_stream_update(QuorumState state, FetchRequest request, long long now_ms)
