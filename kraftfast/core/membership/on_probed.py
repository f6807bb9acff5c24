"""Probed arrives: what a voter's endpoints answered to ApiVersions."""

from __future__ import annotations

from kraftfast.core.events import Probed
from kraftfast.core.membership.on_add_voter import on_probed_to_add
from kraftfast.core.membership.on_update_voter import on_probed_to_update
from kraftfast.core.messages import AddRaftVoterResponse
from kraftfast.core.state import QuorumState


def on_probed(state: QuorumState, event: Probed, now_ms: int) -> None:
    """Go on with the change that waits for it; drop an answer that came too late."""
    leader = state.leader
    change = None if leader is None else leader.change
    if leader is None or change is None or not change.probe or change.probe != event.probe:
        return
    if change.answers is AddRaftVoterResponse:
        on_probed_to_add(state, leader, change, event, now_ms)
    else:
        on_probed_to_update(state, leader, change, event, now_ms)
