"""For compiled callers. See ``fetch_answers.py``."""

cimport cython

from kraftfast.core.events cimport StreamAnswered
from kraftfast.core.replication.leader cimport Leader, Parked, Progress
from kraftfast.core.messages cimport FetchResponse
from kraftfast.core.state cimport QuorumState


@cython.locals(progress=Progress)
cpdef push_all(QuorumState state, Leader leader, long long now_ms)


@cython.locals(read_offset=cython.longlong, response=FetchResponse)
cpdef push(QuorumState state, Progress progress, long long now_ms)


@cython.locals(leader=Leader, progress=Progress, end_offset=cython.longlong)
cpdef on_stream_answered(QuorumState state, StreamAnswered event, long long now_ms)


@cython.locals(due_ms=cython.longlong, progress=Progress)
cpdef long long push_due_ms(QuorumState state, Leader leader) except? -1


cpdef FetchResponse new_fetch_response(QuorumState state, long long stream)


cpdef bint is_readable(QuorumState state, long long replica_id, long long offset) except -1


@cython.locals(readable=bint, without_id=bint, response=FetchResponse)
cpdef answer_fetch(QuorumState state, Parked parked)


@cython.locals(parked=Parked)
cpdef answer_parked(QuorumState state, Leader leader, bint committed, long long now_ms=*)
