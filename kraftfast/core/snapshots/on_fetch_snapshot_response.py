"""A follower that is too far behind fetches the leader's snapshot, slice by slice (KIP-630).

A download must not outlive the role that began it, the follower of one leader in one epoch: the
next one begins at the first slice. Within it a failed request is repeated from the position that is
written.
"""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.effects import AdvanceHighWatermark, InstallSnapshot, WriteSnapshot
from kraftfast.core.events import ResponseReceived, SnapshotInstalled, SnapshotWritten
from kraftfast.core.membership.on_controls import adopt
from kraftfast.core.messages import FetchSnapshotResponse
from kraftfast.core.refusing import refuse_cut
from kraftfast.core.replication.fetching import fetch_next, retry_later
from kraftfast.core.replication.follower import FetchingSnapshot, Follower
from kraftfast.core.responses import Outcome, learn_from
from kraftfast.core.state import ReplicaState
from kraftfast.errors import ErrorCode
from kraftfast.types import OffsetAndEpoch

NONE = ErrorCode.NONE
_GONE = (
    ErrorCode.SNAPSHOT_NOT_FOUND,
    ErrorCode.POSITION_OUT_OF_RANGE,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
)


def begin_download(
    state: ReplicaState, follower: Follower, snapshot_id: OffsetAndEpoch, now_ms: int
) -> None:
    """Fetch the leader's snapshot: its log begins behind the end of this one.

    A snapshot is refused that would undo what is committed here (I7), that is here already, or that
    is of a later epoch than the leader's: no record of the leader could follow it.
    """
    known = snapshot_id in state.log.snapshots
    undoes = 0 <= snapshot_id.offset < state.uncuttable_offset()  # D23
    if undoes and not known:
        refuse_cut(state, "wants this log replaced by a snapshot that ends at", snapshot_id.offset)
    later = snapshot_id.epoch > state.epoch
    if min(snapshot_id) < 0 or later or known or undoes:
        retry_later(state, now_ms)
        return
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    follower.has_fetched = True
    if now_ms < follower.download_at_ms:
        retry_later(state, now_ms)
        return
    follower.download = FetchingSnapshot(snapshot_id)
    state.fetch_failures = 0
    fetch_next(state, now_ms)


def give_up(state: ReplicaState, follower: Follower, now_ms: int) -> None:
    """Drop the download; the Fetch after a pause makes the leader name a snapshot again."""
    follower.download = None
    retry_later(state, now_ms)


def put_off(state: ReplicaState, follower: Follower, now_ms: int) -> None:
    """Begin no download for a while, twice as long each time, after one was refused here (L7).

    Else a replica with a full disk would fetch the same snapshot again and again.
    """
    pause_ms = state.config.retry_backoff_ms << min(follower.downloads_refused, 16)
    follower.downloads_refused += 1
    follower.download_at_ms = now_ms + min(pause_ms, limits.DOWNLOAD_PAUSE_MS_MAX)


def on_fetch_snapshot_response(state: ReplicaState, event: ResponseReceived, now_ms: int) -> None:
    """Have a slice written, or act on the error that came instead.

    Kafka's leaders answer every refusal by UNKNOWN_SERVER_ERROR at the top (a null in it cannot be
    written): the snapshot may be gone, so Fetch is asked again.
    """
    response = event.response
    before = state.current
    if response.error is ErrorCode.UNKNOWN_SERVER_ERROR and state.follower is not None:
        state.peers.back_off(event.peer_id, now_ms)
        give_up(state, state.follower, now_ms)
        return
    outcome = learn_from(state, event.peer_id, response, now_ms)
    follower = state.follower
    if state.current is not before or follower is None or follower.download is None:
        return
    if outcome is not Outcome.PROCEED:
        retry_later(state, now_ms, event.peer_id)
    elif response.partition_error in _GONE:
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
        give_up(state, follower, now_ms)
    elif response.partition_error is not NONE:
        retry_later(state, now_ms, event.peer_id)
    elif not continues(follower.download, response):
        give_up(state, follower, now_ms)
    else:
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
        state.fetch_failures = 0
        state.ask_others = False
        follower.update_at_ms = now_ms + state.config.fetch_max_wait_ms
        write_slice(state, follower.download, event)


def continues(download: FetchingSnapshot, response: FetchSnapshotResponse) -> bool:
    """Return whether this is the slice that was asked for. Kafka's process ends where it is not."""
    return (
        response.snapshot_id == download.snapshot_id
        and response.position == download.position
        and response.records_bytes > 0
        and response.position + response.records_bytes <= response.size
        and download.size in (-1, response.size)
    )


def write_slice(state: ReplicaState, download: FetchingSnapshot, event: ResponseReceived) -> None:
    """Have the slice written behind those before it."""
    response = event.response
    download.size = response.size
    download.busy = True
    last = response.position + response.records_bytes == response.size
    state.effects.append(
        WriteSnapshot(event.payload, download.snapshot_id, download.position, last)
    )


def on_snapshot_written(state: ReplicaState, event: SnapshotWritten, now_ms: int) -> None:
    """Ask for the slice behind one that is written, or put the whole in place of the log."""
    follower = state.follower
    download = None if follower is None else follower.download
    if download is None or not download.busy or download.snapshot_id != event.snapshot_id:
        return  # of a role that is over
    assert follower is not None
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    if event.rejected:
        put_off(state, follower, now_ms)
        give_up(state, follower, now_ms)
        state.poll_due = True
        return
    download.position = event.end_position
    if download.position == download.size:
        state.remember_voting(state.uncuttable_offset())
        state.effects.append(InstallSnapshot(download.snapshot_id, state.log.truncations + 1))
        return
    download.busy = False
    fetch_next(state, now_ms)


def on_snapshot_installed(state: ReplicaState, event: SnapshotInstalled, now_ms: int) -> None:
    """Go on from the end of the installed snapshot, or as before if it could not be installed.

    It may come after the role that asked for it: the log is the same.
    """
    follower = state.follower
    if follower is not None and follower.download is not None:
        follower.download = None
        follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    if event.rejected:
        if follower is not None:
            put_off(state, follower, now_ms)
        retry_later(state, now_ms)
        state.poll_due = True
        return
    assert state.leader is None, "a leader's log is never replaced"
    offset = event.snapshot_id.offset
    assert offset >= state.uncuttable_offset(), "what is committed stays (I7)"
    state.log.install(event.snapshot_id)
    state.history = event.history
    if state.peers.fetching is not None:  # it named the end of the log that was
        state.peers.back_off(state.peers.fetching.id, now_ms)
    if follower is not None:
        follower.downloads_refused = 0
        state.high_watermark = max(state.high_watermark, offset)
    if offset > state.committed_offset:
        state.committed_offset = offset
        state.effects.append(AdvanceHighWatermark(offset))
    if state.doubt.exists() and follower is not None:
        state.doubt.refetched(state.log, follower.leader_high_watermark)
    adopt(state, now_ms)
    state.fetch_at_ms = now_ms
    state.poll_due = True
