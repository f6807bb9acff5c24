"""How a quorum of one host runs: what :class:`kraftfast.LocalQuorum` takes besides its layout."""

from __future__ import annotations

import socket
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, TypedDict

from msgspec import Struct

from kraftfast import limits
from kraftfast.arguments import flag, one_of, text, whole_number, whole_numbers
from kraftfast.errors import CannotListen, InvalidOption, UnauthenticatedListener
from kraftfast.node.node_config import VoterConfig, usual_segment_bytes
from kraftfast.node.processes.placement import share
from kraftfast.node.state_machine import StateMachine, describe_class
from kraftfast.node.storage.local_layout import PORT_MAX, check_ids
from kraftfast.types import address_text, is_loopback

TRANSPORTS = ("ring", "socket")
BESIDE_TUNING = ("voters", "durability", "records", "kraft_version", "timeout", "restart")
"""What a LocalQuorum takes besides: settings that are misspelt may be meant so."""
BYTES_MAX = 2**63 - 1
FLUSHES = ("adaptive", "deferred", "parallel")
ELECTION_TIMEOUT_MS = 150
"""For start-up alone: pre-vote shields a living leader, and the kernel reports a dead one."""


SEGMENT_BYTES = 256 * 1024 * 1024
PORT_MIN, PORT_TRIES_MAX = 10_000, 100
MS_MAX = 2**31 - 1
BOUNDS = {
    "port": (0, PORT_MAX),
    "segment_bytes": (limits.PAGE_BYTES, limits.SEGMENT_BYTES_MAX),
    "stride_bytes": (limits.PAGE_BYTES, limits.SEGMENT_BYTES_MAX),
    "prepare_bytes": (0, limits.SEGMENT_BYTES_MAX),
    "retention_bytes": (-1, BYTES_MAX),
    "retention_ms": (-1, BYTES_MAX),
    "snapshot_bytes": (1, BYTES_MAX),
    "snapshot_interval_ms": (0, BYTES_MAX),
    "election_timeout_ms": (1, MS_MAX),
    "fetch_timeout_ms": (1, MS_MAX),
    "producers_max": (1, limits.PRODUCERS_MAX),
    "connections_per_address_max": (1, MS_MAX),
    "connections_max": (1, MS_MAX),
}
"""Setting -> its smallest and its largest value."""
MAY_BE_NONE = frozenset({"segment_bytes", "retention_bytes", "retention_ms"})


def open_to(addresses: Iterable[tuple[str, int]], loopback: bool) -> str:
    """Return a warning: who can connect to these addresses, and what they can do there."""
    where = ", ".join(address_text(host, port) for host, port in addresses)
    who = "every user of this host" if loopback else "everyone who reaches this host"
    return (
        f"there is no authentication yet: {who} can read and append records at {where}, "
        "and pose as a replica"
    )


def free_port(host: str) -> int:
    """Return a TCP port that no process listens on at the moment. Raises CannotListen.

    One that the kernel gives to no connection, if there is: else a connection of any process could
    take it while a replica is started again, and keep it.
    """
    import random  # most quorums do not listen

    tried = (random.choice(PORTS) for _ in range(PORT_TRIES_MAX))
    free = (port for port in tried if port not in _chosen and _is_free(host, port))
    try:
        with socket.create_server((host, next(free, 0))) as sock:
            port = int(sock.getsockname()[1])
    except OSError as error:
        raise CannotListen(f"cannot listen on {host!r}: {error}") from None
    _chosen.append(port)
    return port


def _is_free(host: str, port: int) -> bool:
    try:
        socket.create_server((host, port)).close()
    except OSError:
        return False
    return True


def unused_ports(path: str = "/proc/sys/net/ipv4/ip_local_port_range") -> range:
    """Return the ports below those that connections get, or all if those are few."""
    try:
        with open(path) as file:
            first = int(file.read().split()[0])
    except (OSError, ValueError, IndexError):
        first = 0
    return range(PORT_MIN, first if first > PORT_MIN + PORT_TRIES_MAX else PORT_MAX + 1)


PORTS = unused_ports()
_chosen: deque[int] = deque(maxlen=256)
"""Ports given last: replicas of one quorum are started after all have theirs."""


class TuningFields(TypedDict, total=False):
    """The fields of :class:`Tuning` as keywords, for type checkers."""

    flush: Literal["adaptive", "deferred", "parallel"]
    transport: Literal["ring", "socket"]
    idle: Literal["block", "hybrid", "spin", "poll"]
    processors: Sequence[int] | None
    port: int
    host: str
    expose_without_authentication: bool
    segment_bytes: int | None
    stride_bytes: int
    prepare_bytes: int
    retention_bytes: int | None
    retention_ms: int | None
    snapshot_bytes: int
    snapshot_interval_ms: int
    election_timeout_ms: int
    fetch_timeout_ms: int
    producers_max: int
    connections_per_address_max: int
    connections_max: int
    state_machine: type[StateMachine] | str | None


class Tuning(Struct):
    """How a quorum runs; may differ from start to start. Sizes are bytes, times milliseconds."""

    flush: str = "adaptive"
    """When the leader flushes its own log: ``adaptive``, ``deferred`` or ``parallel``."""
    transport: str = "ring"
    """How replicas and clients reach each other: ``ring`` (shared memory) or ``socket`` (TCP)."""
    idle: str = "hybrid"
    """How the loop waits: ``block``, ``hybrid``, ``spin``, ``poll``, by falling latency."""
    processors: Sequence[int] | None = None
    """Which processors the voters share out, one each; empty: the kernel's choice. None: all that
    this process may use, where they are fewer than or as many as the voters."""
    port: int = 0
    """Replica N also listens on ``port`` + N for Kafka's clients; 0: only with sockets."""
    host: str = "127.0.0.1"
    """The address to listen on."""
    expose_without_authentication: bool = False
    """Listen on a host that others reach, without authentication; no warning for loopback."""
    segment_bytes: int | None = None
    """The size of a segment file. None: 256 MiB; with ``durability="memory"`` and
    ``retention_bytes`` a sixteenth of that, 8 to 256 MiB."""
    stride_bytes: int = limits.PREPARE_STRIDE_BYTES
    """How much is written with zeros ahead of the log's end under load. A replica begins with
    ``prepare_bytes`` and goes on with 8 times what it has appended, up to this."""
    prepare_bytes: int = limits.PREPARE_BYTES
    """How much is written with zeros before the replica starts; at least 64 KiB."""
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
    """How long a campaign waits for votes."""
    fetch_timeout_ms: int = 2000
    """How long a follower goes on without its leader, and a leader without a majority."""
    producers_max: int = limits.PRODUCERS
    """How many idempotent producers are remembered; the longest silent one is forgotten."""
    connections_per_address_max: int = limits.CONNECTIONS_PER_ADDRESS_MAX
    """How many connections a replica that listens takes from one address."""
    connections_max: int = limits.CONNECTIONS_MAX
    """And from all; fewer where ``ulimit -n`` is low."""
    state_machine: Any = None
    """A :class:`StateMachine` class, or ``module:Class``, that every replica applies the log to."""

    def __post_init__(self) -> None:
        """Refuse what no replica could run with, before anything is made. Raises InvalidOption."""
        for name, (least, most) in BOUNDS.items():
            value = getattr(self, name)
            if value is not None or name not in MAY_BE_NONE:
                setattr(self, name, whole_number(name, value, least, most))
        self.host = text("host", self.host)
        name = "expose_without_authentication"
        self.expose_without_authentication = flag(name, self.expose_without_authentication)
        exposed = self.listens and not is_loopback(self.host)
        if exposed and not self.expose_without_authentication:
            raise InvalidOption(
                f"{self.host} would be open to other hosts without authentication; listen on "
                "127.0.0.1, or say expose_without_authentication=True"
            )
        if self.processors is not None:
            self.processors = tuple(whole_numbers("processors", self.processors, 0, MS_MAX))
            share(self.processors, 0)
        given = self.state_machine
        self.state_machine = "" if given is None else describe_class(given)
        for name, known in (
            ("flush", FLUSHES),
            ("transport", TRANSPORTS),
            ("idle", tuple(limits.IDLE_SPIN_US)),
        ):
            one_of(name, getattr(self, name), known)

    @property
    def listens(self) -> bool:
        """Whether replicas have TCP listeners."""
        return bool(self.port) or self.transport == "socket"

    def tell_who_can_come(self, addresses: Mapping[int, tuple[str, int]]) -> None:
        """Warn the caller of the caller that there are listeners, which let everyone in."""
        if not addresses:
            return
        loopback = is_loopback(self.host)
        if not (loopback and self.expose_without_authentication):
            text = open_to(addresses.values(), loopback)
            warnings.warn(text, UnauthenticatedListener, stacklevel=3)

    def choose_address(self, id: int) -> tuple[str, int]:
        """Return where a replica listens: host and port. Raises InvalidOption, CannotListen."""
        check_ids([id], self.port)
        return self.host, self.port + id if self.port else free_port(self.host)

    def places(
        self, directories: Mapping[int, str], addresses: Mapping[int, tuple[str, int]]
    ) -> list[VoterConfig]:
        """Return where every replica is: its directory for rings, else its address."""
        if self.transport == "ring":
            return [VoterConfig(id, directory=place) for id, place in directories.items()]
        return [VoterConfig(id, *address) for id, address in addresses.items()]

    def of_each_node(self, durability: str) -> dict[str, Any]:
        """Return the settings that are passed to every replica (``NodeConfig``)."""
        names = (
            "flush", "idle", "stride_bytes", "prepare_bytes", "retention_bytes",
            "retention_ms", "snapshot_bytes", "snapshot_interval_ms", "election_timeout_ms",
            "fetch_timeout_ms", "producers_max", "connections_per_address_max", "connections_max",
            "state_machine",
        )  # fmt: skip
        settings = {name: getattr(self, name) for name in names}
        usual = usual_segment_bytes(durability, self.retention_bytes, SEGMENT_BYTES)
        settings["segment_bytes"] = usual if self.segment_bytes is None else self.segment_bytes
        return settings


def tuning_of(settings: dict[str, Any]) -> Tuning:
    """Return how a quorum runs with these settings. Raises InvalidOption."""
    known = Tuning.__struct_fields__
    for name in settings:
        if name not in known:
            import difflib  # as a rule nothing is misspelt

            names = (*known, *BESIDE_TUNING)
            near = [each for each in difflib.get_close_matches(name, names, n=1) if each != name]
            hint = f": did you mean {near[0]}?" if near else ""
            raise InvalidOption(f"unknown setting {name!r}{hint}")
    return Tuning(**settings)
