"""What a leader remembers that stepped down or restarted: it never leads this epoch again (D4).

A replica becomes one in ``core/transitions.py`` (``transition_to_resigned``), and acts in
``core/on_tick.py``.
"""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.roles import Role
from kraftfast.types import ReplicaKey


class Resigned(Struct, eq=False):
    """A leader that stepped down or restarted. It names itself leader, appends nothing, grants no
    vote in this epoch, and tells the other voters until they know."""

    role = Role.RESIGNED

    election_deadline_ms: int  # the next epoch begins then
    unacknowledged: set[int]  # voters who have not answered EndQuorumEpoch
    successors: tuple[ReplicaKey, ...]  # by preference; none after a restart

    def grants_pre_vote(self) -> bool:
        """Return True: another replica may lead."""
        return True
