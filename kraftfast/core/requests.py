"""What all requests have in common: is it for this quorum, this partition, this replica?"""

from __future__ import annotations

from typing import Any

from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, ReplicaKey

NONE = ErrorCode.NONE  # looked up far faster than an enum's member


def top_level_error(state: QuorumState, request: Any) -> ErrorCode:
    """Return the error of a request as a whole; one that names no cluster may mean this one."""
    if None not in (request.cluster_id, state.cluster_id):
        if request.cluster_id != state.cluster_id:
            return ErrorCode.INCONSISTENT_CLUSTER_ID
    if not request.partition_known:
        return ErrorCode.INVALID_REQUEST
    return NONE


def is_addressed_here(state: QuorumState, voter: ReplicaKey) -> bool:
    """Return whether the sender means this replica: old ones (id -1) do not say whom."""
    if voter.id < 0:
        return True
    if voter.id != state.local.id:
        return False
    return voter.directory_id in (ZERO_UUID, state.local.directory_id)
