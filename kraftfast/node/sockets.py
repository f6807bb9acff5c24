"""The TCP door of a replica: listeners, sessions, and connections to the other replicas."""

from __future__ import annotations

import select
import socket
from typing import Any

from kraftfast.core import events as ev
from kraftfast.errors import PeerGone, StorageError
from kraftfast.link.socket_link import listen
from kraftfast.node import translate
from kraftfast.node.acceptor import Acceptor
from kraftfast.node.data_plane import DataPlane
from kraftfast.node.quorum_plane import describe_cluster, describe_quorum, metadata
from kraftfast.node.session import Session, SessionRequest
from kraftfast.node.socket_peer import SocketPeer
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED, Versions

CONNECTIONS_MAX = 1000
CONNECTIONS_PER_ADDRESS_MAX = 250
HELD_BYTES_MAX = 256 * 1024 * 1024
SWEEP_MS = 100
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

    # node, loop: whose. data: producers and consumers over sockets. acceptors: what is bound.
    # sessions: everyone who came in, oldest first. per_address: how many, by address.
    # held_bytes: requests and answers of all sessions (I25). exempt: who is read although that is
    # too much, so that somebody gets done. resumable: sessions with requests that were read already.
    # peers: replicas and bootstrap servers that are reached over sockets, by id.
    # told: the one peer that is only known from a message, None if there is none (I25).

    def __init__(self, node: Any, loop: Any) -> None:
        self.node, self.loop = node, loop
        self.served = {key: versions for key, versions in SERVED.items() if key in SERVED_HERE}
        self.features = KRAFT_VERSION
        self.acceptors: list[Acceptor] = []
        self.sessions: dict[Session, None] = {}
        self.per_address: dict[str, int] = {}
        self.held_bytes = 0
        self.exempt: Session | None = None
        self.resumable: dict[Session, None] = {}
        self.peers: dict[int, SocketPeer] = {}
        self.told: int | None = None
        self.data = DataPlane(node)
        self._swept_ms = 0

    def open(self) -> None:
        """Bind every listener. Raises StorageError if an address is taken."""
        for listener in self.node.config.listeners:
            try:
                sock = listen(listener.host, listener.port)
            except PeerGone as error:
                raise StorageError(str(error)) from None
            self.acceptors.append(Acceptor(self.loop, sock, self._accepted))

    def ports(self) -> dict[str, int]:
        """The port of each listener by its name (asked for as 0: chosen by the kernel)."""
        names = [listener.name for listener in self.node.config.listeners]
        return {name: each.sock.getsockname()[1] for name, each in zip(names, self.acceptors)}

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
        leader_id = effect.leader_id
        places = [
            (host, port)
            for name, host, port in effect.leader_endpoints
            if name == self.node.config.controller_listener
        ]
        known = self.peers.get(leader_id)
        if not places or leader_id == self.node.config.node_id:
            return
        if known is None and leader_id in self.node.links:
            return  # over a ring
        if known is not None and (known.host, known.port) == places[0]:
            return
        if known is not None:
            known.close()
        if self.told is not None and self.told != leader_id:
            self.peers.pop(self.told).close()
            del self.node.links[self.told]
            self.told = None
        if leader_id not in self.node.voters:
            self.told = leader_id
        self._add_peer(leader_id, *places[0])

    # --- who comes in -----------------------------------------------------------------------------

    def _accepted(self, sock: socket.socket, address: Any) -> None:
        host = address[0]
        if (
            len(self.sessions) >= CONNECTIONS_MAX
            or self.per_address.get(host, 0) >= CONNECTIONS_PER_ADDRESS_MAX
        ):
            sock.close()
            return
        try:
            session = Session(self, sock, host, self.node.now_ms())
        except OSError:  # reset before it was looked at
            sock.close()
            return
        self.per_address[host] = self.per_address.get(host, 0) + 1
        self.sessions[session] = None

    def forget(self, session: Session) -> None:
        """A session has ended."""
        del self.sessions[session]
        self.resumable.pop(session, None)
        self.per_address[session.host] -= 1
        if not self.per_address[session.host]:
            del self.per_address[session.host]

    def count(self, held_bytes: int) -> None:
        """A session holds so many bytes more, or less."""
        self.held_bytes += held_bytes

    def may_read(self, session: Session) -> bool:
        """Whether all sessions together leave room for more of this one (I25)."""
        return self.held_bytes < HELD_BYTES_MAX or session is self.exempt

    def resume(self, session: Session) -> None:
        """It was paused, and may have requests that the kernel does not tell of any more."""
        self.resumable[session] = None

    def _share_out(self) -> None:
        """While all hold too much, the oldest with a frame under way goes on; then all others."""
        holding = (each for each in self.sessions if each.framed.splitter.held_bytes)
        self.exempt = next(holding, None) if self.held_bytes >= HELD_BYTES_MAX else None
        for session in [each for each in self.sessions if each.paused]:
            session.look_again()

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
            request.respond(self.data.list_offsets(message, request.version))
        elif api_key == ApiKey.DESCRIBE_QUORUM:
            request.respond(describe_quorum(self.node, message, request.version))
        elif api_key == ApiKey.DESCRIBE_CLUSTER:
            request.respond(describe_cluster(self.node, message))
        elif request.session is not None:
            self.node.log_line(
                f"{request.session.host} asks for API {api_key}, not served -> closed"
            )
            request.session.close()

    # --- what the loop needs ----------------------------------------------------------------------

    def appends_waiting(self) -> bool:
        """Whether producers over sockets have batches queued."""
        self._resume()
        return bool(self.data.queued)

    def _resume(self) -> None:
        while self.resumable:
            session, _ = self.resumable.popitem()
            if not session.closed:
                session.take()

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
        self._resume()
        self.data.tend(now_ms)
        if now_ms - self._swept_ms < SWEEP_MS:
            return
        self._swept_ms = now_ms
        for session in [session for session in self.sessions if session.is_overdue(now_ms)]:
            session.close()
        self._share_out()
        for peer in self.peers.values():
            peer.tend(now_ms)
        for acceptor in self.acceptors:
            acceptor.tend(now_ms)

    def due_ms(self, default: int) -> int:
        """When ``tend`` has something to do."""
        if self.resumable:
            return 0
        return self.data.due_ms(default)

    def close(self) -> None:
        """Nobody comes in any more; everyone inside sees the end of its connection."""
        for acceptor in self.acceptors:
            acceptor.close()
        self.acceptors.clear()
        for session in list(self.sessions):
            session.close()
