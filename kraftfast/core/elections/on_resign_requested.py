"""A leader is asked to step down (Kafka's ``RaftClient.resign``)."""

from __future__ import annotations

from kraftfast.core.events import ResignRequested
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import transition_to_resigned
from kraftfast.errors import InvalidOption, NotLeader


def on_resign_requested(state: QuorumState, event: ResignRequested, now_ms: int) -> None:
    """Step down from exactly that epoch (Kafka's ``RaftClient.resign``).

    Raises ``InvalidOption`` for an epoch that cannot be and ``NotLeader`` without leadership.
    """
    if event.epoch < 0 or event.epoch > state.epoch:
        raise InvalidOption(f"cannot resign from epoch {event.epoch}: this is {state.epoch}")
    if event.epoch < state.epoch:
        return
    if state.leader is None:
        raise NotLeader(f"cannot resign from epoch {event.epoch} without leading", state.leader_id)
    transition_to_resigned(state, now_ms)
