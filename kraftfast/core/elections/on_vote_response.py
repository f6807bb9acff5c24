"""The answer to a Vote or pre-vote arrives, or the peer does not support that version."""

from __future__ import annotations

from kraftfast.core.elections.campaigning import become_candidate, decide, give_up_campaign
from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.step_down import supersede_if_committed
from kraftfast.core.events import ResponseReceived
from kraftfast.core.messages import VoteResponse
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode


def on_vote_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Count the vote. The request manager has already found the request it answers."""
    response = event.response
    assert isinstance(response, VoteResponse)
    if response.error is ErrorCode.UNSUPPORTED_VERSION:
        on_vote_unsupported(state, event.peer_id, now_ms)
        return
    supersede_if_committed(state, response.voters_committed, now_ms)  # D23
    outcome = learn_from(state, event.peer_id, response, now_ms)
    current = state.current
    if outcome is not Outcome.PROCEED or not isinstance(current, Prospective | Candidate):
        return
    if response.partition_error is not ErrorCode.NONE:
        state.peers.back_off(event.peer_id, now_ms)
        return
    granted, has_no_log = response.vote_granted, response.has_no_log
    counted = current.election.record(event.peer_id, granted, has_no_log)
    if not counted:
        state.peers.back_off(event.peer_id, now_ms)
    elif not granted and response.in_doubt and not current.election.unanimous:
        state.doubt.refused_in_doubt = not state.log.in_memory
    decide(state, now_ms)


def on_vote_unsupported(state: QuorumState, peer_id: int, now_ms: int) -> None:
    """Campaign at once without pre-votes, because a peer does not support them (KIP-996).

    A failover campaign stands down instead: without pre-votes only a timer may depose a leader.
    """
    state.peers.peer(peer_id).pre_vote = False
    state.peers.back_off(peer_id, now_ms)
    current = state.current
    if isinstance(current, Prospective):
        if current.failover:
            give_up_campaign(state, now_ms)
        else:
            current.skips_pre_votes = True
            become_candidate(state, now_ms)
