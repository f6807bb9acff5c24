"""What a prospective replica remembers: it asks for pre-votes in the present epoch (KIP-996).

A replica becomes one in ``core/transitions.py`` (``transition_to_prospective``), and acts in
``campaigning``.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.elections.election import Election
from kraftfast.core.roles import Role


class Prospective(Struct, eq=False):
    """A voter that asks whether it could win. It writes nothing to disk but a vote that it grants.

    Invariants: pre-votes go out at ``campaign_at_ms`` and not before, and decide nothing before;
    answers may change.
    """

    role = Role.PROSPECTIVE

    election: Election
    election_deadline_ms: int  # lost if undecided by then (L4)
    campaign_at_ms: int  # when pre-votes go out: at once, or when others have gone first
    failover: bool  # the leader is known dead; no timer expired
    # a voter does not support pre-vote: campaign as soon as the log is on disk
    skips_pre_votes: bool = False

    def grants_pre_vote(self) -> bool:
        """Return True: a vote given, or a known leader, does not prevent a pre-vote."""
        return True

    def may_begin_epoch(self) -> bool:
        """Return whether the next epoch may begin, once the log is on disk (D21)."""
        return self.skips_pre_votes or self.election.is_won()

    def yield_to(self, now_ms: int, pause_ms: int) -> None:
        """Let another candidate, which was granted a pre-vote, go first; ask again later."""
        self.campaign_at_ms = max(self.campaign_at_ms, now_ms + pause_ms)
        self.election.ask_again()
