"""How many connections of each kind the local door holds, and how many of one process among them.

Each kind has slots of its own, so that a crowd of one kind locks out no other: questions of
operators, replicas and producers get in, whoever watches. A process may have three quarters of a
kind. All connections are of one user, or of root: the kernel says of which process.
"""

from __future__ import annotations

import resource
from collections import Counter

SLOTS = {"stranger": 128, "producer": 512, "watch": 512, "request": 128, "query": 128}
"""Connections of each kind at most (I25)."""
DESCRIPTORS_KEPT = 512
"""Of this process, for its files, its peers and TCP."""
DESCRIPTORS_A_SLOT = 4


class Slots:
    """Counts connections; ``take`` and ``give`` go in pairs."""

    # room: slots of each kind. taken: of each kind. shares: of each (kind, process id).

    def __init__(self, slots: dict[str, int] = SLOTS) -> None:
        open_max = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
        wanted = DESCRIPTORS_A_SLOT * sum(slots.values())
        share = 1.0
        if open_max != resource.RLIM_INFINITY:
            share = min(1.0, max(open_max - DESCRIPTORS_KEPT, open_max // 2) / wanted)
        self.room = {kind: max(8, int(count * share)) for kind, count in slots.items()}
        self.taken = dict.fromkeys(slots, 0)
        self.shares: Counter[tuple[str, int]] = Counter()

    def refusal(self, kind: str, pid: int) -> str:
        """Return why there is no slot of this kind for one more of the process; '' if there is."""
        if self.taken[kind] >= self.room[kind]:
            return f"there are {self.taken[kind]} connections of kind {kind} already"
        if self.shares[kind, pid] >= self.room[kind] * 3 // 4:
            return f"process {pid} has {self.shares[kind, pid]} connections of kind {kind} already"
        return ""

    def take(self, kind: str, pid: int) -> None:
        """Count one more."""
        self.taken[kind] += 1
        self.shares[kind, pid] += 1

    def give(self, kind: str, pid: int) -> None:
        """Count one less."""
        self.taken[kind] -= 1
        self.shares[kind, pid] -= 1
        if not self.shares[kind, pid]:
            del self.shares[kind, pid]
