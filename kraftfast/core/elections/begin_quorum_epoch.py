"""Send BeginQuorumEpoch to voters that do not fetch from this leader (KIP-595)."""

from __future__ import annotations

from kraftfast.core.effects import Send
from kraftfast.core.elections.leader_identity import identity_of_leader
from kraftfast.core.messages import BeginQuorumEpochRequest
from kraftfast.core.state import QuorumState


def begin_quorum_epoch(state: QuorumState, voter_id: int, now_ms: int) -> int:
    """Send BeginQuorumEpoch to one voter; return its correlation id.

    Return 0, and send nothing, while another request to it is in flight or it is backed off from.
    The first one of an epoch may leave before ``quorum-state`` names this leader: no record of the
    epoch exists then (``election_first`` in ``core/effects.py``).
    """
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
