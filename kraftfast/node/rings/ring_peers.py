"""The other replicas on this host: links by rings, made again whenever a process comes back.

Of two replicas the one with the lower id connects; the other, when it starts, pokes it, so that
a restarted replica need not wait for a retry. The kernel tells when a process is gone (R2).
"""

from __future__ import annotations

import os
import select
import socket
from typing import Any

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.hello import Hello, encode_hello
from kraftfast.link.ring_link import SOCKET_NAME, RingLink, RingOffer, accept_rings, close_all
from kraftfast.link.unix_socket import is_refused
from kraftfast.node.rings.ring_peer import (
    KIND_ANSWER,
    KIND_FETCH,
    KIND_REQUEST,
    KIND_RESPONSE,
    RingPeer,
)
from kraftfast.node.translation import translate
from kraftfast.node.translation.diverging import check_cut
from kraftfast.node.translation.fetched_bytes import FetchedBytes
from kraftfast.node.translation.translate import API_OF
from kraftfast.node.translation.translate_membership import barrier_from_wire
from kraftfast.types import ReplicaKey, uuid_from_text, uuid_text
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.repeated import Repeated
from kraftfast.wire.versions import SERVED

OFFER_TIMEOUT_MS = 2000
RETRY_MS_MIN, RETRY_MS_MAX = 10, 500
MESSAGES_A_TURN = 64
WAITING_MAX = 64
DIRECTORIES_MAX = 256
KRAFT_VERSIONS = (limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)


class RingRequest:
    """A cold request that came over a ring, to be answered there."""

    __slots__ = ("peer", "api_key", "version", "correlation_id", "slice_bytes_max")

    # slice_bytes_max: of a snapshot at once: what streams carry beside it waits behind it.

    def __init__(self, peer: LocalPeer, header: frame.RequestHeader) -> None:
        self.peer, self.slice_bytes_max = peer, peer.ring_bytes // 16
        self.api_key, self.version, self.correlation_id = header[:3]

    def failed(self, error: Exception) -> None:
        """Drop the link for what answering this raised."""
        self.peer.failed(error)

    def reply(self, response: Any, records: Any = None) -> bool:
        """Send the answer; False if it finds no room. Lost like a packet, its asker times out."""
        if self.peer.node.links.get(self.peer.id) is not self.peer:
            return True  # no process is there now
        partition = self.peer.node.partition
        if self.api_key != ApiKey.FETCH:
            body = translate.response_to_wire(self.api_key, response, partition, self.version)
            return self.respond(body)
        fetched = translate.fetched_to_wire(response, partition, records, self.version)
        pieces = wire_fetch.encode_response(self.version, self.correlation_id, fetched)
        return bool(self.peer.send(KIND_RESPONSE, b"".join(pieces)[frame.LENGTH_BYTES :]))

    def respond(self, body: Any) -> bool:
        """Send a wire message as the answer, as :meth:`reply`."""
        if self.peer.node.links.get(self.peer.id) is not self.peer:
            return True
        said = self.peer.repeated
        data = said.encode_response(self.api_key, self.version, self.correlation_id, body)
        return bool(self.peer.send(KIND_RESPONSE, data[frame.LENGTH_BYTES :]))

    def answer_fetch(self, response: Any, log: Any, effect: Any) -> None:
        """Answer a Fetch that is none of a stream, with the bytes themselves."""
        records = None
        if effect.read_offset >= 0:
            bound = min(effect.max_bytes, self.peer.ring_bytes // 4)
            found = log.locate(effect.read_offset, bound, effect.read_end_offset)
            if found is not None:
                segment, position, length = found
                records = segment.file.view(position, position + length)
        self.reply(response, records)


class LocalPeer(RingPeer):  # type: ignore[misc]  # it is compiled
    """A replica on this host, as the node's effects and the core's events know it."""

    def __init__(self, node: Any, link: RingLink, key: ReplicaKey, log_path: str) -> None:
        host = node.host
        super().__init__(link, key, log_path, host.open_segment, host.inline_bytes_max)
        self.node, self.ring_bytes = node, host.local.ring_bytes
        self.stats = node.stats
        self.since_ms = node.now_ms()
        self.waiting: dict[int, int] = {}  # correlation id -> API of what we asked
        self.repeated = Repeated()

    def send_request(self, correlation: int, request: Any) -> bool:
        """Send a core request; False if it cannot go out now."""
        if type(request) is core.FetchRequest and request.stream:
            return bool(self.send_fetch(request))
        api_key = API_OF[type(request)]
        version, client_id = SERVED[api_key].last, f"raft-client-{self.node.config.node_id}"
        partition = self.node.partition
        if api_key == ApiKey.FETCH:
            fields = translate.fetch_to_wire(request, partition)
            data = wire_fetch.encode_request(version, correlation, client_id, fields)
        else:
            body = translate.request_to_wire(request, partition)
            data = self.repeated.encode_request(api_key, version, correlation, client_id, body)
        if not self.send(KIND_REQUEST, data[frame.LENGTH_BYTES :]):
            return False
        self.waiting[correlation] = api_key
        if len(self.waiting) > WAITING_MAX:  # those that were never answered (I25)
            del self.waiting[next(iter(self.waiting))]
        return True

    def answer_stream(self, effect: Any) -> None:
        """Push what the other side's stream is to be told; the stream ends with a failed link."""
        offset, log = effect.read_offset, self.node.log
        try:
            end_offset = self.push(
                effect.response, offset, effect.max_bytes, log, effect.read_end_offset
            )
        except Exception as error:
            self.failed(error)
            return
        if offset >= 0:  # queued: the core hears it before any Fetch that answers this push
            self.node.queue(ev.StreamAnswered(self.id, effect.response.stream, end_offset))

    def failed(self, error: Exception) -> None:
        """Drop this link alone for what it raised. Raise ``error`` if it is final."""
        self.node.failures.end(error, f"the link to replica {self.id}", self._break_off)

    def _break_off(self) -> None:
        self.broken: str | None = self.broken or "it failed"

    def reply(self, response: Any) -> None:
        """Refuse a Fetch of a stream, or tell it of divergence."""
        self.push(response, -1, 0, self.node.log)

    def handle(self) -> bool:
        """Handle everything that came over the ring, up to a bound; True if there was anything."""
        if self.broken is not None or self.node.stalled is not None:
            return False  # dropped by the next ``drop_broken``, or nothing can be written now
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
            if self.node.stalled is not None and self.node.stalled.payload is self:
                break  # the records of this answer are still to be copied
            self.release()
            kind = self.peek()
        self.publish_tail()
        return True

    def resume(self) -> None:
        """Go on behind the copy that waited for room."""
        self.release()
        self.publish_tail()

    def _handle_answer(self) -> None:
        response = self.answer()
        if response is not None:
            if response.diverging is not None:
                self._check_cut(response)
                if self.broken is not None:
                    return
            self.node.step(ev.ResponseReceived(self.id, 0, response, self))

    def _check_cut(self, response: Any) -> None:
        try:
            check_cut(self.node.core, self.node.log, response)
        except MalformedFrame as error:
            self.broken = str(error)

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
        elif header.api_key == ApiKey.INIT_PRODUCER_ID:
            self.node.producer_ids.serve(source, frame.decode_request_body(header, payload))
            return
        else:
            request = self._decode(header, payload)
        self.node.step(ev.RequestReceived(source, request))

    def _decode(self, header: frame.RequestHeader, payload: bytes) -> Any:
        """Decode a core request of any API that replicas ask each other, but Fetch."""
        decode = translate.REQUEST_FROM_WIRE.get(header.api_key)
        request = None
        if header.api_key == ApiKey.DESCRIBE_QUORUM:
            request = barrier_from_wire(self.repeated.decode_request(header, payload))
        elif decode is not None:
            message = self.repeated.decode_request(header, payload)
            request = decode(message, self.node.partition)
        if request is None:
            raise UnsupportedVersion(f"API {header.api_key} is not for replicas")
        return request

    def _handle_response(self, payload: bytes) -> None:
        correlation = frame.correlation_id(payload)
        api_key = self.waiting.pop(correlation, None)
        if api_key is None:
            return  # given up long ago
        version, partition = SERVED[api_key].last, self.node.partition
        if api_key == ApiKey.FETCH:
            _, fetched = wire_fetch.decode_response(version, payload)
            response = translate.fetched_from_wire(fetched, partition)
            if response.diverging is not None:
                check_cut(self.node.core, self.node.log, response)
            message: Any = FetchedBytes(fetched)
        else:
            message = self.repeated.decode_response(api_key, version, payload)
            response = translate.response_from_wire(api_key, message, partition)
            if self.node.producer_ids.took(correlation, response):
                return
        self.node.step(ev.ResponseReceived(self.id, correlation, response, message))


class RingPeers:
    """All replicas on this host: those named at its start, and those that report
    themselves later, which must be processes of the same user and cluster."""

    # node, loop: whose. directories: peer id -> its directory. offers: peer id -> (offer,
    # until ms).
    # retry: peer id -> [next attempt ms, pause ms]. due_ms: when ``tend`` is due, -1 for never.
    # dying: peer id -> pidfd of the process behind a link that broke while it lived.
    # local: processes of this host.

    def __init__(self, node: Any, loop: Any, peer_type: type[LocalPeer] = LocalPeer) -> None:
        self.node, self.loop, self.local, self.peer_type = node, loop, node.host.local, peer_type
        config = node.config
        self.directories = {
            voter.id: voter.directory
            for voter in (*config.voters, *config.neighbours)
            if voter.directory and voter.id != config.node_id
        }
        self.peers: list[LocalPeer] = []
        self.offers: dict[int, tuple[RingOffer, int]] = {}
        self.retry: dict[int, list[int]] = {
            id: [0, RETRY_MS_MIN] for id in self.directories if id > config.node_id
        }
        self.dying: dict[int, int] = {}
        self.due_ms = -1

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
        """Tell the replicas that are to connect to us that we are here."""
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
        connected: socket.socket = self.local.connect(path, 0)
        return connected

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
        """Connect where it is our turn; sets ``due_ms``."""
        for peer_id, (offer, until_ms) in list(self.offers.items()):
            if now_ms >= until_ms:
                self._give_up_offer(peer_id, offer)
        for peer_id, retry in self.retry.items():
            if peer_id in self.node.links or peer_id in self.offers:
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
            if peer_id not in self.node.links and peer_id not in self.offers
        ]
        self.due_ms = min(due, default=-1)

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
        self._set_due()

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
        """Learn where a replica of ours lives, if that is news; or return why it cannot be one."""
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
        if peer_id in self.node.links:
            self._detach(self.node.links[peer_id])
        self._forget_dying(peer_id)
        key = ReplicaKey(peer_id, uuid_from_text(link.hello.directory_id))
        peer = self.peer_type(self.node, link, key, link.hello.log)
        self.peers.append(peer)
        self.node.links[peer_id] = peer
        self.node.idle.watch(link.inbox)
        events = select.EPOLLIN | select.EPOLLRDHUP
        self.loop.watch(link.sock.fileno(), events, lambda _: self._broken(peer))
        self.loop.watch(link.pidfd, select.EPOLLIN, lambda _: self._ended(peer))
        self.node.step(ev.LinkUp(peer_id, True, True, key.directory_id))

    def _broken(self, peer: LocalPeer) -> None:
        """Note that the connection ended: the process is going, or has dropped us."""
        pidfd = self.local.dup(peer.link.pidfd)
        self._detach(peer)
        if self.local.has_ended(pidfd):
            self.local.close(pidfd)
            self.node.step(ev.PeerEnded(peer.id))
            return
        self.dying[peer.id] = pidfd
        self.loop.watch(pidfd, select.EPOLLIN, lambda _: self._gone(peer.id))

    def _gone(self, peer_id: int) -> None:
        """Note that the process behind a link that broke before has ended."""
        self._forget_dying(peer_id)
        self.node.step(ev.PeerEnded(peer_id))

    def _forget_dying(self, peer_id: int) -> None:
        pidfd = self.dying.pop(peer_id, -1)
        if pidfd >= 0:
            self.loop.unwatch(pidfd)
            self.local.close(pidfd)

    def _ended(self, peer: LocalPeer) -> None:
        self._detach(peer)
        self.node.step(ev.PeerEnded(peer.id))

    def _detach(self, peer: LocalPeer) -> None:
        self.peers.remove(peer)
        del self.node.links[peer.id]
        if self.node.stalled is not None and self.node.stalled.payload is peer:
            self.node.drop_stalled()
        self.node.idle.unwatch(peer.link.inbox)
        self.loop.unwatch(peer.link.sock.fileno())
        self.loop.unwatch(peer.link.pidfd)
        peer.close()
        if peer.id in self.retry and self.node.now_ms() - peer.since_ms > RETRY_MS_MAX:
            self.retry[peer.id] = [0, RETRY_MS_MIN]  # it stood: at once; else the pauses grow on
        self._set_due()
        self.node.step(ev.LinkDown(peer.id))

    def handle(self) -> bool:
        """Handle everything that came over the rings; True if there was anything."""
        worked = False
        for peer in self.peers:
            try:
                worked |= peer.handle()
            except Exception as error:
                peer.failed(error)
        return worked

    def drop_broken(self) -> None:
        """Let go of links whose other side broke the rules."""
        for peer in list(self.peers):
            if not peer.intact():
                self.node.tell("peer_dropped", peer_id=peer.id, why=peer.broken)
                self._detach(peer)
