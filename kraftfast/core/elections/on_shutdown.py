"""A replica is asked to end."""

from __future__ import annotations

from kraftfast.core.effects import Stopped
from kraftfast.core.events import ShutdownRequested
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import transition_to_resigned
from kraftfast.types import NO_NODE


def on_shutdown_requested(state: QuorumState, event: ShutdownRequested, now_ms: int) -> None:
    """End at once if no replica depends on this one, else hand over first, up to a time-out."""
    if state.shutting_down:
        return
    state.shutting_down = True
    state.shutdown_deadline_ms = now_ms + event.timeout_ms
    if not state.counts_as_voter() or state.voters.is_only_voter(state.local):
        stop(state)
    elif state.leader is not None:
        transition_to_resigned(state, now_ms)
    finish_shutdown(state, now_ms)


def finish_shutdown(state: QuorumState, now_ms: int) -> None:
    """Let a replica that waits to end do so, once another leads or time is up."""
    if state.stopped or not state.shutting_down:
        return
    led_by_another = state.leader_id not in (NO_NODE, state.local.id)
    if led_by_another or now_ms >= state.shutdown_deadline_ms:
        stop(state)


def stop(state: QuorumState) -> None:
    """Complete the graceful end."""
    state.stopped = True
    state.effects.append(Stopped())
