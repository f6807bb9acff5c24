"""Control records as the core speaks of them: what a leader appends and every log tells.

``record.control`` has their bytes. Only the two that change who counts come back from the log
(``Appended``, ``FetchedWritten``, ``SnapshotInstalled``), with their offsets.
"""

from __future__ import annotations

from kraftfast.types import KRaftVersion, KRaftVoters, LeaderChange

ControlRecord = LeaderChange | KRaftVersion | KRaftVoters

VoterControls = tuple[tuple[int, KRaftVersion | KRaftVoters], ...]
"""Records that change who counts, each with its offset, in order."""
