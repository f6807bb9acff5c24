"""Responses to Fetch and FetchSnapshot without records: an error, the epoch and its leader."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.elections.leader_identity import identity_of_leader
from kraftfast.core.messages import FetchResponse, FetchSnapshotRequest, FetchSnapshotResponse
from kraftfast.errors import ErrorCode

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


def snapshot_response(
    state: QuorumState, request: FetchSnapshotRequest, error: ErrorCode
) -> FetchSnapshotResponse:
    """Return the response to a FetchSnapshot, without its bytes."""
    return FetchSnapshotResponse(
        partition_error=error,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        snapshot_id=request.snapshot_id,
        position=request.position,
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
    )


def fetch_refusal(state: QuorumState, error: ErrorCode, stream: int) -> FetchResponse:
    """Return the response to a Fetch with an error, the epoch and the leader."""
    return FetchResponse(
        partition_error=error,
        leader_id=state.leader_id,
        leader_epoch=state.epoch,
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
        stream=stream,
    )
