"""Bound the connections of each kind at the local door, and those of one process among them.

Each kind has slots of its own, so that many connections of one kind cannot keep out the others. A
process may have three quarters of the slots of a kind. All connections belong to one user or to
root; the kernel tells which process each belongs to.
"""

from __future__ import annotations

from collections import Counter

from kraftfast.link.kernel_check import descriptors

SLOTS = {"pending": 128, "producer": 512, "watch": 512, "request": 128, "query": 128, "events": 8}
"""The most connections of each kind (I25). A pending one has not said its kind yet."""
DESCRIPTORS_KEPT = 512
"""File descriptors that the connections of one door, local or TCP, must leave to all else."""
DESCRIPTORS_A_SLOT = 4
HEADROOM = 256
"""So many descriptors, an eighth of all at most, are left whatever connects to both doors."""
TOO_FEW = "too few file descriptors are left: raise the limit (ulimit -n)"


def for_clients() -> int:
    """Return how many descriptors connections of one door may take; -1 without a limit."""
    open_max = descriptors()
    return max(open_max - DESCRIPTORS_KEPT, open_max // 2) if open_max >= 0 else -1


def is_kept(fd: int) -> bool:
    """Return whether a descriptor is one that clients must leave to the log and the replicas.

    The kernel gives the lowest that is free: all below this one are in use.
    """
    open_max = descriptors()
    return 0 <= open_max <= fd + min(HEADROOM, open_max // 8)


class Slots:
    """Counts connections; every ``take`` must be followed by one ``give``."""

    # room: slots of each kind. taken: of each kind. shares: of each (kind, process id).

    def __init__(self, slots: dict[str, int] = SLOTS) -> None:
        wanted = DESCRIPTORS_A_SLOT * sum(slots.values())
        there_are = for_clients()
        share = min(1.0, there_are / wanted) if there_are >= 0 else 1.0
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
