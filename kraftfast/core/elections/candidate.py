"""What a candidate remembers: it asks for votes in an epoch that it began with its own (D5).

A replica becomes one in ``core/transitions.py`` (``transition_to_candidate``), and acts in
``campaigning``.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.elections.election import Election
from kraftfast.core.roles import Role


class Candidate(Struct, eq=False):
    """A voter in an election. Votes never flip.

    A candidate that lost waits for its timer, which is shortened if it lost because a voter is
    known dead (``campaigning.is_split``).

    Invariant: the log it asks with must be on its disk (D21), and must not change meanwhile.
    """

    role = Role.CANDIDATE

    election: Election
    election_deadline_ms: int  # back to prospective then
    shortened: bool = False  # the deadline was, because the votes were split

    def grants_pre_vote(self) -> bool:
        """Return True: a replica with a longer log may campaign at the same time."""
        return True
