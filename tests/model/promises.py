"""What one replica must keep to in each of its states, whatever the others do.

The core asserts its own invariants and the host those of effects; these are what both leave out:
what a process must do about its disk (D13, D14), and what it may believe of it (I11).
"""

from __future__ import annotations

from typing import Any

from tests.model import timeless
from tests.model.alone import Lone

WAITS_FOR_NOTHING = ("prospective", "candidate", "resigned")
"""Roles in which there is nothing that a flush could wait for (D14)."""


def keep_promises(host: Lone, event: tuple[Any, ...], role: str) -> None:
    """Assert what must hold after an event; ``role``: the one before it."""
    replica = host.replica
    if replica is None:
        return
    disk = host.disk
    assert replica.flushed_end_offset <= disk.flushed, (
        f"I11, D2: {replica.flushed_end_offset} counts as flushed, {disk.flushed} is"
    )
    idle = host.flushing is None and disk.flushed < len(disk.records)
    if replica.role in WAITS_FOR_NOTHING and not host.world.setting.in_memory:
        assert not idle, f"D14: a {replica.role} replica leaves its tail unflushed"
    if event[0] == "timer" and event[1] == "unflushed":
        assert not idle, "D14: what is old stays unflushed"
    if event[0] == "timer" and event[1] == "flushing" and role == "leader":
        leader = timeless.state_of(replica).leader
        stays = leader is not None and leader.needed_of_others > 0
        assert not stays, "D13: a leader whose flush does not return goes on leading"
