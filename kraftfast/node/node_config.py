"""What a replica process is told at its start."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from kraftfast import limits
from kraftfast.types import ZERO_UUID, Endpoint, Voter, VoterSet, uuid_from_text

if TYPE_CHECKING:
    from kraftfast.core.config import QuorumConfig
    from kraftfast.log.recovery import LogSettings


class ListenerConfig(msgspec.Struct, frozen=True):
    """One TCP listener: ``name`` as in Kafka's ``listeners``; others are told ``advertised``."""

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


SEGMENTS_IN_MEMORY = 16


def usual_segment_bytes(durability: str, retention_bytes: int | None, most: int) -> int:
    """Return the size of a segment, bytes, that is used without a setting; at most ``most``.

    A log in memory of which ``retention_bytes`` are kept has many small ones: what is kept, and
    the files before and behind it, then stay so little that the kernel has no reason to write them
    back (profiles/README.md).
    """
    if durability != "memory" or retention_bytes is None or retention_bytes < 0:
        return most
    return min(most, max(limits.SEGMENT_BYTES_MIN, retention_bytes // SEGMENTS_IN_MEMORY))


class NodeConfig(msgspec.Struct, frozen=True):
    """Everything about one replica; times are milliseconds, sizes bytes.

    ``voters`` are the static ones: they count only while neither log nor snapshot holds any.
    ``neighbours``: replicas whose place the starter of this one knows, which goes
    before what the voter set says; they are asked for the leader, too.
    ``may_vote``: False for process.roles=broker, which can never be a voter.
    ``retention_bytes``, ``retention_ms``: how much of the log is kept (``snapshots.retention``),
    -1: all. None is Kafka's default where a state machine makes snapshots, and all elsewhere.
    ``segment_bytes``: None: :func:`usual_segment_bytes`.
    ``snapshot_bytes``, ``snapshot_interval_ms``: when it makes one; 0 ms: never by time.
    ``campaign``: whether it ever asks to lead; None: unless it is a witness (``witness``).
    ``new_quorum``: all disks of its quorum were made just now.
    ``processors``: those that the voters share out, all of this host; empty: none
    (``processes.placement``).
    """

    node_id: int
    directory: str
    voters: list[VoterConfig]
    cluster_id: str = ""
    listeners: list[ListenerConfig] = []
    controller_listener: str = "CONTROLLER"
    bootstrap_servers: list[tuple[str, int]] = []
    neighbours: list[VoterConfig] = []
    may_vote: bool = True
    auto_join: bool = False
    campaign: bool | None = None
    new_quorum: bool = False
    flush: str = "adaptive"
    idle: str = "hybrid"
    segment_bytes: int | None = None
    segment_ms: int = limits.SEGMENT_MS
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    prepare_bytes: int = limits.PREPARE_BYTES
    retention_bytes: int | None = None
    retention_ms: int | None = None
    snapshot_bytes: int = 20 * 1024 * 1024
    snapshot_interval_ms: int = 3600 * 1000
    election_timeout_ms: int = 1000
    fetch_timeout_ms: int = 2000
    request_timeout_ms: int = 2000
    retry_backoff_ms: int = 20
    election_backoff_ms_max: int = 1000
    fetch_max_bytes: int = limits.FETCH_MAX_BYTES
    fetch_snapshot_max_bytes: int = limits.FETCH_MAX_BYTES
    producers_max: int = limits.PRODUCERS
    connections_max: int = limits.CONNECTIONS_MAX
    connections_per_address_max: int = limits.CONNECTIONS_PER_ADDRESS_MAX
    processors: tuple[int, ...] = ()
    state_machine: str = ""
    seed: int = -1

    @property
    def endpoints(self) -> tuple[Endpoint, ...]:
        """Where others reach this replica, as its entry in the voter set says.

        The controller listener first, by which replicas come; clients learn of the others there.
        Port 0: over rings alone, from this host. Empty for one that can never be a voter.
        """
        name = self.controller_listener
        if not self.may_vote:
            return ()
        if not self.listeners:
            return (Endpoint(name, "localhost", 0),)
        places = [
            Endpoint(
                each.name,
                each.advertised_host or each.host,
                each.advertised_port or each.port,
            )
            for each in sorted(self.listeners, key=lambda each: each.name != name)
        ]
        return tuple(each for each in places if each.port) if places[0].port else ()

    @property
    def bootstrap_ids(self) -> tuple[int, ...]:
        """Whom to ask for the leader: controller.quorum.bootstrap.servers have ids below -1."""
        servers = [-2 - index for index in range(len(self.bootstrap_servers))]
        return (*servers, *(each.id for each in self.neighbours if each.id != self.node_id))

    def quorum_config(self, durability: str, witness: bool = False) -> QuorumConfig:
        """Return the core's part. Raises InvalidOption."""
        from kraftfast.core.config import Durability, FlushPolicy, QuorumConfig

        return QuorumConfig(
            election_timeout_ms=self.election_timeout_ms,
            fetch_timeout_ms=self.fetch_timeout_ms,
            election_backoff_ms_max=self.election_backoff_ms_max,
            request_timeout_ms=self.request_timeout_ms,
            retry_backoff_ms=self.retry_backoff_ms,
            fetch_max_bytes=self.fetch_max_bytes,
            fetch_snapshot_max_bytes=self.fetch_snapshot_max_bytes,
            durability=Durability(durability),
            bootstrap_ids=self.bootstrap_ids,
            endpoints=self.endpoints,
            default_listener=self.controller_listener,
            campaign=not witness if self.campaign is None else self.campaign,
            new_quorum=self.new_quorum,
            auto_join=self.auto_join,
            flush=FlushPolicy(self.flush),
        )

    def log_settings(self, durability: str) -> LogSettings:
        """Return the log's part. Raises InvalidOption."""
        from kraftfast.log.recovery import LogSettings  # as above: only a replica loads its log

        usual = usual_segment_bytes(durability, self.retention_bytes, limits.SEGMENT_BYTES)
        return LogSettings(
            segment_bytes=usual if self.segment_bytes is None else self.segment_bytes,
            segment_ms=self.segment_ms,
            stride_bytes=self.stride_bytes,
            prepare_bytes=self.prepare_bytes,
            producers_max=self.producers_max,
            how="mapped" if durability == "memory" else "written",
        )

    def voter_set(self) -> VoterSet:
        """Return the static voters (KIP-595)."""
        return VoterSet(
            Voter(
                voter.id,
                uuid_from_text(voter.directory_id) if voter.directory_id else ZERO_UUID,
                (Endpoint(self.controller_listener, voter.host, voter.port),) if voter.host else (),
            )
            for voter in self.voters
        )
