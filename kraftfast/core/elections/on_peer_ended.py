"""The kernel reported that a peer's process ended: a follower of it need not wait for its timer."""

from __future__ import annotations

from kraftfast.core.elections.campaigning import begin_campaign
from kraftfast.core.events import PeerEnded
from kraftfast.core.on_link import drop_streams
from kraftfast.core.state import QuorumState


def on_peer_ended(state: QuorumState, event: PeerEnded, now_ms: int) -> None:
    """Start a failover if the leader's process is gone: a follower need not wait for its timer.

    It is prospective at once, so that it grants pre-votes too, and asks for its own in its turn.
    """
    state.peers.link_down(event.peer_id, now_ms)
    peer = state.peers.peer(event.peer_id)
    told = state.leader_endpoints if event.peer_id == state.leader_id else ()
    peer.ended, peer.ended_at = True, state.known_endpoints(event.peer_id, told)
    drop_streams(state, event.peer_id)
    if state.leader is not None:
        state.leader.count_as_silent(event.peer_id, now_ms, state.config.fetch_timeout_ms)
    if state.follower is not None and event.peer_id == state.leader_id:
        if state.may_fail_over():
            begin_campaign(state, now_ms, failover=True)
    state.poll_due = True
