"""What a replica tells about its quorum: the data of DescribeQuorum, and of ``status``."""

from __future__ import annotations

from msgspec import Struct

from kraftfast.core.replication.leader import Progress
from kraftfast.core.state import QuorumState
from kraftfast.types import ReplicaKey, VoterSet


class ReplicaDescription(Struct, frozen=True):
    """One replica as the leader knows it. Times are the leader's monotonic ms, -1: never."""

    key: ReplicaKey
    log_end_offset: int  # what it acknowledged; -1 unknown
    last_fetch_ms: int
    last_caught_up_ms: int


class QuorumDescription(Struct, frozen=True):
    """The quorum as this replica knows it; ``voters`` and ``observers`` only where it leads."""

    role: str
    epoch: int
    leader_id: int
    high_watermark: int
    voters: tuple[ReplicaDescription, ...]
    observers: tuple[ReplicaDescription, ...]
    in_doubt: bool  # the own end is uncertain (D10)
    possible_loss: bool  # this leader led out of doubt: committed records may be missing
    in_memory: bool  # durability=memory
    kraft_version: int
    voter_set: VoterSet  # in force, with endpoints
    target: tuple[int, ...] | None  # of a reassignment under way (KIP-642)
    ended_target: tuple[int, ...] | None  # of one that ended before it got there
    uncommitted_voter_change: bool  # the voter set in force is not known to be committed


def describe(state: QuorumState, now_ms: int) -> QuorumDescription:
    """Return the quorum at this moment; a leader names its own times as now."""
    leader = state.leader
    voters: list[ReplicaDescription] = []
    observers: list[ReplicaDescription] = []
    if leader is not None:
        votes = leader.slot >= 0
        key = state.voters.key(state.local.id) if votes else state.local  # as the set names it
        own = ReplicaDescription(key, state.log.end_offset, now_ms, now_ms)
        voters = [of_progress(progress) for progress in leader.voters.values()]
        observers = [of_progress(progress) for progress in leader.observers.values()]
        (voters if votes else observers).append(own)
        voters.sort(key=lambda each: each.key)
        observers.sort(key=lambda each: each.key)
    latest = state.history.latest
    return QuorumDescription(
        role=state.role.value,
        epoch=state.epoch,
        leader_id=state.leader_id,
        high_watermark=state.high_watermark,
        voters=tuple(voters),
        observers=tuple(observers),
        in_doubt=state.doubt.exists(),
        possible_loss=state.doubt.possible_loss,
        in_memory=state.log.in_memory,
        kraft_version=state.kraft_version,
        voter_set=state.voters,
        target=None if latest is None else latest.target,
        ended_target=state.history.ended_target,
        uncommitted_voter_change=state.history.last_offset >= max(state.uncuttable_offset(), 0),
    )


def of_progress(progress: Progress) -> ReplicaDescription:
    """Return one other replica."""
    return ReplicaDescription(
        progress.key,
        progress.acknowledged_end_offset,
        progress.last_fetch_ms,
        progress.last_caught_up_ms,
    )
