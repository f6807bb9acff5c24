"""Control records as the core speaks of them: what a leader appends and every log tells.

``record.control`` has their bytes; the node translates. Only the two that change who counts come
back from the log (``Appended``, ``FetchedWritten``, ``SnapshotInstalled``), with their offsets.
"""

from __future__ import annotations

from dataclasses import dataclass

from kraftfast.core.voters import VoterSet


@dataclass(frozen=True, slots=True)
class LeaderChange:
    """The first record of an epoch (KIP-595)."""

    leader_id: int
    voter_ids: tuple[int, ...]
    granting_voter_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class KRaftVersion:
    """``kraft.version`` from here on: 0 static voters, 1 voters in the log (KIP-853)."""

    kraft_version: int


@dataclass(frozen=True, slots=True)
class KRaftVoters:
    """The voter set from here on, in force as soon as it is appended (KIP-853).

    ``target``: the ids that a reassignment is on the way to (KIP-642), in a tagged field of ours
    that Kafka skips; None: none is under way. A record without it ends the reassignment.
    """

    voters: VoterSet
    target: tuple[int, ...] | None = None


ControlRecord = LeaderChange | KRaftVersion | KRaftVoters

VoterControls = tuple[tuple[int, KRaftVersion | KRaftVoters], ...]
"""Records that change who counts, each with its offset, in order."""
