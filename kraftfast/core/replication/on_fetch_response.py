"""An answer to Fetch arrives: records, a high watermark, a divergence, or a refusal."""

from __future__ import annotations

from kraftfast.core.effects import AdvanceHighWatermark, Truncate, WriteFetched
from kraftfast.core.events import ResponseReceived
from kraftfast.core.membership.on_controls import on_cut
from kraftfast.core.replication.fetching import (
    close_stream,
    fetch_next,
    retry_later,
    update_stream,
)
from kraftfast.core.replication.follower import Follower
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.snapshots.begin_download import begin_download
from kraftfast.core.state import QuorumState
from kraftfast.core.warning import warn_of_cut
from kraftfast.errors import ErrorCode
from kraftfast.types import OffsetAndEpoch

NONE = ErrorCode.NONE  # looked up far faster than an enum's member
PROCEED = Outcome.PROCEED


def on_pushed(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Take an answer on a stream; drop one of a stream that is closed by now (D3)."""
    follower = state.follower
    response = event.response
    if (
        follower is None
        or response.stream == 0
        or follower.stream != response.stream
        or event.peer_id != state.leader_id
    ):
        return
    if (
        response.leader_epoch == state.epoch
        and response.error is NONE
        and response.partition_error is NONE
        and response.diverging is None
        and response.snapshot_id is None
    ):
        follower.stream_deadline_ms = now_ms + state.config.request_timeout_ms
        accept(state, follower, event, now_ms)
    else:
        follower.stream = 0
        on_fetch_response(state, event, now_ms)


def on_fetch_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Learn of epoch and leader first; records count only from the leader of this epoch."""
    response = event.response
    before = state.current
    outcome = learn_from(state, event.peer_id, response, now_ms)
    follower = state.follower
    if outcome is not PROCEED or follower is None or response.partition_error is not NONE:
        if state.current is before:
            retry_later(state, now_ms, event.peer_id)
    elif follower.download is not None:  # a keep-alive was answered: the leader is alive
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
        fetch_next(state, now_ms)
    elif response.snapshot_id is not None:
        begin_download(state, follower, response.snapshot_id, now_ms)
    elif response.diverging is not None:
        on_diverging(state, follower, response.diverging, now_ms)
    else:
        accept(state, follower, event, now_ms)


def accept(state: QuorumState, follower: Follower, event: ResponseReceived, now_ms: int) -> None:
    """Have the records of an answer written, or learn what is committed if it has none."""
    response = event.response
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    follower.has_fetched = True
    state.fetch_failures = 0
    if response.high_watermark > follower.leader_high_watermark:
        follower.leader_high_watermark = response.high_watermark
    if response.records_bytes > 0:
        assert not state.writing, "the node hands over one answer with records at a time"
        state.writing = True
        follower.update_at_ms = now_ms + state.config.fetch_max_wait_ms
        state.effects.append(WriteFetched(event.payload, state.epoch, state.log.end_offset))
        return
    learn_high_watermark(state, follower)
    if follower.stream:
        update_stream(state, follower)
    else:
        fetch_next(state, now_ms)


def learn_high_watermark(state: QuorumState, follower: Follower) -> None:
    """Advance the high watermark to the leader's, at most to the own end (D12), never back (I6)."""
    offset = min(follower.leader_high_watermark, state.log.end_offset)
    if offset > state.high_watermark:
        state.high_watermark = offset
        if offset > state.committed_offset:
            state.committed_offset = offset
            state.effects.append(AdvanceHighWatermark(offset))
    if state.doubt.exists():
        state.doubt.refetched(state.log, follower.leader_high_watermark)


def truncation_offset(state: QuorumState, diverging: OffsetAndEpoch) -> int:
    """Return where the own log diverges from the leader's (Kafka's ``truncateToEndOffset``)."""
    log = state.log
    if diverging.epoch == 0:
        return min(diverging.offset, log.end_offset)
    end = log.trail.end_offset_for(diverging.epoch, log.end_offset)
    return min(end.offset, diverging.offset) if end.epoch == diverging.epoch else end.offset


def on_diverging(
    state: QuorumState, follower: Follower, diverging: OffsetAndEpoch, now_ms: int
) -> None:
    """Cut the own log to where it diverges from the leader's, never below what is committed (I7).

    A leader that asks for that must not be followed: Kafka's process exits, this replica refuses
    and lets its fetch timer expire.
    """
    log = state.log
    offset = truncation_offset(state, diverging)
    if offset < max(state.uncuttable_offset(), log.start_offset):  # D23
        warn_of_cut(state, "wants this log cut to", offset)
        retry_later(state, now_ms)
        return
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    follower.has_fetched = True
    if offset < log.end_offset:
        log.truncate(offset)
        state.effects.append(Truncate(offset, log.truncations))
        on_cut(state, now_ms)
        state.fetch_failures = 0
        fetch_next(state, now_ms)
    else:
        log.trail.truncate_to(offset)  # an epoch without records, of an earlier election
        retry_later(state, now_ms)


def on_rejected(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Fetch again from the new end: some of the records failed a check or had no room (D20)."""
    if follower.stream:
        close_stream(state, follower, now_ms)
    else:
        retry_later(state, now_ms)
    state.poll_due = True
