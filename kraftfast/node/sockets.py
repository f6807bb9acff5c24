"""The TCP door of a replica: listeners, sessions, and connections to the other replicas."""

from __future__ import annotations

import select
import socket
from typing import Any

from kraftfast.core import events as ev
from kraftfast.errors import StorageError
from kraftfast.link.socket_link import listen
from kraftfast.node import translate
from kraftfast.node.data_plane import DataPlane
from kraftfast.node.quorum_plane import describe_cluster, describe_quorum, metadata
from kraftfast.node.session import Session, SessionRequest
from kraftfast.node.socket_peer import SocketPeer
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED, Versions

CONNECTIONS_MAX = 1000
CONNECTIONS_PER_ADDRESS_MAX = 250
ACCEPTS_A_TURN = 64
KRAFT_VERSION = {"kraft.version": Versions(0, 1)}
SERVED_HERE = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.API_VERSIONS,
        ApiKey.VOTE,
        ApiKey.BEGIN_QUORUM_EPOCH,
        ApiKey.END_QUORUM_EPOCH,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.DESCRIBE_CLUSTER,
    }
)


class Sockets:
    """Everything of a replica that goes over TCP."""

    # node, loop: whose. data: producers and consumers over sockets.
    # listeners: what is bound. sessions: everyone who came in. per_address: how many, by address.
    # peers: replicas and bootstrap servers that are reached over sockets, by id.

    def __init__(self, node: Any, loop: Any) -> None:
        self.node, self.loop = node, loop
        self.served = {key: versions for key, versions in SERVED.items() if key in SERVED_HERE}
        self.features = KRAFT_VERSION
        self.listeners: list[socket.socket] = []
        self.sessions: set[Session] = set()
        self.per_address: dict[str, int] = {}
        self.peers: dict[int, SocketPeer] = {}
        self.data = DataPlane(node)
        self._swept_ms = 0

    def open(self) -> None:
        """Bind every listener. Raises StorageError if an address is taken."""
        for listener in self.node.config.listeners:
            try:
                sock = listen(listener.host, listener.port)
            except Exception as error:
                raise StorageError(str(error)) from None
            self.listeners.append(sock)
            self.loop.watch(sock.fileno(), select.EPOLLIN, lambda _events, sock=sock: self._accept(sock))

    def ports(self) -> dict[str, int]:
        """The port of each listener by its name (asked for as 0: chosen by the kernel)."""
        names = [listener.name for listener in self.node.config.listeners]
        return {name: sock.getsockname()[1] for name, sock in zip(names, self.listeners)}

    def start(self) -> None:
        """Make the other voters known, and the bootstrap servers."""
        config = self.node.config
        for voter in config.voters:
            if voter.id != config.node_id and voter.host and not voter.directory:
                self._add_peer(voter.id, voter.host, voter.port)
        for index, (host, port) in enumerate(config.bootstrap_servers):
            self._add_peer(-2 - index, host, port)
        self.node.on_role.append(self._role_changed)
        self.node.on_commit.append(self.data.committed)

    def _add_peer(self, peer_id: int, host: str, port: int) -> None:
        peer = SocketPeer(self.node, self.loop, peer_id, host, port)
        self.peers[peer_id] = self.node.links[peer_id] = peer

    def _role_changed(self, effect: Any) -> None:
        """A leader that is not in the voter set, or has moved, is where its endpoints say."""
        known = self.peers.get(effect.leader_id)
        for name, host, port in effect.leader_endpoints:
            if name != self.node.config.controller_listener or effect.leader_id == self.node.config.node_id:
                continue
            if effect.leader_id in self.node.links and known is None:
                return  # over a ring
            if known is not None and (known.host, known.port) == (host, port):
                return
            if known is not None:
                known.close()
            self._add_peer(effect.leader_id, host, port)
            return

    # --- who comes in -----------------------------------------------------------------------------

    def _accept(self, listener: socket.socket) -> None:
        for _ in range(ACCEPTS_A_TURN):
            try:
                sock, address = listener.accept()
            except OSError:
                return
            host = address[0]
            if len(self.sessions) >= CONNECTIONS_MAX or self.per_address.get(host, 0) >= CONNECTIONS_PER_ADDRESS_MAX:
                sock.close()
                continue
            self.per_address[host] = self.per_address.get(host, 0) + 1
            self.sessions.add(Session(self, sock, f"{host}:{address[1]}", self.node.now_ms()))

    def forget(self, session: Session) -> None:
        """A session has ended."""
        self.sessions.discard(session)
        host = session.peer.rpartition(":")[0]
        self.per_address[host] -= 1
        if not self.per_address[host]:
            del self.per_address[host]

    # --- what they ask ----------------------------------------------------------------------------

    def fetch(self, request: SessionRequest, message: Any) -> None:
        """A Fetch: of a replica for the core, of a consumer for the data plane."""
        if self.data.is_consumer(message, request.version):
            self.data.fetch(request, message)
            return
        decoded = translate.fetch_from_wire(message, self.node.partition)
        self.node.step(ev.RequestReceived(request, decoded))

    def produce(self, request: SessionRequest, message: Any) -> None:
        """A Produce."""
        self.data.produce(request, message)

    def ask(self, request: SessionRequest, message: Any) -> None:
        """Everything that only looks."""
        api_key = request.api_key
        if api_key == ApiKey.METADATA:
            request.respond(metadata(self.node, message, request.version))
        elif api_key == ApiKey.LIST_OFFSETS:
            request.respond(self.data.list_offsets(message))
        elif api_key == ApiKey.DESCRIBE_QUORUM:
            request.respond(describe_quorum(self.node, message))
        elif api_key == ApiKey.DESCRIBE_CLUSTER:
            request.respond(describe_cluster(self.node, message))
        elif request.session is not None:
            self.node.log_line(f"{request.session.peer} asks for API {api_key}, not served -> closed")
            request.session.close()

    # --- what the loop needs ----------------------------------------------------------------------

    def appends_waiting(self) -> bool:
        """Whether producers over sockets have batches queued."""
        return bool(self.data.queued)

    def drain(self, log: Any, epoch: int, bytes_max: int) -> None:
        """Append what producers over sockets queued."""
        self.data.drain(log, epoch, bytes_max)

    def refuse_appends(self, error: Any, leader_id: int) -> None:
        """Refuse what is queued: nothing of it was appended."""
        self.data.refuse(error, leader_id)

    def left_leadership(self, leader_id: int) -> None:
        """What waits for its commit has an unknown outcome now."""
        self.data.left_leadership(leader_id)

    def commit(self, offset: int) -> None:
        """Answer the Produces below ``offset``."""
        self.data.commit(offset)

    def tend(self, now_ms: int) -> None:
        """Timeouts: of parked consumers, of producers, of connections."""
        self.data.tend(now_ms)
        if now_ms - self._swept_ms >= 100:
            self._swept_ms = now_ms
            for session in [session for session in self.sessions if session.is_overdue(now_ms)]:
                session.close()
            for peer in self.peers.values():
                peer.tend(now_ms)

    def due_ms(self, default: int) -> int:
        """When ``tend`` has something to do."""
        return self.data.due_ms(default)

    def close(self) -> None:
        """Nobody comes in any more; everyone inside sees the end of its connection."""
        for sock in self.listeners:
            self.loop.unwatch(sock.fileno())
            sock.close()
        for session in list(self.sessions):
            session.close()
        self.listeners = []
