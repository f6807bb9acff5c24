"""Flushed arrives: more of the log is on disk, and may be acknowledged and counted."""

from __future__ import annotations

from kraftfast.core.events import Flushed
from kraftfast.core.replication.fetching import fetch_next, update_stream
from kraftfast.core.replication.flush_policy import flush_follower, flush_leader
from kraftfast.core.replication.high_watermark import acknowledge_self, maybe_update_high_watermark
from kraftfast.core.replication.on_append import request_drain
from kraftfast.core.state import QuorumState


def on_flushed(state: QuorumState, event: Flushed, now_ms: int) -> None:
    """Count a leader itself (D1), or acknowledge as a follower (D3).

    A flush that began before the log was cut counts for nothing (D2), but the next may begin.
    """
    moved = state.log.flushed(event.end_offset, event.truncations)
    if moved and state.doubt.exists():
        state.doubt.covered(state.log)  # whatever the role: a nominee flushes too
    leader = state.leader
    if leader is not None:
        if moved and acknowledge_self(state, leader):
            maybe_update_high_watermark(state, leader, now_ms)
        request_drain(state, leader, now_ms)
        flush_leader(state, leader, False, now_ms)
        return
    follower = state.follower
    if follower is None:
        state.poll_due = True  # an unattached replica may fetch now, a nominee ask (D21)
        return
    if state.doubt.exists():
        state.doubt.refetched(state.log, follower.leader_high_watermark)
    if follower.stream:
        if moved:
            update_stream(state, follower)
        flush_follower(state)
    else:
        fetch_next(state, now_ms)
