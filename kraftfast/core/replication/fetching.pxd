"""What a replica does for itself, for compiled callers. See ``fetching.py``."""

cimport cython

from kraftfast.core.replication.flush_policy cimport flush_follower
from kraftfast.core.replication.follower cimport Follower
from kraftfast.core.log_view cimport LogView
from kraftfast.core.messages cimport FetchRequest
from kraftfast.core.state cimport ReplicaState


@cython.locals(follower=Follower)
cpdef fetch_next(ReplicaState state, long long now_ms)

cpdef update_stream(ReplicaState state, Follower follower)


@cython.locals(log=LogView, request=FetchRequest)
cpdef FetchRequest fetch_request(ReplicaState state, long long stream, bint opens)

cpdef send_fetch(
    ReplicaState state, long long peer_id, long long correlation, FetchRequest request
)
