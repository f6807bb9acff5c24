"""The answer to BeginQuorumEpoch or EndQuorumEpoch arrives."""

from __future__ import annotations

from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.events import ResponseReceived
from kraftfast.core.read_barrier import on_confirmed
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode


def on_quorum_epoch_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Count the answer: of a leader for its read barriers, of a resigned one as acknowledged.

    Whatever else it says of epoch and leader is learnt first.
    """
    outcome = learn_from(state, event.peer_id, event.response, now_ms)
    if outcome is not Outcome.PROCEED:
        return
    if event.response.partition_error is not ErrorCode.NONE:
        state.peers.back_off(event.peer_id, now_ms)
        foreign = event.response.partition_error is ErrorCode.INVALID_VOTER_KEY
        if foreign and state.leader is not None:
            state.leader.count_as_silent(event.peer_id, now_ms, state.config.fetch_timeout_ms)
    elif state.leader is not None:
        on_confirmed(state, state.leader, event)
    elif isinstance(state.current, Resigned):
        state.current.unacknowledged.discard(event.peer_id)
