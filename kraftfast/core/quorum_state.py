"""What a replica must never forget about elections (D5); its file belongs to ``log/``."""

from __future__ import annotations

from dataclasses import dataclass

from kraftfast.types import NO_NODE, ReplicaKey


@dataclass(frozen=True, slots=True)
class QuorumState:
    """The content of ``quorum-state``.

    Invariants over time (I9): ``epoch`` never falls; within an epoch ``voted`` never changes from
    one replica to another and ``leader_id`` never from one to another.
    """

    epoch: int = 0
    leader_id: int = NO_NODE  # -1: not known, or not elected
    voted: ReplicaKey | None = None  # a zero directory id: any directory of that id
    superseded: bool = False  # the configured voters do not count any more, for ever (D23)
