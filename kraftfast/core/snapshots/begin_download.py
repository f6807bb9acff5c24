"""Begin to fetch the leader's snapshot, and end that before its time."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.replication.fetching import fetch_next, retry_later
from kraftfast.core.replication.follower import Follower
from kraftfast.core.snapshots.download import Download
from kraftfast.core.state import QuorumState
from kraftfast.core.warning import warn_of_cut
from kraftfast.types import OffsetAndEpoch


def begin_download(
    state: QuorumState, follower: Follower, snapshot_id: OffsetAndEpoch, now_ms: int
) -> None:
    """Fetch the leader's snapshot: the leader's log begins beyond the end of this one.

    A snapshot is refused that would undo what is committed here (I7), that is here already, or that
    is of a later epoch than the leader's: no record of the leader could follow it.
    """
    known = snapshot_id in state.log.snapshots
    undoes = 0 <= snapshot_id.offset < state.uncuttable_offset()  # D23
    if undoes and not known:
        warn_of_cut(state, "wants this log replaced by a snapshot that ends at", snapshot_id.offset)
    later = snapshot_id.epoch > state.epoch
    if min(snapshot_id) < 0 or later or known or undoes:
        retry_later(state, now_ms)
        return
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    follower.has_fetched = True
    if now_ms < follower.download_at_ms:
        retry_later(state, now_ms)
        return
    follower.download = Download(snapshot_id)
    state.fetch_failures = 0
    fetch_next(state, now_ms)


def drop_download(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Drop the download; the Fetch after a pause makes the leader name a snapshot again."""
    follower.download = None
    retry_later(state, now_ms)


def put_off(state: QuorumState, follower: Follower, now_ms: int) -> None:
    """Begin no download for a while, twice as long each time, after one was refused here (L7).

    Else a replica with a full disk would fetch the same snapshot again and again.
    """
    pause_ms = state.config.retry_backoff_ms << min(follower.downloads_refused, 16)
    follower.downloads_refused += 1
    follower.download_at_ms = now_ms + min(pause_ms, limits.DOWNLOAD_PAUSE_MS_MAX)
