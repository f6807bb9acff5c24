"""Another replica reached over a socket: requests to it and its answers.

On every new connection ApiVersions comes first; then the highest common version of each API is
used. A connection that ends is made again once, at once: if it is refused, or closed again before
ApiVersions is answered, the process counts as gone (``PeerEnded``). After that, a connection is
made when there is something to send.
"""

from __future__ import annotations

import os
import select
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import ErrorCode, MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.socket_link import FramedSocket
from kraftfast.node.translation.peer_frames import client_id_of, decode_response, encode_request
from kraftfast.node.translation.translate import API_OF
from kraftfast.types import address_text
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey, ApiVersionsRequest, InitProducerIdRequest
from kraftfast.wire.notation import Versions
from kraftfast.wire.repeated import Repeated
from kraftfast.wire.versions import (
    CLIENT_NAME,
    CLIENT_VERSION,
    VOTE_PRE_VOTE_VERSION,
    negotiate,
    offered_versions,
)

if TYPE_CHECKING:
    from kraftfast.core.messages import Request
    from kraftfast.node.loop import Loop
    from kraftfast.node.node import Node

RECONNECT_MS_MIN, RECONNECT_MS_MAX = 20, 500
CONNECT_TIMEOUT_MS = 2000
UNREACHED_MS = 10_000  # a replica that starts again is there by then
SILENCE_MS_MAX = 3000  # with a request unanswered: beyond its time-out and any parked Fetch
QUEUED_BYTES_MAX = 16 * 1024 * 1024
NOT_BEHIND_A_FETCH = (core.ReadBarrierRequest, InitProducerIdRequest)


class SocketPeer:
    """One replica behind one address. ``id`` is below -1 for a bootstrap server."""

    # host, port: where. framed: the connection, None while there is none.
    # ready: ApiVersions was answered; versions: what it said.
    # waiting: correlation id -> (API, version) of what was asked.
    # asked_ms: when the oldest of them was asked, or something came since. held: the requests that
    # wait for the connection. side_channel: for what must not wait behind a parked Fetch. probing:
    # the last connection ended, and this one is to tell whether the process lives. turn: which of
    # its addresses is tried. foreign: it said that it is of another cluster, which was reported.
    # retry_at_ms, pause_ms: when to connect again. missed_ms: when the first of the attempts that
    # failed since it was reached did; -1: none. unreached: that was reported.
    # repeated: what was last said over it.

    def __init__(self, node: Node, loop: Loop, peer_id: int, host: str, port: int) -> None:
        self.node, self.loop, self.id = node, loop, peer_id
        self.host, self.port = host, port
        self.framed: FramedSocket | None = None
        self.ready = False
        self.versions: dict[int, Versions] = {}
        self.waiting: dict[int, tuple[int, int]] = {}
        self.repeated = Repeated()
        self.held: list[tuple[int, Request | InitProducerIdRequest]] = []
        self.side_channel: SideChannel | None = None
        self.probing = self.foreign = self.unreached = False
        self.missed_ms = -1
        self.turn = 0
        self.connecting_until_ms = self.asked_ms = 0
        self.retry_at_ms, self.pause_ms = 0, RECONNECT_MS_MIN

    # --- what the node's effects need -------------------------------------------------------------

    def send_request(self, correlation: int, request: Request | InitProducerIdRequest) -> bool:
        """Send a core request, connecting first if need be; False if it cannot go out now."""
        if type(request) in NOT_BEHIND_A_FETCH:
            if self.side_channel is None:
                self.side_channel = SideChannel(self.node, self.loop, self.id, self.host, self.port)
            return self.side_channel.send_now(correlation, request)
        return self.send_now(correlation, request)

    def send_now(self, correlation: int, request: Request | InitProducerIdRequest) -> bool:
        """Do as :meth:`send_request`, over this very connection."""
        if self.ready:
            return self._send(correlation, request)
        if self.framed is None and not self._connect(probing=False):
            return False
        self.held.append((correlation, request))
        return True

    def publish(self) -> None:
        """Do nothing: what is sent goes to the kernel at once."""

    def close(self) -> None:
        """Close the connection, finally."""
        if self.side_channel is not None:
            self.side_channel.close()
        self._drop()

    # --- the connection ---------------------------------------------------------------------------

    def _connect(self, probing: bool) -> bool:
        """Begin to connect: probing, to where it was last seen, else to its addresses in turn."""
        now_ms = self.node.now_ms()
        if not probing and now_ms < self.retry_at_ms:
            return False
        addresses = self.loop.resolver.addresses(self.host, self.port)
        if not addresses:  # its name is being asked for
            self.retry_at_ms = now_ms + self.pause_ms
            self._missed("its name has no address")
            return False
        try:
            address = addresses[self.turn % len(addresses)]
            self.framed = FramedSocket.connect(self.node.host.network, address)
        except PeerGone as error:
            self._missed(str(error))
            self._refused(probing)
            return False
        self.probing = probing
        self.connecting_until_ms = now_ms + CONNECT_TIMEOUT_MS
        self.loop.watch(self.framed.fileno(), select.EPOLLOUT, self._connected, self.failed)
        return True

    def _connected(self, _events: int) -> None:
        assert self.framed is not None
        code = self.framed.connect_error()
        if code:
            self._missed(os.strerror(code))
            self._ended_early()
            return
        self.loop.unwatch(self.framed.fileno())
        self.loop.watch(self.framed.fileno(), select.EPOLLIN, self._ready, self.failed)
        hello = ApiVersionsRequest(
            client_software_name=CLIENT_NAME, client_software_version=CLIENT_VERSION
        )
        client_id = client_id_of(self.node)
        data = frame.encode_request(ApiKey.API_VERSIONS, 4, 0, client_id, hello)
        try:
            self.framed.send([data])
        except PeerGone:
            self._ended_early()

    def _ready(self, events: int) -> None:
        """Handle what arrived, a broken connection, or room to send more."""
        framed = self.framed
        if framed is None:
            return
        try:
            if events & select.EPOLLOUT and framed.flush():
                self.loop.rewatch(framed.fileno(), select.EPOLLIN)
            if events & ~select.EPOLLOUT:
                self.asked_ms = self.node.now_ms()
                for data in framed.receive():
                    self._handle_response(data)
                    if self.framed is not framed:
                        return
        except Exception as error:
            self.failed(error)

    def _handle_response(self, data: frame.Frame) -> None:
        if not self.ready:
            self._api_versions(data)
            return
        correlation = frame.correlation_id(data)
        asked = self.waiting.pop(correlation, None)
        if asked is None:
            raise MalformedFrame(f"an answer to nothing that was asked ({correlation})")
        api_key, version = asked
        response, payload = decode_response(self.node, self.repeated, api_key, version, data)
        if self.node.producer_ids.took(correlation, response):
            return
        foreign = getattr(response, "error", None) is ErrorCode.INCONSISTENT_CLUSTER_ID
        if foreign and not self.foreign:
            self.node.tell("peer_refused", who=self._who(), address=self._place())
        self.foreign = foreign
        self.node.step(ev.ResponseReceived(self.id, correlation, response, payload))

    def _api_versions(self, data: frame.Frame) -> None:
        _, message = frame.decode_response(ApiKey.API_VERSIONS, 4, data)
        if message.error_code:
            raise UnsupportedVersion(f"ApiVersions is answered with error {message.error_code}")
        self.versions = offered_versions(message)
        self.ready, self.probing = True, False
        self.missed_ms, self.unreached = -1, False
        self.pause_ms = RECONNECT_MS_MIN
        vote = self.versions.get(ApiKey.VOTE)
        pre_vote = vote is not None and vote.last >= VOTE_PRE_VOTE_VERSION
        held, self.held = self.held, []
        self._queue_event(ev.LinkUp(self.id, streaming=False, pre_vote=pre_vote))
        self.node.run_events()
        for correlation, request in held:
            if not self.ready or not self._send(correlation, request):
                self._fail(correlation, ErrorCode.BROKER_NOT_AVAILABLE)
        self.node.run_events()

    def _send(self, correlation: int, request: Request | InitProducerIdRequest) -> bool:
        assert self.framed is not None
        api_key = API_OF[type(request)]
        try:
            version = negotiate(api_key, self.versions)
            data = encode_request(self.node, self.repeated, version, correlation, request)
        except UnsupportedVersion:
            self._fail(correlation, ErrorCode.UNSUPPORTED_VERSION)
            return True
        if self.framed.queued_bytes > QUEUED_BYTES_MAX:
            return False
        if not self.waiting:
            self.asked_ms = self.node.now_ms()
        self.waiting[correlation] = (api_key, version)
        try:
            self.framed.send([data])
        except PeerGone:
            self.waiting.pop(correlation, None)
            self._broken()
            return False
        if self.framed.queued:
            self.loop.rewatch(self.framed.fileno(), self.framed.interest())
        return True

    # --- ends -------------------------------------------------------------------------------------

    def failed(self, error: Exception) -> None:
        """End this connection alone for what it raised. Raise ``error`` if it is final."""
        if isinstance(error, PeerGone):
            self._broken()
        else:
            self.node.failures.end(error, f"the connection to replica {self.id}", self._broken)

    def _broken(self) -> None:
        """Connect again at once after the connection ended, to learn whether the process lives."""
        if not self.ready:
            self._ended_early()
            return
        self._drop()
        self._queue_event(ev.LinkDown(self.id))
        self._connect(probing=True)
        self.node.run_events()

    def _queue_event(self, event: ev.Event) -> None:
        """Queue an event of this connection for the core."""
        self.node.queue(event)

    def _missed(self, why: str) -> None:
        """Record a failed attempt to connect; report once if all fail for ``UNREACHED_MS``."""
        now_ms = self.node.now_ms()
        if self.missed_ms < 0:
            self.missed_ms = now_ms
        if now_ms - self.missed_ms >= UNREACHED_MS and not self.unreached:
            self.unreached = True
            self.node.tell("peer_unreached", who=self._who(), address=self._place(), why=why)

    def _who(self) -> str:
        return f"replica {self.id}" if self.id >= 0 else "a bootstrap server"

    def _place(self) -> str:
        return address_text(self.host, self.port)

    def _ended_early(self) -> None:
        """Handle a connection refused, or closed before ApiVersions was answered."""
        probing = self.probing
        self._drop()
        self._refused(probing)

    def _refused(self, probing: bool) -> None:
        self.retry_at_ms = self.node.now_ms() + self.pause_ms
        self.pause_ms = min(self.pause_ms * 2, RECONNECT_MS_MAX)
        if not probing:
            self.turn += 1
        elif self.id >= 0:
            self._queue_event(ev.PeerEnded(self.id))
        self._fail_held()
        self.node.run_events()

    def _drop(self) -> None:
        """Close the connection; what was asked over it gets no answer."""
        if self.framed is not None:
            self.loop.unwatch(self.framed.fileno())
            self.framed.close()
            self.framed = None
        self.ready = self.probing = False
        waiting, self.waiting = self.waiting, {}
        for correlation in waiting:
            self._fail(correlation, ErrorCode.BROKER_NOT_AVAILABLE)
        self._fail_held()

    def _fail_held(self) -> None:
        held, self.held = self.held, []
        for correlation, _ in held:
            self._fail(correlation, ErrorCode.BROKER_NOT_AVAILABLE)

    def _fail(self, correlation: int, error: ErrorCode) -> None:
        if not self.node.producer_ids.took(correlation, None):
            self.node.queue(ev.RequestFailed(self.id, correlation, error))

    def tend(self, now_ms: int) -> None:
        """Give up a connection on which nothing moves. The process may live, but if the path is
        gone, a fresh connection works long before the old one sends again."""
        if self.side_channel is not None:
            self.side_channel.tend(now_ms)
        if self.framed is None:
            return
        if not self.ready:
            if now_ms < self.connecting_until_ms:
                return
            self._missed("no answer")
            self.retry_at_ms = now_ms + self.pause_ms
        elif self.waiting and now_ms - self.asked_ms >= SILENCE_MS_MAX:
            self._queue_event(ev.LinkDown(self.id))
        else:
            return
        self._drop()
        self.node.run_events()


class SideChannel(SocketPeer):
    """A second connection to the same replica, of whose state the core knows nothing.

    A replica answers the requests of one connection in their order, and a Fetch is answered late.
    """

    def _queue_event(self, event: ev.Event) -> None:
        """Tell the core nothing: it knows of the main connection alone."""

    def _missed(self, why: str) -> None:
        """Do nothing: the main connection reports that its peer cannot be reached."""
