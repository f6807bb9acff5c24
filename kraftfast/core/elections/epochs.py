"""Which messages may move this replica to a higher epoch, and how far.

There is no authentication yet, and only 2^31 epochs: a stranger that could move them at will
would use them up, which ends the quorum. So a Vote does not move the epoch beside a live leader
(Ongaro's dissertation, 4.2.3), and messages move it by a burst and then by a few a second.

Requests come from anyone, answers only from peers that were asked. So an answer may move the epoch
much further: past all epochs that the quorum went through while this replica was down. A replica
without a record adopts any epoch that an answer names: else it could never join an old quorum.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from kraftfast import limits
from kraftfast.core.messages import VoteRequest
from kraftfast.types import NO_NODE, ReplicaKey

if TYPE_CHECKING:
    from kraftfast.core.state import QuorumState


class EpochBudget(Struct, eq=False):
    """How many epochs messages of one kind may still move this replica.

    Invariant: ``spent`` must not exceed ``burst``; it falls by ``limits.EPOCHS_PER_S``.
    """

    burst: int
    spent: int = 0
    since_ms: int = 0  # up to when ``spent`` has fallen

    def allows(self, epochs: int, now_ms: int) -> bool:
        """Return whether messages may move the epoch that much further now."""
        regained = max(0, now_ms - self.since_ms) * limits.EPOCHS_PER_S // 1000
        return max(0, self.spent - regained) + epochs <= self.burst

    def spend(self, epochs: int, now_ms: int) -> None:
        """Record that a message which was allowed moved the epoch this far."""
        if epochs <= 0:
            return
        regained = max(0, now_ms - self.since_ms) * limits.EPOCHS_PER_S // 1000
        if regained >= self.spent:
            self.spent, self.since_ms = 0, now_ms
        elif regained:
            self.spent -= regained
            self.since_ms += regained * 1000 // limits.EPOCHS_PER_S
        self.spent += epochs


def request_goes_too_far(state: QuorumState, epoch: int, now_ms: int) -> bool:
    """Return whether a request asks for more epochs than requests may move this replica now."""
    if epoch <= state.epoch:
        return False
    allowed = state.request_epochs.allows(epoch - state.epoch, now_ms)
    return epoch > limits.EPOCH_MAX or not allowed


def answer_goes_too_far(state: QuorumState, epoch: int, now_ms: int) -> bool:
    """Return whether an answer names a higher epoch than answers may move this replica to now."""
    if epoch <= state.epoch:
        return False
    if epoch > limits.EPOCH_MAX:
        return True
    return not has_no_record(state) and not state.answer_epochs.allows(epoch - state.epoch, now_ms)


def has_no_record(state: QuorumState) -> bool:
    """Return whether this replica has no log, so that nothing binds it beyond its epoch."""
    return state.log.end_offset == 0


def has_live_leader(state: QuorumState, now_ms: int) -> bool:
    """Return whether this replica leads, or fetched from its leader within the fetch timeout."""
    follower = state.follower
    if follower is None:
        return state.leader is not None
    return follower.has_fetched and follows_leader(state, now_ms)


def follows_leader(state: QuorumState, now_ms: int) -> bool:
    """Return whether this replica leads, or has not given up its leader yet."""
    follower = state.follower
    if follower is None:
        return state.leader is not None
    return now_ms < follower.fetch_deadline_ms and not state.leader_is_dead()


def is_known(state: QuorumState, key: ReplicaKey) -> bool:
    """Return whether the voter set in force, or any that this replica has, names this replica.

    Without a voter set, every replica counts as known.
    """
    return not state.voters or state.voters.is_voter(key) or state.history.ever_named(key)


def is_shielded(state: QuorumState, request: VoteRequest, now_ms: int) -> bool:
    """Return whether a standard Vote of a higher epoch is refused without moving the epoch.

    A peer that supports pre-vote must have won its pre-votes first, which it cannot beside a live
    leader: so its Vote is refused then. Kafka 3.9 has no pre-vote: Votes of its voters are
    judged. A replica that no voter set here names may be a voter of a later set, but is refused
    while there is a leader.
    """
    if not is_known(state, request.replica):
        return follows_leader(state, now_ms)
    return request.speaks_pre_vote and has_live_leader(state, now_ms)


def is_stranger_for_majority(state: QuorumState, leader_id: int, now_ms: int) -> bool:
    """Return whether an answer names a leader outside every voter set, and this replica leads.

    What a majority still fetches is not given up for a log of which only a replaced disk knows
    (D23). If that leader was elected here, this one soon resigns for want of a majority (D13).
    """
    leader = state.leader
    return (
        leader is not None
        and leader.needed_of_others > 0
        and is_stranger_beside_leader(state, leader_id, now_ms)
    )


def is_stranger_beside_leader(state: QuorumState, leader_id: int, now_ms: int) -> bool:
    """Return whether a message names a leader outside every voter set while another is followed."""
    if leader_id in (NO_NODE, state.local.id, state.leader_id) or not state.voters:
        return False
    return (
        not state.history.has_id(leader_id)
        and leader_id not in state.voters
        and (follows_leader(state, now_ms))
    )
