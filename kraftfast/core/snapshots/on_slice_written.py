"""SliceWritten arrives: ask for the next slice, or have the whole installed."""

from __future__ import annotations

from kraftfast.core.effects import InstallSnapshot
from kraftfast.core.events import SliceWritten
from kraftfast.core.replication.fetching import fetch_next
from kraftfast.core.snapshots.begin_download import drop_download, put_off
from kraftfast.core.state import QuorumState
from kraftfast.core.transitions import remember_voting


def on_slice_written(state: QuorumState, event: SliceWritten, now_ms: int) -> None:
    """Ask for the slice behind one that is written, or put the whole in place of the log."""
    follower = state.follower
    download = None if follower is None else follower.download
    if download is None or not download.busy or download.snapshot_id != event.snapshot_id:
        return  # of a role that is over
    assert follower is not None
    follower.fetch_deadline_ms = now_ms + state.config.fetch_timeout_ms
    if event.rejected:
        put_off(state, follower, now_ms)
        drop_download(state, follower, now_ms)
        state.poll_due = True
        return
    download.position = event.end_position
    if download.position == download.size:
        remember_voting(state, state.uncuttable_offset())
        state.effects.append(InstallSnapshot(download.snapshot_id, state.log.truncations + 1))
        return
    download.busy = False
    fetch_next(state, now_ms)
