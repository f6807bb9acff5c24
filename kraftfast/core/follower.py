"""Follower: fetches from the leader of its epoch, as a voter or as an observer."""

from __future__ import annotations

from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.roles import Role
from kraftfast.types import OffsetAndEpoch


class Download:
    """A snapshot on its way here.

    Invariant: what is on disk of it ends at ``position``, which is at most ``size``.
    """

    snapshot_id: OffsetAndEpoch
    position: int
    size: int  # -1 before the first slice
    busy: bool  # a slice is being written, or the whole put in place

    def __init__(self, snapshot_id: OffsetAndEpoch) -> None:
        self.snapshot_id = snapshot_id
        self.position = 0
        self.size = -1
        self.busy = False


class Follower:
    """A replica that knows its leader.

    Invariants: ``stream`` is 0 (Fetch by Fetch) or the number of the one open stream, of this
    epoch and this link (D3).
    """

    role = Role.FOLLOWER

    fetch_deadline_ms: int  # a voter campaigns then; every good answer moves it
    has_fetched: bool  # a good answer came from this leader: pre-votes are refused from then on
    leader_high_watermark: int  # as the leader last told, -1 if unknown
    stream: int  # the open stream, 0 for none
    stream_deadline_ms: int  # given up if nothing came on it until then
    update_at_ms: int  # while the log has no room: when the leader is told again that we live

    membership_at_ms: int  # when its entry in the voter set is looked at again
    membership_correlation: int  # of the request about it that went to the leader, 0 for none
    download: Download | None  # the leader's snapshot, instead of Fetch
    leader_updated: bool  # kraft.version 0: this leader was told where this voter listens

    def __init__(self, fetch_deadline_ms: int) -> None:
        self.fetch_deadline_ms = fetch_deadline_ms
        self.has_fetched = False
        self.leader_high_watermark = -1
        self.stream = 0
        self.stream_deadline_ms = NEVER_MS
        self.update_at_ms = NEVER_MS
        self.membership_at_ms = NEVER_MS
        self.membership_correlation = 0
        self.download = None
        self.leader_updated = False

    def grants_pre_vote(self) -> bool:
        """Only until the leader proved to be alive (KIP-996)."""
        return not self.has_fetched
