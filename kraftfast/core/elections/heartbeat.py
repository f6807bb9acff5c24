"""BeginQuorumEpoch goes out: voters who do not fetch are told who leads (KIP-595)."""

from __future__ import annotations

from kraftfast.core.effects import Send
from kraftfast.core.elections.leader_identity import identity_of_leader
from kraftfast.core.messages import BeginQuorumEpochRequest
from kraftfast.core.state import ReplicaState


def begin_quorum_epoch(state: ReplicaState, voter_id: int, now_ms: int) -> int:
    """Tell one voter; that this replica leads need not be on its disk yet, as nothing was appended.

    Returns the correlation, or 0 if it has not answered the last time yet."""
    if not state.peers.is_ready(voter_id, now_ms):
        return 0
    request = BeginQuorumEpochRequest(
        epoch=state.epoch,
        leader_id=state.local.id,
        leader_endpoints=state.leader_endpoints,
        leader_identity=identity_of_leader(state),
        voter=state.voters.key(voter_id),
        cluster_id=state.cluster_id,
    )
    correlation = state.peers.sent(voter_id, now_ms)
    state.effects.append(Send(voter_id, correlation, request))
    return correlation
