"""Follower: fetches from the leader of its epoch, as a voter or as an observer."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import Struct

from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.roles import Role
from kraftfast.types import OffsetAndEpoch


class FetchingSnapshot(Struct, eq=False):
    """A snapshot on its way here.

    Invariant: what is written of it ends at ``position``, which is at most ``size``.
    """

    snapshot_id: OffsetAndEpoch
    position: int = 0
    size: int = -1  # -1 before the first slice
    busy: bool = False  # a slice is being written, or the whole put in place


@dataclass(eq=False)
class Follower:
    """A replica that knows its leader.

    Invariants: ``stream`` is 0 (Fetch by Fetch) or the number of the one open stream, of this
    epoch and this link (D3).
    """

    role = Role.FOLLOWER

    fetch_deadline_ms: int  # a voter campaigns then; every good answer moves it
    # a good answer came from this leader: pre-votes are refused from then on
    has_fetched: bool = False
    leader_high_watermark: int = -1  # as the leader last told, -1 if unknown
    stream: int = 0  # the open stream, 0 for none
    stream_deadline_ms: int = NEVER_MS  # given up if nothing came on it until then
    # while the log has no room, or a snapshot is written: when the leader is told that we live
    update_at_ms: int = NEVER_MS
    membership_at_ms: int = NEVER_MS  # when its entry in the voter set is looked at again
    membership_correlation: int = 0  # of the request about it that went to the leader, 0 for none
    download: FetchingSnapshot | None = None  # the leader's snapshot, instead of Fetch
    downloads_refused: int = 0  # in a row: written or checked or put in place, they failed
    download_at_ms: int = 0  # none begins before this
    leader_updated: bool = False  # kraft.version 0: this leader was told where this voter listens

    def grants_pre_vote(self) -> bool:
        """Only until the leader proved to be alive (KIP-996)."""
        return not self.has_fetched
