"""For compiled callers. See ``high_watermark.py``."""

cimport cython

from kraftfast.core.replication.leader cimport Leader, Progress
from kraftfast.core.replication.fetch_answers cimport answer_parked, push_all
from kraftfast.core.state cimport QuorumState


cpdef bint acknowledge(
    QuorumState state, Leader leader, Progress progress, long long offset, bint in_memory
) except -1


cpdef bint acknowledge_self(QuorumState state, Leader leader) except -1


@cython.locals(offset=cython.longlong)
cpdef maybe_update_high_watermark(QuorumState state, Leader leader, long long now_ms)
