"""What one replica must keep to in each of its states, whatever the others do.

The core asserts its own invariants and the host those of effects; these are what both leave out:
what a process must do about its disk (D13, D14), what it may believe of it (I11), what it derives
from its log (D22), and which logs it may vote for (D10, D21, I21).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.model import timeless

if TYPE_CHECKING:
    from kraftfast.core.messages import VoteRequest
    from tests.model.alone import Lone

WAITS_FOR_NOTHING = ("prospective", "candidate", "resigned")
"""Roles in which there is nothing that a flush could wait for (D14)."""


def keep_promises(host: Lone, event: tuple[Any, ...], role: str) -> None:
    """Assert what must hold after an event; ``role``: the one before it."""
    replica, looked = host.replica, host.world.looked
    if replica is None:
        return
    disk = host.disk
    assert replica.flushed_end_offset <= disk.flushed, (
        f"I11, D2: {replica.flushed_end_offset} counts as flushed, {disk.flushed} is"
    )
    derive(host)
    idle = host.flushing is None and disk.flushed < len(disk.records)
    if replica.role in WAITS_FOR_NOTHING and not host.world.setting.in_memory:
        looked["unflushed tail"] += disk.flushed < len(disk.records)
        assert not idle, f"D14: a {replica.role} replica leaves its tail unflushed"
    if event[0] == "timer" and event[1] == "unflushed":
        looked["old tail"] += 1
        assert not idle, "D14: what is old stays unflushed"
    if event[0] == "timer" and event[1] == "flushing" and role == "leader":
        looked["stuck flush"] += 1
        leader = timeless.state_of(replica).leader
        stays = leader is not None and leader.needed_of_others > 0
        assert not stays, "D13: a leader whose flush does not return goes on leading"


def derive(host: Lone) -> None:
    """Assert that where epochs begin is what a scan of the log gives (D22)."""
    assert host.replica is not None
    start = host.disk.start
    said = timeless.state_of(host.replica).log.trail.entries
    held = host.disk.trail().entries
    if said and 0 < start >= said[0][1]:  # it began before the log, or is the snapshot's
        said = ((said[0][0], start), *said[1:]) if held else said[1:]
    assert list(said) == list(held), f"D22: it has epochs {said}, its log {held}"


def grants(host: Lone, request: VoteRequest) -> None:
    """Assert that a vote, or a pre-vote, goes to a log that is long enough."""
    host.world.looked["granted"] += 1
    records, replica = host.disk.records, host.replica
    assert replica is not None
    theirs = request.last_epoch, request.last_offset
    mine = (records[-1].epoch if records else 0), len(records)
    if not host.disk.start == len(records) > 0:  # else the last epoch is the snapshot's
        assert theirs >= mine, f"D21: {host.id} with {mine} grants one that has {theirs}"
    lost = host.phantom
    if lost is not None and replica.in_doubt and not request.unanimous:
        host.world.looked["granted in doubt"] += 1
        assert theirs >= (lost.epoch, lost.offset), (
            f"D10, I21: {host.id}, which may have had {lost}, grants one that has {theirs}"
        )
