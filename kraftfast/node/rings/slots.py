"""Bound the connections of each kind at the local door, and those of one process among them.

Each kind has slots of its own, so that many connections of one kind cannot keep out the others. A
process may have three quarters of the slots of a kind. All connections belong to one user or to
root; the kernel tells which process each belongs to.
"""

from __future__ import annotations

import resource
from collections import Counter

SLOTS = {"stranger": 128, "producer": 512, "watch": 512, "request": 128, "query": 128, "events": 8}
"""The most connections of each kind (I25). A stranger has not said its kind yet."""
DESCRIPTORS_KEPT = 512
"""File descriptors reserved for the log's files, peers and TCP connections."""
DESCRIPTORS_A_SLOT = 4


class Slots:
    """Counts connections; every ``take`` must be followed by one ``give``."""

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
        """Count one connection more."""
        self.taken[kind] += 1
        self.shares[kind, pid] += 1

    def give(self, kind: str, pid: int) -> None:
        """Count one connection less."""
        self.taken[kind] -= 1
        self.shares[kind, pid] -= 1
        if not self.shares[kind, pid]:
            del self.shares[kind, pid]
