"""Links come and go, and requests fail."""

from __future__ import annotations

from kraftfast.core.elections.begin_quorum_epoch import begin_quorum_epoch
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.leader_identity import may_still_follow
from kraftfast.core.elections.on_vote_response import on_vote_unsupported
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.step_down import leave
from kraftfast.core.events import LinkDown, LinkUp, RequestFailed
from kraftfast.core.membership.joining import is_asking, restart_period
from kraftfast.core.read_barrier import ask_again, asked_under
from kraftfast.core.replication.fetching import retry_later
from kraftfast.core.replication.follower import Follower
from kraftfast.core.roles import Role
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID


def on_link_up(state: QuorumState, event: LinkUp, now_ms: int) -> None:
    """Give up what was in flight or streamed on an older link (D3)."""
    state.peers.link_up(event.peer_id, event.streaming, event.pre_vote, event.directory_id)
    drop_streams(state, event.peer_id)
    if state.follower is not None and event.peer_id == state.leader_id:
        if not may_still_follow(state):
            leave(state, event.peer_id, now_ms)  # its id, on another directory
    if state.follower is not None and event.peer_id == state.leader_id:
        state.fetch_at_ms = 0
        state.fetch_failures = 0
        state.ask_others = False
    if state.role is Role.UNATTACHED:
        state.fetch_at_ms = 0
    if state.leader is not None and event.peer_id in state.leader.voters:
        voter = state.voters.key(event.peer_id)
        if ZERO_UUID not in (event.directory_id, voter.directory_id):
            if event.directory_id != voter.directory_id:
                state.leader.count_as_silent(event.peer_id, now_ms, state.config.fetch_timeout_ms)
        begin_quorum_epoch(state, event.peer_id, now_ms)  # it may not know its leader
    state.poll_due = True


def on_link_down(state: QuorumState, event: LinkDown, now_ms: int) -> None:
    """Drop what was in flight on this link. It does not mean that the peer ended.

    A follower of this peer waits a moment for the answer: a fresh link, or news of its end.
    """
    state.peers.link_down(event.peer_id, now_ms)
    drop_streams(state, event.peer_id)
    if state.follower is not None and event.peer_id == state.leader_id:
        retry_later(state, now_ms, event.peer_id)
    state.poll_due = True


def drop_streams(state: QuorumState, peer_id: int) -> None:
    """End the streams of a link that has ended."""
    follower: Follower | None = state.follower
    if follower is not None and peer_id == state.leader_id:
        follower.stream = 0
    leader = state.leader
    if leader is not None:
        for progress in list(leader.streams):
            if progress.key.id == peer_id:
                leader.close_stream(progress)


def on_request_failed(state: QuorumState, event: RequestFailed, now_ms: int) -> None:
    """Back off from the peer: no answer will come."""
    barriers = asked_under(state, event.correlation)
    if barriers:
        ask_again(state, barriers, now_ms)
        return
    peer = state.peers.peer(event.peer_id)
    was_fetch = peer.is_fetch
    was_vote = isinstance(state.current, Prospective | Candidate)
    follower = state.follower
    if follower is not None and event.error is ErrorCode.UNSUPPORTED_VERSION:
        if is_asking(state, follower) and event.peer_id == state.leader_id:
            follower.leader_updated = True  # a leader of old has nothing to learn
            restart_period(state, follower, now_ms)
    if not state.peers.answered(event.peer_id, event.correlation):
        return
    state.peers.back_off(event.peer_id, now_ms)
    if event.error is ErrorCode.UNSUPPORTED_VERSION and was_vote:
        on_vote_unsupported(state, event.peer_id, now_ms)
    if was_fetch:
        retry_later(state, now_ms, event.peer_id)
    state.poll_due = True
