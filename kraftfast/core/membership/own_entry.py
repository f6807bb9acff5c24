"""This replica's own entry in the voter set: what it should say, and whether it does (KIP-853)."""

from __future__ import annotations

from kraftfast import limits
from kraftfast.core.config import QuorumConfig
from kraftfast.types import (
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
