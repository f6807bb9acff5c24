"""The TCP door of a replica: listeners, sessions, and connections to the other replicas."""

from __future__ import annotations

import socket
from functools import partial
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.errors import CannotListen, PeerGone
from kraftfast.link.socket_link import listen
from kraftfast.node.acceptor import Acceptor, OtherSide
from kraftfast.node.requests import admin_requests
from kraftfast.node.requests.describe_requests import metadata
from kraftfast.node.slots import TOO_FEW, for_clients
from kraftfast.node.tcp.consumers import Consumers
from kraftfast.node.tcp.session import Session, SessionRequest
from kraftfast.node.tcp.socket_peers import SocketPeers
from kraftfast.node.tcp.socket_producers import SocketProducers
from kraftfast.node.translation import translate
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.notation import Versions
from kraftfast.wire.versions import KRAFT_VERSION, SERVED, api_versions_response

if TYPE_CHECKING:
    from kraftfast.errors import ErrorCode
    from kraftfast.log.log import Log
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node
    from kraftfast.wire.fetch import PartitionFetch
    from kraftfast.wire.frame import WireMessage
    from kraftfast.wire.messages import ApiVersionsResponse, FetchRequest, ProduceRequest
    from kraftfast.wire.produce import PartitionProduce

HELD_BYTES_MAX = 256 * 1024 * 1024
LITTLE_BYTES = 16 * 1024
"""A session that holds no more is read even beyond that: what replicas send takes less."""
SWEEP_MS = 100
FEATURES = {KRAFT_VERSION: Versions(limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)}
SERVED_HERE = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.FETCH_SNAPSHOT,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.UPDATE_FEATURES,
        ApiKey.ADD_RAFT_VOTER,
        ApiKey.REMOVE_RAFT_VOTER,
        ApiKey.UPDATE_RAFT_VOTER,
    }
)


class Sockets:
    """Everything of a replica that goes over TCP."""

    # node, loop: whose. producers: over sockets. consumers: those. acceptors: what is bound.
    # sessions: every connection, oldest first. per_address: how many, by address.
    # connections_max: how many sessions there may be. held_bytes: requests and answers of all
    # sessions (I25). waiting_for_room: a producer is not read because too many records are queued.
    # exempt: the session that is read although that is too much, so that one request completes.
    # resumable: sessions with requests that were read already. peers: replicas and bootstrap
    # servers that are reached over sockets. _first: at the last append those with sockets came
    # before those with rings.

    def __init__(self, node: Node, loop: Loop) -> None:
        self.node, self.loop = node, loop
        self.served = {key: versions for key, versions in SERVED.items() if key in SERVED_HERE}
        self.acceptors: list[Acceptor] = []
        self.sessions: dict[Session, None] = {}
        self.per_address: dict[str, int] = {}
        there_are, asked = for_clients(), node.config.connections_max
        self.connections_max = min(asked, there_are) if there_are >= 0 else asked
        self.held_bytes = 0
        self.waiting_for_room = False
        self.exempt: Session | None = None
        self.resumable: dict[Session, None] = {}
        self.peers = SocketPeers(node, loop)
        self.producers = SocketProducers(node)
        self.consumers = Consumers(node)
        self._swept_ms = 0
        self._first = False

    def open(self) -> None:
        """Bind every listener. Raises CannotListen if an address is taken."""
        for listener in self.node.config.listeners:
            try:
                sock = listen(self.node.host.network, listener.host, listener.port)
            except PeerGone as error:
                raise CannotListen(str(error)) from None
            accepted = partial(self._accepted, listener.name)
            self.acceptors.append(Acceptor(self.loop, sock, accepted))

    def ports(self) -> dict[str, int]:
        """Return the port of each listener by its name (asked for as 0: chosen by the kernel)."""
        names = [listener.name for listener in self.node.config.listeners]
        return {name: each.sock.getsockname()[1] for name, each in zip(names, self.acceptors)}

    def start(self) -> None:
        """Connect to the others, and follow what happens to the log."""
        self.peers.start()
        self.node.on_commit.append(self.consumers.committed)

    # --- connections -----------------------------------------------------------------------------

    def _accepted(self, listener: str, sock: socket.socket, address: OtherSide) -> None:
        host = address[0]
        if refusal := self._is_full(host, sock.fileno()):
            self.node.tell("connection_refused", host=host, why=refusal)
            sock.close()
            return
        try:
            session = Session(self, sock, host, listener, self.node.now_ms())
        except OSError:  # reset before it was looked at
            sock.close()
            return
        self.per_address[host] = self.per_address.get(host, 0) + 1
        self.sessions[session] = None

    def _is_full(self, host: str, fd: int) -> str:
        """Return why one more connection from this address is too many, or ""."""
        config = self.node.config
        if self.per_address.get(host, 0) >= config.connections_per_address_max:
            return f"max.connections.per.ip={config.connections_per_address_max} are open"
        if len(self.sessions) >= config.connections_max:
            return f"max.connections={config.connections_max} are open"
        if len(self.sessions) >= self.connections_max or self.node.host.is_kept(fd):
            return f"{len(self.sessions)} are open, and {TOO_FEW}"
        return ""

    def forget(self, session: Session) -> None:
        """Record that a session has ended."""
        del self.sessions[session]
        self.resumable.pop(session, None)
        self.per_address[session.host] -= 1
        if not self.per_address[session.host]:
            del self.per_address[session.host]

    def count(self, held_bytes: int) -> None:
        """Count so many bytes more, or less, for a session."""
        self.held_bytes += held_bytes

    def may_read(self, session: Session) -> bool:
        """Return whether there is room for more of this one (I25).

        What all hold may wait for a commit, thus for replicas that fetch: if none were read then,
        the leader would be lost, and so would the next one. Sessions that hold little are read on.
        """
        if self.held_bytes < HELD_BYTES_MAX or session is self.exempt:
            return True
        return session.held_bytes <= LITTLE_BYTES

    def is_pressed(self) -> bool:
        """Return whether sessions hold so much that those that take nothing must be closed."""
        return self.held_bytes >= HELD_BYTES_MAX // 2

    def has_room_for_records(self) -> bool:
        """Return whether producers may go on: else they wait, as in Kafka, and are not refused."""
        if self.producers.has_room():
            return True
        self.waiting_for_room = True
        return False

    def resume(self, session: Session) -> None:
        """Resume a session that may hold requests which the kernel no longer reports."""
        self.resumable[session] = None

    def _share_out(self) -> None:
        """Let the oldest with a frame under way go on while all hold too much; then the others."""
        holding = (each for each in self.sessions if each.framed.splitter.held_bytes)
        self.exempt = next(holding, None) if self.held_bytes >= HELD_BYTES_MAX else None
        self._look_again()

    def _look_again(self) -> None:
        """Read on from paused sessions, where that is allowed now."""
        for session in [each for each in self.sessions if each.paused]:
            session.look_again()

    # --- what they ask ----------------------------------------------------------------------------

    def versions(self, version: int) -> ApiVersionsResponse:
        """Return the answer to ApiVersions: what is served, and the ``kraft.version`` in force."""
        core = self.node.core
        finalized = {KRAFT_VERSION: core.kraft_version}
        return api_versions_response(
            version, self.served, FEATURES, finalized, max(core.high_watermark - 1, -1)
        )

    def fetch(self, request: SessionRequest, message: PartitionFetch | FetchRequest) -> None:
        """Pass on a Fetch: a replica's to the core, a consumer's to what serves consumers."""
        if self.consumers.is_from_consumer(message, request.version):
            self.consumers.fetch(request, message)
            return
        decoded = translate.fetch_from_wire(message, self.node.partition)
        self.node.step(ev.RequestReceived(request, decoded))

    def produce(self, request: SessionRequest, message: PartitionProduce | ProduceRequest) -> None:
        """Pass on a Produce."""
        self.producers.produce(request, message)

    def ask(self, request: SessionRequest, message: WireMessage) -> None:
        """Pass on everything else: what only looks, and what operators want done."""
        api_key = request.api_key
        if api_key == ApiKey.METADATA:
            request.respond(metadata(self.node, message, request.version, request.listener))
        elif api_key == ApiKey.LIST_OFFSETS:
            self.consumers.offsets.ask(request, message)
        elif api_key == ApiKey.OFFSET_FOR_LEADER_EPOCH:
            request.respond(self.consumers.end_offsets_for_epochs(message))
        elif not admin_requests.take(self.node, request, message) and request.session is not None:
            self.node.tell("request_refused", host=request.session.host, api_key=int(api_key))
            request.session.close()

    # --- what the loop needs ----------------------------------------------------------------------

    def appends_waiting(self) -> bool:
        """Return whether producers over sockets have batches queued."""
        self._resume()
        return bool(self.producers.queued)

    def _resume(self) -> None:
        resumable, self.resumable = self.resumable, {}
        for session in resumable:
            if not session.closed:
                session.take()

    def goes_first(self) -> bool:
        """Return whether producers over sockets are served before those with rings: every other
        time.

        A side that always came first could take all the room.
        """
        self._first = not self._first and bool(self.producers.queued)
        return self._first

    def drain(self, log: Log, epoch: int, bytes_max: int) -> None:
        """Append what producers over sockets queued."""
        self.producers.drain(log, epoch, bytes_max)

    def refuse_appends(self, error: ErrorCode, leader_id: int) -> None:
        """Refuse what is queued: nothing of it was appended."""
        self.producers.refuse(error)

    def left_leadership(self, leader_id: int) -> None:
        """Answer what waits for its commit: its outcome is unknown; consumers go elsewhere."""
        self.producers.left_leadership()
        self.consumers.left_leadership()

    def commit(self, offset: int) -> None:
        """Answer the Produces below ``offset``."""
        self.producers.commit(offset)

    def tend(self, now_ms: int) -> None:
        """End what has timed out: parked consumers, producers, connections."""
        self._resume()
        self.producers.tend(now_ms)
        self.consumers.tend(now_ms)
        if self.waiting_for_room and self.producers.has_room():
            self.waiting_for_room = False
            self._look_again()
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for session in [session for session in self.sessions if session.is_overdue(now_ms)]:
            session.close()
        self._share_out()
        self.peers.tend(now_ms)
        for acceptor in self.acceptors:
            acceptor.tend(now_ms)

    def due_ms(self, default: int) -> int:
        """Return when ``tend`` has something to do."""
        if self.resumable or (self.waiting_for_room and self.producers.has_room()):
            return 0
        return min(self.producers.due_ms(default), self.consumers.due_ms(self.node.now_ms()))

    def close(self) -> None:
        """Accept no more connections, and end those there are."""
        for acceptor in self.acceptors:
            acceptor.close()
        self.acceptors.clear()
        for session in list(self.sessions):
            session.close()
