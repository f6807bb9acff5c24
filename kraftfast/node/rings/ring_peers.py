"""The other replicas on this host: links by rings, made again whenever a process comes back.

Of two replicas the one with the lower id connects; the other, when it starts, pokes it, so that
a restarted replica need not wait for a retry. The kernel tells when a process is gone (R2).
"""

from __future__ import annotations

import os
import select
import socket
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.errors import PeerGone, UnsupportedVersion
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.link.ring_link import SOCKET_NAME, RingLink, RingOffer, accept_rings, close_all
from kraftfast.link.unix_socket import is_refused
from kraftfast.node.rings.ring_peer import RingPeer
from kraftfast.types import ReplicaKey, uuid_from_text, uuid_text

if TYPE_CHECKING:
    from kraftfast.core.effects import RoleChanged
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node

OFFER_TIMEOUT_MS = 2000
RETRY_MS_MIN, RETRY_MS_MAX = 10, 500
DIRECTORIES_MAX = 256
KRAFT_VERSIONS = (limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)


class RingPeers:
    """All replicas on this host, each a ``RingPeer``: those named at its start, and those that
    report themselves later, which must be processes of the same user and cluster."""

    # node, loop: whose. directories: peer id -> its directory. offers: peer id -> (offer,
    # until ms).
    # retry: peer id -> [next attempt ms, pause ms]. due_ms: when ``tend`` is due, -1 for never.
    # dying: peer id -> pidfd of a process that closed its link and still lives.
    # local: processes of this host.

    def __init__(self, node: Node, loop: Loop, peer_type: type[RingPeer] = RingPeer) -> None:
        self.node, self.loop, self.local, self.peer_type = node, loop, node.host.local, peer_type
        config = node.config
        self.directories = {
            voter.id: voter.directory
            for voter in (*config.voters, *config.neighbours)
            if voter.directory and voter.id != config.node_id
        }
        self.peers: list[RingPeer] = []
        self.offers: dict[int, tuple[RingOffer, int]] = {}
        self.retry: dict[int, list[int]] = {
            id: [0, RETRY_MS_MIN] for id in self.directories if id > config.node_id
        }
        self.dying: dict[int, int] = {}
        self.due_ms = -1
        node.on_role.append(self._role_changed)

    def hello(self, kind: str) -> Hello:
        """Return what this replica says of itself."""
        node = self.node
        return Hello(
            kind=kind,
            node_id=node.config.node_id,
            directory_id=uuid_text(node.key.directory_id),
            cluster_id=node.cluster_id,
            durability=node.durability,
            log=node.directory.log_path,
            directory=node.config.directory,
            endpoints=node.config.endpoints,
            kraft_versions=KRAFT_VERSIONS,
        )

    def start(self) -> None:
        """Tell the replicas of lower id, which connect to this one, that it runs; offer rings."""
        for peer_id in self.directories:
            if peer_id < self.node.config.node_id:
                self._poke(peer_id)
        self.tend(self.node.now_ms())

    def _poke(self, peer_id: int) -> None:
        try:
            with self._connect(peer_id) as sock:
                self.local.send(sock, encode_hello(self.hello("poke")), [])
        except (PeerGone, OSError):
            pass  # it will find us

    def _connect(self, peer_id: int) -> socket.socket:
        path = os.path.join(self.directories[peer_id], SOCKET_NAME)
        return self.local.connect(path, 0)

    def poked(self, hello: Hello) -> None:
        """Connect at once to a replica that has started. Raises PeerGone if it is none of ours."""
        peer_id = hello.node_id
        refusal = self._refusal(hello, peer_id)
        if refusal:
            raise PeerGone(refusal)
        if peer_id in self.retry:
            self.retry[peer_id] = [0, RETRY_MS_MIN]
            self.tend(self.node.now_ms())

    def tend(self, now_ms: int) -> None:
        """Offer rings to each peer for which an attempt is due; set ``due_ms``."""
        for peer_id, (offer, until_ms) in list(self.offers.items()):
            if now_ms >= until_ms:
                self._give_up_offer(peer_id, offer)
        for peer_id, retry in self.retry.items():
            if self._has_rings(peer_id) or peer_id in self.offers:
                continue
            if now_ms >= retry[0]:
                retry[0], retry[1] = now_ms + retry[1], min(retry[1] * 2, RETRY_MS_MAX)
                self._offer(peer_id, now_ms)
        self._set_due()

    def _set_due(self) -> None:
        due = [until_ms for _, until_ms in self.offers.values()]
        due += [
            retry[0]
            for peer_id, retry in self.retry.items()
            if not self._has_rings(peer_id) and peer_id not in self.offers
        ]
        self.due_ms = min(due, default=-1)

    def _has_rings(self, peer_id: int) -> bool:
        return isinstance(self.node.links.get(peer_id), RingPeer)

    def _offer(self, peer_id: int, now_ms: int) -> None:
        try:
            sock = self._connect(peer_id)
        except PeerGone as error:
            if is_refused(error):
                self.node.step(ev.PeerEnded(peer_id))  # no process listens there
            return
        try:
            room, local = self.local.ring_bytes, self.local
            offer = RingOffer(sock, self.node.doorbell, self.hello("peer"), room, room, local)
        except PeerGone:
            sock.close()
            return
        self.offers[peer_id] = (offer, now_ms + OFFER_TIMEOUT_MS)
        self.loop.watch(sock.fileno(), select.EPOLLIN, lambda _events: self._answered(peer_id))

    def _answered(self, peer_id: int) -> None:
        offer, _ = self.offers.pop(peer_id)
        sock = offer.sock
        self.loop.unwatch(sock.fileno())
        try:
            answer, fds = offer.receive()
            refusal = answer.error or self._refusal(answer, peer_id)
            if refusal:
                close_all(fds, self.local)
                raise PeerGone(refusal)
            self._attach(peer_id, offer.finish(answer, fds))
        except Exception as error:
            self.node.failures.end(error, f"rings with replica {peer_id}", offer.abandon)
            if isinstance(error, UnsupportedVersion):
                self.forget(peer_id)
        self._set_due()

    def forget(self, peer_id: int) -> None:
        """Go on over sockets to a replica with other layouts, until it starts again and pokes."""
        if not self._has_rings(peer_id):
            self.directories.pop(peer_id, None)
            self.retry.pop(peer_id, None)
            if self.node.sockets is not None:
                self.node.sockets.peers.settle()

    def _give_up_offer(self, peer_id: int, offer: RingOffer) -> None:
        self.loop.unwatch(offer.sock.fileno())
        offer.abandon()
        del self.offers[peer_id]

    def _refusal(self, hello: Hello, peer_id: int) -> str:
        """Return why a process that says this is not the replica ``peer_id`` of this quorum."""
        node = self.node
        if hello.node_id != peer_id:
            return f"replica {hello.node_id} is not the one that was asked"
        if hello.cluster_id != node.cluster_id:
            return f"cluster id {hello.cluster_id}, not {node.cluster_id}"
        if hello.durability != node.durability:
            return f"durability {hello.durability}, not {node.durability}"
        try:
            uuid_from_text(hello.directory_id)
        except ValueError as error:
            return str(error)
        return self._learn(hello)

    def _learn(self, hello: Hello) -> str:
        """Learn the directory of a replica of this quorum; return why it cannot be one, or ""."""
        peer_id, place = hello.node_id, hello.directory
        own_id = self.node.config.node_id
        if place and self.directories.get(peer_id) != place and peer_id != own_id:
            if not os.path.isabs(place) or not 0 <= peer_id < 2**31:
                return f"replica {peer_id} in {place}"
            if peer_id not in self.directories and len(self.directories) >= DIRECTORIES_MAX:
                return f"{DIRECTORIES_MAX} replicas are known on this host: no more fit (I25)"
            self.directories[peer_id] = place
            if peer_id > own_id:
                self.retry[peer_id] = [0, RETRY_MS_MIN]
        if peer_id not in self.directories:
            return f"replica {peer_id} does not say where it lives"
        return ""

    def accept(self, sock: socket.socket, offer: Hello, fds: list[int]) -> None:
        """Accept rings that a replica of ours offers; takes over ``fds``, or raises PeerGone."""
        refusal = self._refusal(offer, offer.node_id)
        if refusal:
            close_all(fds, self.local)
            self.local.send(sock, encode_hello(Hello(error=refusal)), [])
            raise PeerGone(refusal)
        answer = self.hello("peer")
        link = accept_rings(sock, self.node.doorbell, offer, fds, answer, self.local)
        self._attach(offer.node_id, link)

    def _attach(self, peer_id: int, link: RingLink) -> None:
        if self.node.sockets is not None:
            self.node.sockets.peers.drop(peer_id)  # a ring is the better way
        former = self.node.links.get(peer_id)
        if former is not None:
            assert isinstance(former, RingPeer), "a socket to it was dropped"
            self._detach(former)
        self._forget_dying(peer_id)
        key = ReplicaKey(peer_id, uuid_from_text(link.hello.directory_id))
        peer = self.peer_type(self.node, link, key, link.hello.log)
        self.peers.append(peer)
        self.node.links[peer_id] = peer
        self.node.idle.watch(link.inbox)
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(link.sock.fileno(), events, lambda _: self._hung_up(peer))
        self.loop.watch(link.pidfd, select.EPOLLIN, lambda _: self._process_ended(peer))
        self.node.step(ev.LinkUp(peer_id, True, True, key.directory_id))

    def _hung_up(self, peer: RingPeer) -> None:
        """Drop the link whose socket was closed; the process is ending, or it dropped the link."""
        pidfd = self._kept_pidfd(peer.link)
        self._detach(peer)
        if self.local.has_ended(pidfd):
            self.local.close(pidfd)
            self.node.step(ev.PeerEnded(peer.id))
            return
        self.dying[peer.id] = pidfd
        self.loop.watch(pidfd, select.EPOLLIN, lambda _: self._dying_ended(peer.id))

    def _kept_pidfd(self, link: RingLink) -> int:
        """Return a pidfd that outlives the link: its own where none is left for another."""
        try:
            return self.local.dup(link.pidfd)
        except OSError:  # of which a replica does not end
            pidfd, link.pidfd = link.pidfd, -1
            self.loop.unwatch(pidfd)
            return pidfd

    def _dying_ended(self, peer_id: int) -> None:
        """Report the end of a process whose link was dropped before."""
        self._forget_dying(peer_id)
        self.node.step(ev.PeerEnded(peer_id))

    def _forget_dying(self, peer_id: int) -> None:
        pidfd = self.dying.pop(peer_id, -1)
        if pidfd >= 0:
            self.loop.unwatch(pidfd)
            self.local.close(pidfd)

    def _process_ended(self, peer: RingPeer) -> None:
        self._detach(peer)
        self.node.step(ev.PeerEnded(peer.id))

    def _detach(self, peer: RingPeer) -> None:
        self.peers.remove(peer)
        del self.node.links[peer.id]
        if self.node.stalled is not None and self.node.stalled.payload is peer:
            self.node.drop_stalled()
        self.node.idle.unwatch(peer.link.inbox)
        self.loop.unwatch(peer.link.sock.fileno())
        if peer.link.pidfd >= 0:
            self.loop.unwatch(peer.link.pidfd)
        peer.close()
        if peer.id in self.retry and self.node.now_ms() - peer.since_ms > RETRY_MS_MAX:
            self.retry[peer.id] = [0, RETRY_MS_MIN]  # it stood: at once; else the pauses grow on
        self._set_due()
        self.node.step(ev.LinkDown(peer.id))

    def _role_changed(self, effect: RoleChanged) -> None:
        """Unmap the segments of replicas that are not the leader."""
        for peer in self.peers:
            if peer.id != effect.leader_id:
                peer.forget_maps()

    def drop_broken(self) -> None:
        """Drop the links whose other side broke the rules of the ring."""
        for peer in list(self.peers):
            if not peer.intact():
                self.node.tell("peer_dropped", peer_id=peer.id, why=peer.broken)
                self._detach(peer)
