"""What a new leader appends first: LeaderChange, and the voters where the log lacks them."""

from __future__ import annotations

from kraftfast.core.config import QuorumConfig
from kraftfast.core.membership.own_entry import is_outdated, own_voter
from kraftfast.core.membership.voter_controls import ControlRecord
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.types import NO_OFFSET, KRaftVersion, KRaftVoters, LeaderChange, ReplicaKey


def first_records(
    config: QuorumConfig, local: ReplicaKey, history: VoterHistory, change: LeaderChange
) -> tuple[ControlRecord, ...]:
    """Return what a new leader appends in one batch.

    The voters too if they came from the bootstrap snapshot, whose contents no log has, or if the
    own entry is outdated. A reassignment's target is carried on.
    """
    latest = history.latest
    if history.kraft_version == 0 or latest is None:
        return (change,)
    voters = latest.voters
    if history.latest_offset > NO_OFFSET and not is_outdated(config, local, voters):
        return (change,)
    updated = voters.with_voter(own_voter(config, local, voters))
    return change, KRaftVersion(history.kraft_version), KRaftVoters(updated, latest.target)
