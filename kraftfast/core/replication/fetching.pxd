"""What a replica does for itself, for compiled callers. See ``fetching.py``."""

cimport cython

from kraftfast.core.replication.flush_policy cimport flush_follower
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.log_view cimport LogView
from kraftfast.core.messages cimport FetchRequest
from kraftfast.core.state cimport QuorumState


@cython.locals(follower=Follower)
cpdef fetch_next(QuorumState state, long long now_ms)

cpdef update_stream(QuorumState state, Follower follower)


@cython.locals(log=LogView, request=FetchRequest)
cpdef FetchRequest fetch_request(QuorumState state, long long stream, bint opens)

cpdef send_fetch(
    QuorumState state, long long peer_id, long long correlation, FetchRequest request
)
