"""This replica's own entry in the voter set: what it should say, and whether it does (KIP-853)."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.config import QuorumConfig
from kraftfast.core.membership.control import ControlRecord
from kraftfast.core.membership.voter_history import VoterHistory
from kraftfast.types import (
    NO_OFFSET,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    ReplicaKey,
    Voter,
    VoterSet,
)


def own_voter(config: QuorumConfig, local: ReplicaKey, voters: VoterSet) -> Voter:
    """Return the entry as it should be; endpoints as configured, else as the set has them."""
    return Voter(
        local.id,
        local.directory_id,
        config.endpoints or voters.endpoints(local.id),
        limits.KRAFT_VERSION_MIN,
        limits.KRAFT_VERSION_MAX,
    )


def is_outdated(config: QuorumConfig, local: ReplicaKey, voters: VoterSet) -> bool:
    """Return whether the set has this replica with other endpoints or another version range."""
    return voters.is_voter(local) and voters.get(local.id) != own_voter(config, local, voters)


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
