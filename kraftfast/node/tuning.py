"""How a quorum of one host runs: what :class:`kraftfast.LocalQuorum` takes besides its layout."""

from __future__ import annotations

import socket
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kraftfast import limits
from kraftfast.errors import InvalidOption
from kraftfast.node.config import IDLE_SPIN_US
from kraftfast.node.placement import share
from kraftfast.node.state_machine import describe_class

TRANSPORTS = ("ring", "socket")
FLUSHES = ("adaptive", "deferred", "parallel")
ELECTION_TIMEOUT_MS = 150
"""For start-up alone: pre-vote shields a living leader, and the kernel tells of a dead one."""


def free_port(host: str) -> int:
    """Return a TCP port that no process listens on at the moment."""
    with socket.create_server((host, 0)) as sock:
        return int(sock.getsockname()[1])


@dataclass(slots=True)
class Tuning:
    """How a quorum runs; may differ from start to start. Sizes are bytes, times milliseconds."""

    flush: str = "adaptive"
    transport: str = "ring"
    idle: str = "hybrid"
    processors: Sequence[int] | None = None
    """Which processors the voters share out, one each; empty: the kernel's choice. None: all that
    this process may use, where they are fewer than or as many as the voters."""
    port: int = 0
    """Replica N also listens on ``port`` + N for Kafka's clients; 0: only with sockets."""
    host: str = "127.0.0.1"
    segment_bytes: int = 256 * 1024 * 1024
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    prepare_bytes: int = 4 * 1024 * 1024
    retention_bytes: int | None = None
    """How much of the log to keep, -1: all. None: 100 MiB with a state machine that makes
    snapshots, else all. With a limit but no state machine old records are deleted."""
    retention_ms: int | None = None
    """How long to keep records; None: 7 days with such a state machine, else for ever."""
    snapshot_bytes: int = 20 * 1024 * 1024
    """How much of the log lies between two snapshots of the state machine."""
    snapshot_interval_ms: int = 3600 * 1000
    """The longest time between two snapshots, 0: unlimited."""
    election_timeout_ms: int = ELECTION_TIMEOUT_MS
    fetch_timeout_ms: int = 2000
    producers_max: int = limits.PRODUCERS
    """How many idempotent producers are remembered; the longest silent one is forgotten."""
    state_machine: Any = ""
    """A :class:`StateMachine` class, or ``module:Class``, that every replica applies the log to."""

    def __post_init__(self) -> None:
        share(self.processors, 0)  # refused before anything is made
        self.state_machine = describe_class(self.state_machine) if self.state_machine else ""
        for name, known in (
            ("flush", FLUSHES),
            ("transport", TRANSPORTS),
            ("idle", tuple(IDLE_SPIN_US)),
        ):
            if getattr(self, name) not in known:
                raise InvalidOption(
                    f"{name} must be one of {', '.join(known)}, not {getattr(self, name)!r}"
                )

    @property
    def listens(self) -> bool:
        """Whether replicas have TCP listeners."""
        return bool(self.port) or self.transport == "socket"

    def choose_address(self, id: int) -> tuple[str, int]:
        """Return the host and port of a replica that listens."""
        return self.host, self.port + id if self.port else free_port(self.host)

    def of_each_node(self) -> dict[str, Any]:
        """Return the settings that are passed to every replica (``NodeConfig``)."""
        names = (
            "flush", "idle", "segment_bytes", "stride_bytes", "prepare_bytes", "retention_bytes",
            "retention_ms", "snapshot_bytes", "snapshot_interval_ms", "election_timeout_ms",
            "fetch_timeout_ms", "producers_max", "state_machine",
        )  # fmt: skip
        return {name: getattr(self, name) for name in names}
