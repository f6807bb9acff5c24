"""Compiled form of ``on_fetch_response.py``."""

cimport cython

from kraftfast.core.events cimport ResponseReceived
from kraftfast.core.replication.fetching cimport fetch_next, update_stream
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.messages cimport FetchResponse
from kraftfast.core.state cimport QuorumState


@cython.locals(follower=Follower, response=FetchResponse)
cpdef on_pushed(QuorumState state, ResponseReceived event, long long now_ms)


@cython.locals(follower=Follower, response=FetchResponse)
cpdef on_fetch_response(QuorumState state, ResponseReceived event, long long now_ms)


@cython.locals(response=FetchResponse)
cpdef accept(
    QuorumState state, Follower follower, ResponseReceived event, long long now_ms
)


@cython.locals(offset=cython.longlong)
cpdef learn_high_watermark(QuorumState state, Follower follower)
