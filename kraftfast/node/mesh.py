"""The other replicas on this host: links by rings, made again whenever a process comes back.

Of two replicas the one with the lower id connects; the other, when it starts, pokes it, so that
a restarted replica need not wait for a retry. The kernel tells when a process is gone (R2).
"""

from __future__ import annotations

import os
import select
import socket
from typing import Any

import msgspec

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.memory_file import receive_with_fds, send_with_fds
from kraftfast.link.ring_link import (
    HELLO_BYTES_MAX,
    SOCKET_NAME,
    RingLink,
    RingOffer,
    accept_rings,
    close_all,
)
from kraftfast.link.unix_socket import connect, open_pidfd
from kraftfast.node import translate
from kraftfast.node.fetched_bytes import FetchedBytes
from kraftfast.node.ring_peer import (
    KIND_ANSWER,
    KIND_FETCH,
    KIND_REQUEST,
    KIND_RESPONSE,
    RingPeer,
)
from kraftfast.node.translate import API_OF
from kraftfast.types import ReplicaKey, uuid_from_text, uuid_text
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.versions import SERVED

RING_BYTES = 4 * 1024 * 1024
OFFER_TIMEOUT_MS = 2000
RETRY_MS_MIN, RETRY_MS_MAX = 10, 500
MESSAGES_A_TURN = 64

class RingRequest:
    """A cold request that came over a ring, to be answered there."""

    __slots__ = ("peer", "api_key", "version", "correlation_id")

    def __init__(self, peer: MeshPeer, header: frame.RequestHeader) -> None:
        self.peer = peer
        self.api_key, self.version, self.correlation_id = header[:3]

    def reply(self, response: Any, records: Any = None) -> None:
        """Send the answer; one that finds no room is lost like a packet, its asker times out."""
        partition = self.peer.node.partition
        if self.api_key == ApiKey.FETCH:
            fetched = translate.fetched_to_wire(response, partition, records, self.version)
            pieces = wire_fetch.encode_response(self.version, self.correlation_id, fetched)
            data = b"".join(pieces)
        else:
            body = translate.response_to_wire(self.api_key, response, partition)
            data = frame.encode_response(self.api_key, self.version, self.correlation_id, body)
        self.peer.send(KIND_RESPONSE, data[frame.LENGTH_BYTES :])

    def answer_fetch(self, response: Any, log: Any, effect: Any) -> None:
        """Answer a Fetch that is none of a stream, with the bytes themselves."""
        records = None
        if effect.read_offset >= 0:
            bound = min(effect.max_bytes, RING_BYTES // 4)
            found = log.locate(effect.read_offset, bound, effect.read_end_offset)
            if found is not None:
                segment, position, length = found
                records = segment.file.view(position, position + length)
        self.reply(response, records)


class MeshPeer(RingPeer):
    """A replica on this host, as the node's effects and the core's events know it."""

    def __init__(self, node: Any, link: RingLink, key: ReplicaKey, log_path: str) -> None:
        super().__init__(link, key, log_path)
        self.node = node
        self.waiting: dict[int, int] = {}  # correlation id -> API of what we asked

    def send_request(self, correlation: int, request: Any) -> bool:
        """Send a core request; False if it cannot go out now."""
        if type(request) is core.FetchRequest and request.stream:
            return self.send_fetch(request)
        api_key = API_OF[type(request)]
        version, client_id = SERVED[api_key].last, f"raft-client-{self.node.config.node_id}"
        partition = self.node.partition
        if api_key == ApiKey.FETCH:
            fields = translate.fetch_to_wire(request, partition)
            data = wire_fetch.encode_request(version, correlation, client_id, fields)
        else:
            body = translate.request_to_wire(request, partition)
            data = frame.encode_request(api_key, version, correlation, client_id, body)
        if not self.send(KIND_REQUEST, data[frame.LENGTH_BYTES :]):
            return False
        self.waiting[correlation] = api_key
        return True

    def reply(self, response: Any) -> None:
        """Refuse a Fetch of a stream, or tell it of divergence."""
        self.push(response, -1, 0, self.node.log)

    def handle(self) -> bool:
        """Everything that came over the ring, up to a bound; True if there was anything."""
        kind = self.peek()
        if not kind:
            return False
        for _ in range(MESSAGES_A_TURN):
            if kind <= 0 or self.node.stalled is not None:
                break
            if kind == KIND_FETCH:
                request = self.fetch()
                if request is not None:
                    self.node.step(ev.RequestReceived(self, request))
            elif kind == KIND_ANSWER:
                self._handle_answer()
            else:
                self._handle_cold(kind)
            if self.broken is not None:
                break
            if self.node.stalled is not None and self.node.stalled[0] is self:
                break  # the records of this answer are still to be copied
            self.release()
            kind = self.peek()
        self.publish_tail()
        return True

    def resume(self) -> None:
        """The copy that waited for room is done: go on behind it."""
        self.release()
        self.publish_tail()

    def _handle_answer(self) -> None:
        response = self.answer()
        if response is not None:
            self.node.at_hand = self
            self.node.step(ev.ResponseReceived(self.id, 0, response))

    def _handle_cold(self, kind: int) -> None:
        payload = self.payload()
        try:
            if kind == KIND_REQUEST:
                self._handle_request(payload)
            elif kind == KIND_RESPONSE:
                self._handle_response(payload)
        except (MalformedFrame, UnsupportedVersion) as error:
            self.broken = str(error)

    def _handle_request(self, payload: bytes) -> None:
        header = frame.decode_request_header(payload)
        source = RingRequest(self, header)
        partition = self.node.partition
        if header.api_key == ApiKey.FETCH:
            message = wire_fetch.decode_request(header.version, payload, header.body_start)
            request = translate.fetch_from_wire(message, partition)
        else:
            decode = translate.REQUEST_FROM_WIRE.get(header.api_key)
            if decode is None:
                raise UnsupportedVersion(f"API {header.api_key} is not for replicas")
            request = decode(frame.decode_request_body(header, payload), partition)
        self.node.step(ev.RequestReceived(source, request))

    def _handle_response(self, payload: bytes) -> None:
        correlation = frame.correlation_id(payload)
        api_key = self.waiting.pop(correlation, None)
        if api_key is None:
            raise MalformedFrame(f"an answer to nothing that was asked ({correlation})")
        version, partition = SERVED[api_key].last, self.node.partition
        if api_key == ApiKey.FETCH:
            _, message = wire_fetch.decode_response(version, payload)
            response = translate.fetched_from_wire(message, partition)
            self.node.at_hand = FetchedBytes(message)
        else:
            _, message = frame.decode_response(api_key, version, payload)
            response = translate.response_from_wire(api_key, message, partition)
        self.node.step(ev.ResponseReceived(self.id, correlation, response))


class Mesh:
    """All replicas on this host."""

    # node, loop: whose. directories: peer id -> its directory. offers: peer id -> (offer, until ms).
    # retry_ms: peer id -> (next attempt, pause). dying: pidfd -> peer id of a link that broke.

    def __init__(self, node: Any, loop: Any) -> None:
        self.node, self.loop = node, loop
        config = node.config
        self.directories = {
            voter.id: voter.directory for voter in config.voters if voter.directory and voter.id != config.node_id
        }
        self.peers: list[MeshPeer] = []
        self.offers: dict[int, tuple[RingOffer, int]] = {}
        self.retry: dict[int, list[int]] = {id: [0, RETRY_MS_MIN] for id in self.directories}

    def hello(self, kind: str) -> dict[str, Any]:
        """What this replica says of itself."""
        node = self.node
        return {
            "kind": kind,
            "node_id": node.config.node_id,
            "directory_id": uuid_text(node.key.directory_id),
            "cluster_id": node.cluster_id,
            "durability": node.durability,
            "log": node.directory.log_path,
        }

    def start(self) -> None:
        """Tell those who are to connect to us that we are here."""
        for peer_id in self.directories:
            if peer_id < self.node.config.node_id:
                self._poke(peer_id)
        self.tend(self.node.now_ms())

    def _poke(self, peer_id: int) -> None:
        try:
            sock = connect(os.path.join(self.directories[peer_id], SOCKET_NAME), 0.2)
            with sock:
                send_with_fds(sock, msgspec.json.encode({"kind": "poke", "node_id": self.node.config.node_id}), [])
        except (PeerGone, OSError):
            pass

    def poked(self, peer_id: Any) -> None:
        """A replica has started: connect to it at once."""
        if peer_id in self.retry:
            self.retry[peer_id] = [0, RETRY_MS_MIN]
            self.tend(self.node.now_ms())

    def tend(self, now_ms: int) -> int:
        """Connect where it is our turn; returns when to look again (ms), or -1."""
        due = -1
        for peer_id, (offer, until_ms) in list(self.offers.items()):
            if now_ms >= until_ms:
                self._give_up_offer(peer_id, offer)
        for peer_id, retry in self.retry.items():
            if peer_id < self.node.config.node_id or peer_id in self.node.links or peer_id in self.offers:
                continue
            if now_ms >= retry[0]:
                retry[0], retry[1] = now_ms + retry[1], min(retry[1] * 2, RETRY_MS_MAX)
                self._offer(peer_id, now_ms)
            due = retry[0] if due < 0 else min(due, retry[0])
        return due

    def _offer(self, peer_id: int, now_ms: int) -> None:
        try:
            sock = connect(os.path.join(self.directories[peer_id], SOCKET_NAME), 0.2)
        except PeerGone:
            self.node.step(ev.PeerEnded(peer_id))  # refused: no process listens there
            return
        try:
            sock.setblocking(False)
            offer = RingOffer(sock, self.node.doorbell, self.hello("peer"), RING_BYTES, RING_BYTES)
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
            data, fds = receive_with_fds(sock, HELLO_BYTES_MAX)
            link = offer.finish(data, fds)
        except (PeerGone, MalformedFrame, OSError):
            sock.close()
            return
        self._attach(peer_id, link)

    def _give_up_offer(self, peer_id: int, offer: RingOffer) -> None:
        self.loop.unwatch(offer.sock.fileno())
        offer.files.close()
        offer.sock.close()
        del self.offers[peer_id]

    def accept(self, sock: socket.socket, offer: dict[str, Any], fds: list[int]) -> None:
        """A replica with a lower id offers rings. Raises PeerGone if it is not one of ours."""
        peer_id = offer.get("node_id")
        answer = self.hello("peer")
        if peer_id not in self.directories:
            refusal = f"replica {peer_id} is no voter of this quorum"
        elif offer.get("cluster_id") != self.node.cluster_id:
            refusal = f"cluster id {offer.get('cluster_id')}, not {self.node.cluster_id}"
        elif offer.get("durability") != self.node.durability:
            refusal = f"durability {offer.get('durability')}, not {self.node.durability}"
        else:
            refusal = ""
        if refusal:
            close_all(fds)
            send_with_fds(sock, msgspec.json.encode({"error": refusal}), [])
            raise PeerGone(refusal)
        self._attach(peer_id, accept_rings(sock, self.node.doorbell, offer, fds, answer))

    def _attach(self, peer_id: int, link: RingLink) -> None:
        if peer_id in self.node.links:
            self._detach(self.node.links[peer_id])
        key = ReplicaKey(peer_id, uuid_from_text(link.hello["directory_id"]))
        peer = MeshPeer(self.node, link, key, link.hello["log"])
        self.peers.append(peer)
        self.node.links[peer_id] = peer
        self.node.idle.watch(link.inbox)
        link.sock.setblocking(False)
        self.loop.watch(link.sock.fileno(), select.EPOLLIN | select.EPOLLRDHUP, lambda _: self._broken(peer))
        self.loop.watch(link.pidfd, select.EPOLLIN, lambda _: self._ended(peer))
        self.retry[peer_id] = [0, RETRY_MS_MIN]
        self.node.step(ev.LinkUp(peer_id, streaming=True, pre_vote=True))

    def _broken(self, peer: MeshPeer) -> None:
        """The connection ended: the process is going, or has dropped us."""
        if peer not in self.peers:
            return
        pidfd = os.dup(peer.link.pidfd)
        self._detach(peer)
        if _readable(pidfd):
            os.close(pidfd)
            self.node.step(ev.PeerEnded(peer.id))
            return

        def gone(_events: int) -> None:
            self.loop.unwatch(pidfd)
            os.close(pidfd)
            if peer.id not in self.node.links:
                self.node.step(ev.PeerEnded(peer.id))

        self.loop.watch(pidfd, select.EPOLLIN, gone)

    def _ended(self, peer: MeshPeer) -> None:
        if peer in self.peers:
            self._detach(peer)
            self.node.step(ev.PeerEnded(peer.id))

    def _detach(self, peer: MeshPeer) -> None:
        self.peers.remove(peer)
        del self.node.links[peer.id]
        if self.node.stalled is not None and self.node.stalled[0] is peer:
            self.node.drop_stalled()
        self.node.idle.unwatch(peer.link.inbox)
        self.loop.unwatch(peer.link.sock.fileno())
        self.loop.unwatch(peer.link.pidfd)
        peer.close()
        self.node.step(ev.LinkDown(peer.id))

    def handle(self) -> bool:
        """Everything that came over the rings; True if there was anything."""
        worked = False
        for peer in self.peers:
            worked |= peer.handle()
        for peer in [peer for peer in self.peers if peer.broken is not None or not peer.link.alive()]:
            self.node.log_line(f"dropping the link to replica {peer.id}: {peer.broken}")
            self._detach(peer)
        return worked


def _readable(fd: int) -> bool:
    poll = select.poll()
    poll.register(fd, select.POLLIN)
    return bool(poll.poll(0))
