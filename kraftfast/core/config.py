"""How a quorum is set up: Kafka's names where Kafka has one, ours beside them."""

from __future__ import annotations

from enum import StrEnum

from msgspec import Struct
from msgspec.structs import force_setattr

from kraftfast import limits
from kraftfast.errors import InvalidOption
from kraftfast.types import Endpoint


class Durability(StrEnum):
    """What an acknowledged record has survived, by name; one choice for a whole quorum."""

    MAJORITY = "majority"  # on the disks of a majority of the voters
    ALL = "all"  # the same high watermark, but producers wait for the disks of all voters
    MEMORY = "memory"  # in the memory of a majority: a power cut may lose it


class FlushPolicy(StrEnum):
    """When a leader puts its own log on disk (ARCHITECTURE.md, "The way of a record")."""

    DEFERRED = "deferred"  # once as many others have it as commit together with the own disk
    PARALLEL = "parallel"  # at once, while the followers flush too
    ADAPTIVE = "adaptive"  # at once if nothing else waits for its commit, else deferred


class QuorumConfig(Struct, frozen=True):
    """Timers, bounds and choices of one replica. Times are milliseconds.

    Raises ``InvalidOption`` for a value that is out of range.
    """

    election_timeout_ms: int = 1000
    """controller.quorum.election.timeout.ms: elections wait for this to twice this, at random."""
    fetch_timeout_ms: int = 2000
    """controller.quorum.fetch.timeout.ms: a follower without a good Fetch this long campaigns."""
    election_backoff_ms_max: int = 1000
    """controller.quorum.election.backoff.max.ms: for voters behind the first of EndQuorumEpoch."""
    request_timeout_ms: int = 2000
    """controller.quorum.request.timeout.ms: an unanswered request is given up after this."""
    retry_backoff_ms: int = 20
    """controller.quorum.retry.backoff.ms: how long a peer is left alone after a failure."""
    fetch_max_bytes: int = limits.FETCH_MAX_BYTES
    """controller.quorum.fetch.max.bytes: what a Fetch of this replica asks for at most."""
    fetch_snapshot_max_bytes: int = limits.FETCH_MAX_BYTES
    """controller.quorum.fetch.snapshot.max.bytes: the largest slice of a snapshot asked for."""
    fetch_max_wait_ms: int = limits.FETCH_MAX_WAIT_MS
    """How long a Fetch may be parked; also the longest silence on a stream (Kafka: constant).
    Lowered to half of what a Fetch is given before it counts as lost."""
    failover_step_ms: int = 5
    """Once the leader is known dead, the voter of rank n asks for pre-votes n such steps later."""
    durability: Durability = Durability.MAJORITY
    """What an acknowledgement means; carried by ring handshake and Fetch."""
    flush: FlushPolicy = FlushPolicy.ADAPTIVE
    """When a leader flushes its own log."""
    unflushed_bytes_max: int = limits.UNFLUSHED_BYTES_MAX
    """D14: no appends are taken above this; a flush starts at half of it at the latest."""
    unflushed_age_ms_max: int = limits.UNFLUSHED_AGE_MS_MAX
    """D14: a flush starts at the latest when the oldest unflushed record is this old."""
    held_age_ms_max: int = limits.HELD_AGE_MS_MAX
    """D14: no appends are taken while the oldest unflushed record is older than this."""
    inline_flush_bytes_max: int = limits.INLINE_FLUSH_BYTES_MAX
    follower_inline_flush_bytes_max: int = limits.FOLLOWER_INLINE_FLUSH_BYTES_MAX
    """A flush of at most this much may be done inside the loop."""
    stream_pushes_max: int = limits.STREAM_PUSHES_MAX
    """How many answers with records may be under way, not yet copied, on one stream."""
    snapshot_slices_max: int = limits.SNAPSHOT_SLICES_MAX
    """How many slices of snapshots a leader sends at once, to all replicas together."""
    bootstrap_ids: tuple[int, ...] = ()
    """Servers that are asked for the leader, besides the voters, which are always asked. An id
    below -1 stands for an address that the node knows."""
    endpoints: tuple[Endpoint, ...] = ()
    """Where this replica can be reached: for BeginQuorumEpoch and its entry in the voter set, which
    it keeps up to date (UpdateRaftVoter). Empty: as in the voter set."""
    default_listener: str = "CONTROLLER"
    """The first of controller.listener.names: a voter must have an endpoint of this name."""
    campaign: bool = True
    """Whether this replica ever asks to lead. A witness of Kafka's controllers does not: it votes,
    follows and acknowledges only."""
    new_quorum: bool = False
    """The quorum was made just now with all its disks, so no voter has a log."""
    auto_join: bool = False
    """controller.quorum.auto.join.enable: an observer makes itself a voter, unless it was one."""

    def __post_init__(self) -> None:
        for name in (
            "election_timeout_ms",
            "fetch_timeout_ms",
            "request_timeout_ms",
            "fetch_max_wait_ms",
            "unflushed_age_ms_max",
            "fetch_max_bytes",
            "fetch_snapshot_max_bytes",
            "snapshot_slices_max",
            "stream_pushes_max",
        ):
            if getattr(self, name) < 1:
                raise InvalidOption(f"{name} must be at least 1, not {getattr(self, name)}")
        for name in (
            "election_backoff_ms_max",
            "retry_backoff_ms",
            "failover_step_ms",
            "inline_flush_bytes_max",
            "follower_inline_flush_bytes_max",
        ):
            if getattr(self, name) < 0:
                raise InvalidOption(f"{name} must not be negative, not {getattr(self, name)}")
        longest_ms = max(1, min(self.fetch_timeout_ms, self.request_timeout_ms) // 2)
        if self.fetch_max_wait_ms > longest_ms:  # or an idle quorum takes silence for the end
            force_setattr(self, "fetch_max_wait_ms", longest_ms)
        if self.unflushed_bytes_max < limits.TURN_BYTES_MAX:
            raise InvalidOption(
                f"unflushed_bytes_max must be at least {limits.TURN_BYTES_MAX}, one turn of the "
                f"loop, not {self.unflushed_bytes_max}"
            )
        if self.held_age_ms_max < self.unflushed_age_ms_max:
            raise InvalidOption("held_age_ms_max must not be below unflushed_age_ms_max")
        for name, kind in (("durability", Durability), ("flush", FlushPolicy)):
            try:
                force_setattr(self, name, kind(getattr(self, name)))
            except ValueError:
                known = "|".join(kind)
                raise InvalidOption(
                    f"{name} must be {known}, not {getattr(self, name)!r}"
                ) from None

    @property
    def check_quorum_timeout_ms(self) -> int:
        """A leader that a majority has not fetched from for this long resigns."""
        return self.fetch_timeout_ms * 3 // 2

    @property
    def membership_period_ms(self) -> int:
        """How often a follower looks whether its entry in the voter set is as it should be."""
        return self.fetch_timeout_ms * 2

    @property
    def move_period_ms(self) -> int:
        """How often a reassignment looks whether whom it waits for has caught up."""
        return max(1, self.fetch_max_wait_ms // 5)

    @property
    def begin_quorum_epoch_ms(self) -> int:
        """How often BeginQuorumEpoch goes to voters that stopped fetching."""
        return max(1, self.fetch_timeout_ms // 2)
