"""Compiled form of ``on_fetch_response.py``."""

cimport cython

from kraftfast.core.events cimport ResponseReceived
from kraftfast.core.replication.fetching cimport fetch_next, update_stream
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.messages cimport FetchResponse
from kraftfast.core.state cimport ReplicaState


@cython.locals(follower=Follower, response=FetchResponse)
cpdef on_pushed(ReplicaState state, ResponseReceived event, long long now_ms)


@cython.locals(follower=Follower, response=FetchResponse)
cpdef on_fetch_response(ReplicaState state, ResponseReceived event, long long now_ms)


@cython.locals(response=FetchResponse)
cpdef accept(
    ReplicaState state, Follower follower, ResponseReceived event, long long now_ms
)


@cython.locals(offset=cython.longlong)
cpdef learn_high_watermark(ReplicaState state, Follower follower)
