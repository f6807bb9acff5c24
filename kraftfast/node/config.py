"""What a replica process is told at its start."""

from __future__ import annotations

import msgspec

from kraftfast import limits
from kraftfast.core.config import Durability, FlushPolicy, QuorumConfig
from kraftfast.core.voters import VoterSet
from kraftfast.types import ZERO_UUID, Endpoint, Voter, uuid_from_text

IDLE_SPIN_US = {"block": 0, "hybrid": 300, "spin": 2_000, "poll": 300}
"""How long the loop looks around before it blocks, while something was in flight, microseconds.

For as long no processor halts (``node/idle.pyx``, the vigil)."""


class ListenerConfig(msgspec.Struct, frozen=True):
    """One TCP listener: ``name`` as in Kafka's ``listeners``, ``advertised`` is what others are told."""

    name: str
    host: str
    port: int
    advertised_host: str = ""
    advertised_port: int = 0


class VoterConfig(msgspec.Struct, frozen=True):
    """One voter. ``directory`` is set for a voter on this host that is reached over rings."""

    id: int
    host: str = ""
    port: int = 0
    directory: str = ""
    directory_id: str = ""


class NodeConfig(msgspec.Struct, frozen=True):
    """Everything about one replica; times are milliseconds, sizes bytes."""

    node_id: int
    directory: str
    voters: list[VoterConfig]
    cluster_id: str = ""
    listeners: list[ListenerConfig] = []
    controller_listener: str = "CONTROLLER"
    bootstrap_servers: list[tuple[str, int]] = []
    flush: str = "adaptive"
    idle: str = "hybrid"
    segment_bytes: int = limits.SEGMENT_BYTES
    segment_ms: int = limits.SEGMENT_MS
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    prepare_bytes: int = 4 * 1024 * 1024
    retention_bytes: int = -1
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    election_backoff_ms_max: int = 1000
    fetch_max_bytes: int = limits.FETCH_MAX_BYTES
    state_machine: str = ""
    seed: int = -1

    def quorum_config(self, durability: str) -> QuorumConfig:
        """The core's part. Raises InvalidOption."""
        return QuorumConfig(
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_ms_max=self.election_backoff_ms_max,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            fetch_max_bytes=self.fetch_max_bytes,
            durability=Durability(durability),
            default_listener=self.controller_listener,
            flush=FlushPolicy(self.flush),
        )

    def voter_set(self) -> VoterSet:
        """The static voters (KIP-595)."""
        return VoterSet(
            Voter(
                voter.id,
                uuid_from_text(voter.directory_id) if voter.directory_id else ZERO_UUID,
                (Endpoint(self.controller_listener, voter.host, voter.port),) if voter.host else (),
            )
            for voter in self.voters
        )
