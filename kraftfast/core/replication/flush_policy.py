"""When the log is flushed: by a leader's policy, and by all others before they acknowledge.

A nominee (a prospective replica or a candidate) and a resigned leader flush at once (D14, D21).

One flush at a time; whatever was appended by the time it begins is in it (group fsync).
"""

from __future__ import annotations

from kraftfast.core.config import FlushPolicy
from kraftfast.core.effects import Flush
from kraftfast.core.replication.leader import Leader
from kraftfast.core.state import QuorumState

DEFERRED = FlushPolicy.DEFERRED  # looked up far faster than an enum's member
PARALLEL = FlushPolicy.PARALLEL


def flush_leader(state: QuorumState, leader: Leader, idle: bool, now_ms: int) -> None:
    """Start a flush of the leader's log if its policy says so.

    ``idle``: only the append just made waits for its commit. A large one counts as load all the
    same: then the other disks come first.
    """
    log = state.log
    if log.flushing or log.flushed_end_offset >= log.end_offset:
        return
    if log.in_memory:
        if log.ackable_end_offset() < log.end_offset:
            leader.flush_began_ms = now_ms
            start_flush(state, False)
        return
    small = log.unflushed_bytes <= state.config.inline_flush_bytes_max
    at_once = idle and small and state.config.flush is not DEFERRED
    if at_once or is_due(state, leader, now_ms):
        leader.flush_began_ms = now_ms
        start_flush(state, idle or state.high_watermark >= log.flushed_end_offset)


def is_due(state: QuorumState, leader: Leader, now_ms: int) -> bool:
    """Return whether a flush must start now though other records wait for their commit.

    Where no other disk is needed for a commit (a sole voter), it always must: ours comes first
    (D15).
    """
    log = state.log
    config = state.config
    if config.flush is PARALLEL or state.for_all:
        return True
    if log.unflushed_bytes * 2 >= config.unflushed_bytes_max:  # D14
        return True
    if now_ms - log.unflushed_since_ms >= config.unflushed_age_ms_max:  # D14
        return True
    others = leader.acknowledged.by_others(leader.slot, leader.needed_of_others)
    return others > log.flushed_end_offset


def flush_follower(state: QuorumState) -> None:
    """Flush what is not on disk: only that may be acknowledged (D3) and campaigned with (D21)."""
    log = state.log
    if not log.flushing and log.ackable_end_offset() < log.end_offset:
        start_flush(state, True)


def start_flush(state: QuorumState, may_inline: bool) -> None:
    """Flush all that was appended; inside the loop if it is small and nothing else waits."""
    log = state.log
    log.begin_flush()
    inline = may_inline and log.flushing_bytes <= inline_bytes_max(state)
    state.effects.append(Flush(log.end_offset, inline))


def inline_bytes_max(state: QuorumState) -> int:
    """Return the most bytes that a flush in the loop may cover; -1: none is made there.

    With durability=memory the core does not know how many it covers: the flusher thread makes it.
    """
    config = state.config
    if state.log.in_memory:
        return -1
    if state.leader is None:
        return config.follower_inline_flush_bytes_max
    return config.inline_flush_bytes_max
