"""The leader answers what this replica asked about its own membership."""

from __future__ import annotations

from kraftfast.core.events import ResponseReceived
from kraftfast.core.membership.joining import restart_period
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode

_SETTLED = (
    ErrorCode.NONE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.DUPLICATE_VOTER,
    ErrorCode.VOTER_NOT_FOUND,
)


def on_join_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Look again after the period, whatever AddRaftVoter or RemoveRaftVoter is answered.

    Kafka repeats it at once after other errors; here nothing is repeated without a pause (L7).
    """
    if state.follower is None or event.peer_id != state.leader_id:
        return
    restart_period(state, state.follower, now_ms)
    if event.response.error not in _SETTLED:
        state.peers.back_off(event.peer_id, now_ms)


def on_update_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Record that the leader knows this voter now, and is alive (UpdateRaftVoter)."""
    response = event.response
    if response.error is ErrorCode.UNSUPPORTED_VERSION:  # a leader of old has nothing to learn
        response.error = ErrorCode.NONE
        response.leader_epoch = state.epoch
    outcome = learn_from(state, event.peer_id, response, now_ms)
    follower = state.follower
    if follower is None or event.peer_id != state.leader_id:
        return
    restart_period(state, follower, now_ms)
    if response.partition_error is ErrorCode.REQUEST_TIMED_OUT:  # another change was under way
        follower.membership_at_ms = now_ms + state.config.fetch_max_wait_ms
    elif outcome is Outcome.PROCEED and response.partition_error is ErrorCode.NONE:
        follower.leader_updated = True
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
