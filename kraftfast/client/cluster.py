"""Quorums that are reached over TCP: which server leads, and the way to it."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftfast import arguments
from kraftfast.arguments import refuse
from kraftfast.client.client_host import HOST, ClientHost
from kraftfast.client.connection import Address, Connection, ConnectionRefused
from kraftfast.client.search import FEWER, Full
from kraftfast.errors import (
    ErrorCode,
    InconsistentClusterId,
    InvalidOption,
    KraftfastError,
    MalformedFrame,
    NoQuorum,
    NotLeader,
    PeerGone,
    RequestRefused,
    TimedOut,
    UnsupportedVersion,
    raise_if_scarce,
)
from kraftfast.types import METADATA_PARTITION, ZERO_UUID, address_from_text, address_text
from kraftfast.wire.messages import ApiKey, MetadataRequest

ATTEMPT_S = 1.0
"""For so long one server is waited for, before the next one is asked."""

ADDRESSES_MAX = 256
ADDRESS_CHARACTERS_MAX = 300
WANTED = '"host:port,host:port", or a list of such texts or of pairs'
UNREACHABLE = (PeerGone, TimedOut, UnsupportedVersion, MalformedFrame)


def parse_addresses(text: str | Iterable[str | Address]) -> list[Address]:
    """Parse addresses from ``"host:port,[::1]:port"``, or from a list of such texts or of pairs.

    >>> parse_addresses("localhost:9092, [::1]:9093")
    [('localhost', 9092), ('::1', 9093)]

    Raises InvalidOption.
    """
    found: list[Address] = []
    if isinstance(text, bytes | bytearray | Mapping) or not isinstance(text, Iterable):
        refuse("addresses", WANTED, text)
    for part in text.split(",") if isinstance(text, str) else text:
        if not isinstance(part, str):
            if not isinstance(part, tuple | list) or len(part) != 2:
                refuse("addresses", WANTED, text)
            host, port = arguments.text("a host", part[0]), part[1]
            part = address_text(host, port)
        if len(part) > ADDRESS_CHARACTERS_MAX:
            refuse("an address", "host:port", part)
        try:
            found.append(address_from_text(part.strip()))
        except ValueError as error:
            raise InvalidOption(str(error)) from None
    if not found:
        raise InvalidOption("no address (host:port) was given")
    return found


@dataclass(frozen=True, slots=True)
class KnownLeader:
    """The leader, by its own word. ``topic_id``: None from a server that knows of none."""

    address: Address
    node_id: int
    epoch: int
    topic_id: bytes | None


class Cluster:
    """The servers of one quorum. Thread-safe.

    ``addresses``: where to begin; more are learnt. ``topic``: the quorum's log. ``host``: what its
    clients run on.
    """

    # cluster_id: what the first server said; None until then. _addresses: those to be asked, the
    # one that led last, or answered last, first. _lock: held while they are changed. led: where the
    # leader was when that was last heard, None: it is to be looked for. _servers: replica id ->
    # address, as the last server named it that was asked. _problems: why those that could not be
    # asked could not.

    def __init__(self, addresses: Iterable[Address], topic: str, host: ClientHost = HOST) -> None:
        self.topic, self.host = topic, host
        self.cluster_id: str | None = None
        self._lock = threading.Lock()
        self.led: Address | None = None
        self._servers: dict[int, Address] = {}
        self._problems: dict[Address, str] = {}
        self._addresses: dict[Address, None] = dict.fromkeys(addresses)

    def addresses(self) -> list[Address]:
        """Return every address known, the most promising first."""
        with self._lock:
            return list(self._addresses)

    def reach(self, address: Address, deadline: float) -> Connection:
        """Return a connection to one server. Raises as :class:`Connection`."""
        return Connection(address, deadline, self.host)

    def _attempt(self, deadline: float) -> float:
        return min(deadline, self.host.monotonic() + ATTEMPT_S)

    def find_leader(self, deadline: float) -> tuple[Connection, KnownLeader]:
        """Return a connection to the leader. ``deadline``: by the clock of its host.

        Raises NotLeader (no server leads at the moment), NoQuorum (no server answers), Full (the
        leader has no room for a connection), RequestRefused (the topic is another one),
        OutOfResources (this process has no descriptors, say). A server of
        another cluster is passed over, as one that does not answer; InconsistentClusterId if no
        other server answers, or another one names it as leader.
        """
        candidates, asked, problems = self.addresses(), set[Address](), list[str]()
        foreign: InconsistentClusterId | None = None
        named, refused = set[Address](), dict[Address, str]()
        while candidates:
            address = candidates.pop(0)
            if address in asked:
                continue
            if asked and self.host.monotonic() >= deadline:
                break  # a server that was not asked keeps its place
            asked.add(address)
            until = self._attempt(deadline)
            try:
                connection = self.reach(address, until)
            except UNREACHABLE as error:
                raise_if_scarce(error, "cannot reach the quorum")
                problems.append(self._failed(address, error, until == deadline))
                if isinstance(error, ConnectionRefused):
                    refused[address] = str(error)
                continue
            until = self._attempt(deadline)
            try:
                leader = self.ask_leader(connection, until)
            except (*UNREACHABLE, InconsistentClusterId) as error:
                connection.close()
                if isinstance(error, InconsistentClusterId):
                    if address in named:
                        raise
                    foreign = error
                problems.append(self._failed(address, error, until == deadline))
                continue
            except BaseException:
                connection.close()
                raise
            if leader is not None and leader.address == address:
                self._promise(address, True)
                self.led = address
                return connection, leader
            connection.close()
            if leader is not None:
                named.add(leader.address)
                candidates.insert(0, leader.address)
        if foreign is not None and len(problems) == len(asked):
            raise foreign
        nobody = len(problems) == len(asked)
        for address, why in refused.items():
            if nobody or address in named:
                raise Full(f"{why}; {FEWER}")
        if nobody:
            raise NoQuorum(f"no server answers: {problems[0]}")
        raise NotLeader("no server leads at the moment")

    def ask_leader(self, connection: Connection, deadline: float) -> KnownLeader | None:
        """Return who leads, as far as one server knows."""
        topic = MetadataRequest.Topic(name=self.topic)
        body = MetadataRequest(topics=[topic], allow_auto_topic_creation=False)
        answer = connection.ask(ApiKey.METADATA, body, deadline)
        self._check_cluster(answer.cluster_id, connection.address)
        servers = {broker.node_id: (broker.host, broker.port) for broker in answer.brokers}
        with self._lock:
            if servers:
                self._servers = servers
            for address in servers.values():
                if len(self._addresses) < ADDRESSES_MAX:
                    self._addresses.setdefault(address)
        found = next((entry for entry in answer.topics if entry.name == self.topic), None)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if found is None else found.error_code
        if code == ErrorCode.LEADER_NOT_AVAILABLE:
            return None
        if found is None or code != ErrorCode.NONE:
            raise RequestRefused(f"the quorum has no topic {self.topic!r} (error {code})", code)
        for part in found.partitions:
            if part.partition_index == METADATA_PARTITION and part.leader_id in servers:
                topic_id = found.topic_id if found.topic_id != ZERO_UUID else None
                return KnownLeader(
                    servers[part.leader_id], part.leader_id, part.leader_epoch, topic_id
                )
        return None

    def _check_cluster(self, cluster_id: str | None, address: Address) -> None:
        with self._lock:
            if self.cluster_id is None:
                self.cluster_id = cluster_id
            elif cluster_id != self.cluster_id:
                raise InconsistentClusterId(
                    f"{address_text(*address)} belongs to cluster {cluster_id}, "
                    f"not {self.cluster_id}"
                )

    def _failed(self, address: Address, error: KraftfastError, cut_short: bool) -> str:
        """Record that a server could not be asked; return why.

        A last attempt that was ``cut_short`` by the end of the time says less than the one before.
        """
        self._promise(address, False)
        with self._lock:
            if cut_short and isinstance(error, TimedOut) and address in self._problems:
                return self._problems[address]
            if address in self._problems or len(self._problems) < ADDRESSES_MAX:
                self._problems[address] = str(error)
        return str(error)

    def _promise(self, address: Address, good: bool) -> None:
        """Move a server to the front of the order in which they are asked, or to its end."""
        with self._lock:
            self._addresses.pop(address, None)
            if good:
                self._addresses = {address: None} | self._addresses
                self._problems.pop(address, None)
            else:
                self._addresses[address] = None

    def learn_leader(self, leader_id: int) -> None:
        """Record the leader that a server names, -1: it knows none.

        One without an address is looked for.
        """
        if leader_id >= 0:
            with self._lock:
                self.led = self._servers.get(leader_id)

    def later_leader(self, address: Address, epoch: int, deadline: float) -> bool:
        """Return whether a server other than the one at ``address`` knows a leader of a later
        epoch.

        They share the time: one that is silent too leaves some for the next.
        """
        others = [other for other in self.addresses() if other != address]
        for number, other in enumerate(others):
            now = self.host.monotonic()
            until = now + min(ATTEMPT_S, (deadline - now) / (len(others) - number))
            try:
                connection = self.reach(other, until)
            except UNREACHABLE:
                continue
            try:
                leader = self.ask_leader(connection, until)
            except (*UNREACHABLE, RequestRefused, InconsistentClusterId):
                continue
            finally:
                connection.close()
            if leader is not None and leader.epoch > epoch:
                return True
        return False
