"""Candidate: asks for votes in an epoch of its own; the own one is written meanwhile (D5)."""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.elections.election import Election
from kraftfast.core.roles import Role


class Candidate(Struct, eq=False):
    """A voter in an election. Votes never flip; a lost one waits out its timer, or less if it was
    lost because a voter is known dead.

    Invariant: the log it asks with must be on its disk (D21), and must not change meanwhile.
    """

    role = Role.CANDIDATE

    election: Election
    election_deadline_ms: int  # back to prospective then
    shortened: bool = False  # it is, once the votes were split

    def grants_pre_vote(self) -> bool:
        """Return True: a better log may run beside it."""
        return True
