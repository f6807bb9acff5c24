"""A leader is asked to step down, or the replica to end."""

from __future__ import annotations

from kraftfast.core.effects import Stopped
from kraftfast.core.events import ResignRequested, ShutdownRequested
from kraftfast.core.state import ReplicaState
from kraftfast.errors import InvalidOption, NotLeader
from kraftfast.types import NO_NODE


def on_resign_requested(state: ReplicaState, event: ResignRequested, now_ms: int) -> None:
    """Step down from exactly that epoch (Kafka's ``RaftClient.resign``).

    Raises ``InvalidOption`` for an epoch that cannot be and ``NotLeader`` without leadership.
    """
    if event.epoch < 0 or event.epoch > state.epoch:
        raise InvalidOption(f"cannot resign from epoch {event.epoch}: this is {state.epoch}")
    if event.epoch < state.epoch:
        return
    if state.leader is None:
        raise NotLeader(f"cannot resign from epoch {event.epoch} without leading", state.leader_id)
    state.to_resigned(now_ms)


def on_shutdown_requested(state: ReplicaState, event: ShutdownRequested, now_ms: int) -> None:
    """End at once if no replica depends on this one, else hand over first, up to a time-out."""
    if state.shutting_down:
        return
    state.shutting_down = True
    state.shutdown_deadline_ms = now_ms + event.timeout_ms
    if not state.counts_as_voter() or state.voters.is_only_voter(state.local):
        stop(state)
    elif state.leader is not None:
        state.to_resigned(now_ms)
    finish_shutdown(state, now_ms)


def finish_shutdown(state: ReplicaState, now_ms: int) -> None:
    """Let a replica that waits to end do so, once another leads or time is up."""
    if state.stopped or not state.shutting_down:
        return
    led_by_another = state.leader_id not in (NO_NODE, state.local.id)
    if led_by_another or now_ms >= state.shutdown_deadline_ms:
        stop(state)


def stop(state: ReplicaState) -> None:
    """Complete the graceful end."""
    state.stopped = True
    state.effects.append(Stopped())
