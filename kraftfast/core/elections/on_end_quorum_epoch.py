"""EndQuorumEpoch arrives: the leader steps down and says who should follow it."""

from __future__ import annotations

from kraftfast.core.elections.on_begin_quorum_epoch import follow, refused, reply
from kraftfast.core.events import RequestReceived
from kraftfast.core.messages import EndQuorumEpochRequest
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID


def on_end_quorum_epoch(state: QuorumState, event: RequestReceived, now_ms: int) -> None:
    """Have a follower of exactly this leader campaign after its place in the list (KIP-595)."""
    request = event.request
    if refused(state, event, now_ms):
        return
    follow(state, request, now_ms)
    if state.follower is not None and state.leader_id == request.leader_id:
        state.follower.fetch_deadline_ms = now_ms + backoff_ms(state, request)
        state.follower.has_fetched = False  # the leader resigned: grant pre-votes
        state.poll_due = True
    reply(state, event, ErrorCode.NONE)


def backoff_ms(state: QuorumState, request: EndQuorumEpochRequest) -> int:
    """Return how long to wait: not at all for the first, or without a list; the longest if not
    listed.

    Kafka's ``endEpochElectionBackoff``: halved for each place further to the front.
    """
    longest_ms = state.config.election_backoff_ms_max
    listed = request.preferred_candidates
    for position, candidate in enumerate(listed):
        if candidate.id == state.local.id and candidate.directory_id in (
            ZERO_UUID,
            state.local.directory_id,
        ):
            if position == 0:
                return 0
            return min(longest_ms, (longest_ms >> (len(listed) - 1)) << (position - 1))
    return longest_ms if listed else 0
