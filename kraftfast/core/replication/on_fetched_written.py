"""FetchedWritten arrives: the log copied records of the leader."""

from __future__ import annotations

from kraftfast.core.events import FetchedWritten
from kraftfast.core.membership.on_controls import hold_for_voters, on_controls
from kraftfast.core.replication.fetching import fetch_next, update_stream
from kraftfast.core.replication.flush_policy import flush_follower, inline_bytes_max
from kraftfast.core.replication.on_fetch_response import learn_high_watermark, on_rejected
from kraftfast.core.state import QuorumState


def on_fetched_written(state: QuorumState, event: FetchedWritten, now_ms: int) -> None:
    """Flush, then acknowledge; on a stream send the read cursor before the flush ends."""
    assert state.writing, "only what WriteFetched asked for is written"
    state.writing = False
    log = state.log
    follower = state.follower
    assert follower is not None
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    follower.stream_deadline_ms = now_ms + state.config.request_timeout_ms
    for epoch, start_offset in event.epochs:
        assert epoch <= state.epoch, "records of a later epoch are not stored (KAFKA-18723)"
        log.trail.assign(epoch, start_offset)
    before = log.end_offset
    log.appended(event.end_offset, event.bytes, now_ms)
    if event.controls or event.epochs:
        hold_for_voters(state, event.controls, before)
    if event.controls:
        on_controls(state, event.controls, now_ms)
    learn_high_watermark(state, follower)
    if event.rejected:
        on_rejected(state, follower, now_ms)
        flush_follower(state)  # what was kept
        return
    if follower.stream == 0:
        fetch_next(state, now_ms)  # which flushes first
        return
    if log.ackable_end_offset() < log.end_offset and not log.flushing:
        flush_follower(state)
        if state.log.flushing_bytes <= inline_bytes_max(state):
            return  # done in this turn: Flushed sends both cursors in one Fetch
    update_stream(state, follower)
