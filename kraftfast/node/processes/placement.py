"""Which processor a replica runs on, where a host has fewer processors than replicas.

The kernel leaves a thread that wakes where it was: all replicas gather on the processor the disk
interrupts, and the other one idles. profiles/README.md has the measurement.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kraftfast.errors import InvalidOption

if TYPE_CHECKING:
    from kraftfast.node.node import Node

THREADS = "/proc/self/task"
LOOK_MS, FREE_MS = 200, 5_000


def share(asked: Sequence[int] | None, replicas: int) -> tuple[int, ...]:
    """Return the processors that ``replicas`` of one host share out; empty: the kernel decides.

    ``asked``: these; None: all, if there are no more of them. Raises InvalidOption.
    """
    mine = sorted(os.sched_getaffinity(0))
    if asked is None:
        return tuple(mine) if 1 < len(mine) <= replicas else ()
    if foreign := sorted(set(asked) - set(mine)):
        raise InvalidOption(f"processors that this process may not use: {foreign}")
    return tuple(asked)


def processors_for(
    id: int, leader_id: int, voters: Collection[int], processors: Sequence[int]
) -> Sequence[int]:
    """Return where a replica runs: the leader on the first processor, followers from the last one
    on.

    So the leader shares its processor as late as possible, and never with all of the followers.
    Observers run anywhere.

    >>> [processors_for(id, 2, (1, 2, 3), (0, 1)) for id in (1, 2, 3, 4)]
    [(1,), (0,), (0,), (0, 1)]
    """
    if id == leader_id:
        return (processors[0],)
    if id not in voters:
        return processors
    rank = sorted(set(voters) - {leader_id}).index(id)
    return (processors[-1 - rank % len(processors)],)


class Placement:
    """Keeps a replica's threads where the config wants them, under any leader.

    A follower that falls behind what is committed goes wherever there is room for a while: with the
    smaller share of a busy processor it would lag until the leader's log has not what it needs.
    """

    # node: whose. at: the processors chosen last. free_until_ms: anywhere up to then. committed:
    # what the leader said was committed when this was looked at, next after due_ms.

    def __init__(self, node: Node) -> None:
        self.node = node
        self.at: Sequence[int] = ()
        self.free_until_ms = self.due_ms = 0
        self.committed = -1
        if node.config.processors:
            node.on_role.append(lambda _effect: self._choose())
            node.on_voters.append(self._choose)

    def tend(self, now_ms: int) -> None:
        """Let go of the processor if this has not what was committed ``LOOK_MS`` ago."""
        if now_ms < self.due_ms or not self.node.config.processors:
            return
        self.due_ms = now_ms + LOOK_MS
        core = self.node.core
        behind = core.end_offset < self.committed
        self.committed = core.leader_high_watermark
        if behind:
            self.free_until_ms = now_ms + FREE_MS
            self._go_to(self.node.config.processors)
        elif self.free_until_ms and now_ms >= self.free_until_ms:
            self.free_until_ms = 0
            self._choose()

    def _choose(self) -> None:
        node, processors = self.node, self.node.config.processors
        leader_id = node.core.leader_id
        if leader_id < 0 or self.free_until_ms:
            return  # an election is under way: moving now would only take time
        self._go_to(processors_for(node.config.node_id, leader_id, node.voters.ids, processors))

    def _go_to(self, wanted: Sequence[int]) -> None:
        if wanted != self.at:
            self.at = wanted
            self.node.host.run_on(wanted)


def move(processors: Sequence[int]) -> None:
    """Have every thread of this process run there. Where it may not, it stays: only slower."""
    for thread in os.listdir(THREADS):
        try:
            os.sched_setaffinity(int(thread), processors)
        except OSError:
            pass  # the thread has ended, or the processor is not this host's to give
