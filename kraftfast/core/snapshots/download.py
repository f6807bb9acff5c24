"""The snapshot that a follower fetches because it is too far behind, slice by slice (KIP-630).

A download must not outlive the role that began it, the follower of one leader in one epoch: the
next one begins at the first slice. Within it a failed request is repeated from the position that is
written.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kraftfast.core.effects import Send
from kraftfast.core.messages import FetchSnapshotRequest, FetchSnapshotResponse
from kraftfast.types import OffsetAndEpoch

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


class Download(Struct, eq=False):
    """The leader's snapshot, as far as this follower has it (Kafka: ``fetchingSnapshot``).

    Invariant: what is written of it ends at ``position``, which is at most ``size``.
    """

    snapshot_id: OffsetAndEpoch
    position: int = 0
    size: int = -1  # -1 before the first slice
    busy: bool = False  # a slice is being written, or the whole put in place


def fetch_slice(state: QuorumState, download: Download, now_ms: int) -> None:
    """Ask the leader for the next slice of its snapshot; this does not acknowledge anything."""
    if download.busy or not state.peers.is_ready(state.leader_id, now_ms):
        return
    request = FetchSnapshotRequest(
        state.epoch,
        state.local,
        download.snapshot_id,
        download.position,
        state.config.fetch_snapshot_max_bytes,
        state.cluster_id,
    )
    correlation = state.peers.sent(state.leader_id, now_ms, is_fetch=True)
    state.effects.append(Send(state.leader_id, correlation, request))


def continues(download: Download, response: FetchSnapshotResponse) -> bool:
    """Return whether this is the slice that was asked for. Kafka's process ends where it is not."""
    return (
        response.snapshot_id == download.snapshot_id
        and response.position == download.position
        and response.records_bytes > 0
        and response.position + response.records_bytes <= response.size
        and download.size in (-1, response.size)
    )
