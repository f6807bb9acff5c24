"""SnapshotInstalled arrives: the leader's snapshot stands in place of the log.

``install_snapshot`` of ``log/snapshots/log_start.pyx`` has put it there.
"""

from __future__ import annotations

from kraftfast.core.effects import AdvanceHighWatermark
from kraftfast.core.events import SnapshotInstalled
from kraftfast.core.membership.on_controls import adopt
from kraftfast.core.replication.fetching import retry_later
from kraftfast.core.snapshots.begin_download import put_off
from kraftfast.core.state import QuorumState


def on_snapshot_installed(state: QuorumState, event: SnapshotInstalled, now_ms: int) -> None:
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
