"""What holds for one replica after every step (docs/explanation/conditions.md).

What holds between replicas (I1 to I5, I8) is the simulator's to check.
"""

from __future__ import annotations

from typing import Any

from kraftfast.core.elections.candidate import Candidate
from kraftfast.core.elections.prospective import Prospective
from kraftfast.core.elections.resigned import Resigned
from kraftfast.core.elections.unattached import Unattached
from kraftfast.core.replication.follower import Follower
from kraftfast.core.replication.leader import Leader
from kraftfast.core.roles import Role
from kraftfast.core.state import QuorumState
from kraftfast.types import NO_NODE

_CLASSES = {
    Role.UNATTACHED: Unattached,
    Role.PROSPECTIVE: Prospective,
    Role.CANDIDATE: Candidate,
    Role.LEADER: Leader,
    Role.FOLLOWER: Follower,
    Role.RESIGNED: Resigned,
}
_NOMINEES = (Prospective, Candidate)


def check_invariants(state: QuorumState) -> None:
    """Assert them all."""
    check_role(state)
    check_quorum_state(state)
    state.log.check_invariants()
    assert state.log.last_epoch() <= state.epoch
    assert state.high_watermark <= state.committed_offset <= state.log.end_offset  # I6, I7
    assert state.floor_offset <= state.log.end_offset  # D23
    state.peers.check_invariants()
    assert not state.effects, "effects of this step are still here"
    in_force = state.voters_in_force()
    assert state.voters is in_force or state.voters == in_force  # I16
    assert state.kraft_version == state.history.kraft_version
    assert state.history.last_offset < state.log.end_offset
    if state.leader is not None:
        check_leader(state, state.leader)
    if state.follower is not None:
        assert state.leader_id not in (NO_NODE, state.local.id)
        assert state.follower.stream < state.next_stream


def check_role(state: QuorumState) -> None:
    """I18: the role is what its object says; only voters go beyond following.

    Except a leader that removed itself, and a replica whose removal may not be committed.
    """
    current: Any = state.current
    assert isinstance(current, _CLASSES[state.role])  # I18
    assert state.leader is (current if state.role is Role.LEADER else None)  # I18
    assert state.follower is (current if state.role is Role.FOLLOWER else None)  # I18
    if isinstance(current, _NOMINEES):
        nominee: Any = current
        assert state.counts_as_voter() and state.config.campaign  # I18
        assert (state.local.id in nominee.election.granted) == state.is_voter()
        assert not nominee.election.granted & nominee.election.rejected
        assert nominee.election.unanimous or not state.doubt.exists()  # I21
    if state.role is Role.LEADER:
        assert not state.doubt.exists()  # I21
    for each in state.log.snapshots:
        assert each.offset <= state.committed_offset  # I15
    assert not state.writing or state.role is Role.FOLLOWER


def check_quorum_state(state: QuorumState) -> None:
    """I9, I10: what is on disk is what this replica acts on."""
    persisted = state.persisted
    assert persisted is not None
    assert persisted.epoch == state.epoch
    assert persisted.voted == state.voted
    assert persisted.superseded == state.superseded  # D23
    assert persisted.was_voter == state.was_voter
    if state.role in (Role.LEADER, Role.RESIGNED):
        assert persisted.leader_id == state.leader_id == state.local.id
    if state.role is Role.CANDIDATE:
        assert state.voted == state.local  # D5
        assert state.log.ackable_end_offset() == state.log.end_offset  # D21


def check_leader(state: QuorumState, leader: Leader) -> None:
    """I6, I12, I13."""
    assert state.epoch > state.resumed_epoch  # I13, D4
    assert state.high_watermark == -1 or state.high_watermark > leader.epoch_start_offset  # D6
    if leader.slot >= 0:
        assert leader.acknowledged.get(leader.slot) <= state.log.ackable_end_offset()  # I12, D1
    assert leader.slot >= 0 or state.history.latest_offset >= state.high_watermark  # I17
    assert leader.acknowledged.voter_ids == state.voters.ids  # D16
    assert (leader.slot >= 0) == state.is_voter()
    uncommitted_from = max(state.high_watermark, leader.epoch_start_offset)
    assert state.history.uncommitted_sets(uncommitted_from) <= 1  # I16, D17
    leader.check_invariants(state.log.end_offset)
