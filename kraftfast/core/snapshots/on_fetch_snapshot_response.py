"""An answer to FetchSnapshot arrives: a slice, or an error (KIP-630)."""

from __future__ import annotations

from kraftfast.core.effects import WriteSlice
from kraftfast.core.events import ResponseReceived
from kraftfast.core.replication.fetching import retry_later
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.snapshots.begin_download import drop_download
from kraftfast.core.snapshots.download import Download, continues
from kraftfast.core.state import QuorumState
from kraftfast.errors import ErrorCode

NONE = ErrorCode.NONE
_GONE = (
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def on_fetch_snapshot_response(state: QuorumState, event: ResponseReceived, now_ms: int) -> None:
    """Have a slice written, or act on the error that came instead.

    Kafka's leaders answer every refusal by UNKNOWN_SERVER_ERROR at the top (a null in it cannot be
    written): the snapshot may be gone, so Fetch is asked again.
    """
    response = event.response
    before = state.current
    if response.error is ErrorCode.UNKNOWN_SERVER_ERROR and state.follower is not None:
        state.peers.back_off(event.peer_id, now_ms)
        drop_download(state, state.follower, now_ms)
        return
    outcome = learn_from(state, event.peer_id, response, now_ms)
    follower = state.follower
    if state.current is not before or follower is None or follower.download is None:
        return
    if outcome is not Outcome.PROCEED:
        retry_later(state, now_ms, event.peer_id)
    elif response.partition_error in _GONE:
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
        drop_download(state, follower, now_ms)
    elif response.partition_error is not NONE:
        retry_later(state, now_ms, event.peer_id)
    elif not continues(follower.download, response):
        drop_download(state, follower, now_ms)
    else:
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
        state.fetch_failures = 0
        state.ask_others = False
        follower.update_at_ms = now_ms + state.config.fetch_max_wait_ms
        write_slice(state, follower.download, event)


def write_slice(state: QuorumState, download: Download, event: ResponseReceived) -> None:
    """Have the slice written behind those before it."""
    response = event.response
    download.size = response.size
    download.busy = True
    last = response.position + response.records_bytes == response.size
    state.effects.append(WriteSlice(event.payload, download.snapshot_id, download.position, last))
