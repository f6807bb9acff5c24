"""What a replica remembers that knows the epoch, and not its leader or where that is.

A replica becomes one in ``core/transitions.py`` (``transition_to_unattached``), and acts in
``core/on_tick.py`` and ``replication/fetching.py``.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.roles import Role


class Unattached(Struct, eq=False):
    """A replica that looks for a leader; a voter among them has an election timer."""

    role = Role.UNATTACHED

    election_deadline_ms: int  # a voter campaigns then; never for an observer

    def grants_pre_vote(self) -> bool:
        """Return True: neither a vote nor a known leader prevents a pre-vote (KIP-996)."""
        return True
