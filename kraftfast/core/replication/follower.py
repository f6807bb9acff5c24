"""What a follower remembers: it fetches from the leader of its epoch, as a voter or an observer.

A replica becomes one in ``core/transitions.py`` (``transition_to_follower``), and acts in
``fetching``, ``on_fetch_response`` and ``on_fetched_written``.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftfast.core.log_view import NEVER_MS
from kraftfast.core.roles import Role
from kraftfast.core.snapshots.download import Download


@dataclass(eq=False)
class Follower:
    """A replica that knows its leader.

    Invariants: ``stream`` is 0 (Fetch by Fetch) or the number of the one open stream, of this
    epoch and this link (D3).
    """

    role = Role.FOLLOWER

    fetch_deadline_ms: int  # a voter campaigns then; every answer without an error moves it
    # an answer without an error came from this leader: pre-votes are rejected from then on
    has_fetched: bool = False
    leader_high_watermark: int = -1  # the highest that this leader sent, -1 if unknown
    stream: int = 0  # the open stream, 0 for none
    stream_deadline_ms: int = NEVER_MS  # given up if nothing came on it until then
    # while the log has no room, or a snapshot is written: when the next keep-alive is sent
    update_at_ms: int = NEVER_MS
    membership_at_ms: int = NEVER_MS  # when its entry in the voter set is looked at again
    membership_correlation: int = 0  # of the request about it that went to the leader, 0 for none
    download: Download | None = None  # the leader's snapshot, instead of Fetch
    downloads_refused: int = 0  # in a row: they could not be written, checked or installed
    download_at_ms: int = 0  # none begins before this
    # kraft.version 0: an UpdateRaftVoter told this leader where this voter listens
    leader_updated: bool = False

    def grants_pre_vote(self) -> bool:
        """Return True until this leader has answered a Fetch (KIP-996)."""
        return not self.has_fetched
