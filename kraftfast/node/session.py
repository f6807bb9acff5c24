"""A connection that came in over TCP: its requests, and their answers in the order of the requests.

A few requests of one connection may be under way at once (a client pipelines its Produces); the
answers leave in order, as Kafka's clients expect. Bounds (S6, S10): frames, requests and bytes
under way, time to the first request, idle time.
"""

from __future__ import annotations

import select
from collections import deque
from typing import Any

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode, MalformedFrame, PeerGone, UnsupportedVersion
from kraftfast.link.socket_link import FramedSocket
from kraftfast.node import translate
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import frame
from kraftfast.wire import produce as wire_produce
from kraftfast.wire.messages import ApiKey, ApiVersionsResponse
from kraftfast.wire.versions import api_versions_refusal, api_versions_response

REQUESTS_MAX = 64
BYTES_MAX = 32 * 1024 * 1024
FIRST_REQUEST_MS_MAX = 10_000
IDLE_MS_MAX = 600_000  # connections.max.idle.ms


class SessionRequest:
    """One request of a session, to be answered once; ``session`` None: it has gone."""

    __slots__ = ("session", "api_key", "version", "correlation_id", "pieces", "done", "size", "by_name")

    def __init__(self, session: Session, header: frame.RequestHeader, size: int) -> None:
        self.session: Session | None = session
        self.api_key, self.version, self.correlation_id = header[:3]
        self.pieces: list[Any] = []
        self.done = False
        self.size = size
        self.by_name = False

    def reply(self, response: Any, records: Any = None) -> None:
        """Answer with a core response."""
        if self.session is None:
            return
        partition = self.session.door.node.partition
        if self.api_key == ApiKey.FETCH:
            fetched = translate.fetched_to_wire(response, partition, records, self.version)
            self.finish(wire_fetch.encode_response(self.version, self.correlation_id, fetched))
        else:
            self.respond(translate.response_to_wire(self.api_key, response, partition))

    def answer_fetch(self, response: Any, log: Any, effect: Any) -> None:
        """Answer a Fetch with the log's bytes, copied: the segment may be cut or unmapped later."""
        records = None
        if effect.read_offset >= 0:
            found = log.locate(effect.read_offset, effect.max_bytes, effect.read_end_offset)
            if found is not None:
                segment, position, length = found
                records = bytes(segment.file.view(position, position + length))
        self.reply(response, records)

    def respond(self, body: Any) -> None:
        """Answer with a wire message."""
        if self.session is not None:
            self.finish(frame.response_pieces(self.api_key, self.version, self.correlation_id, body))

    def finish(self, pieces: list[Any]) -> None:
        """Answer with the pieces of a frame; an empty list: there is no answer (acks=0)."""
        session = self.session
        if session is None or self.done:
            return
        self.pieces, self.done = pieces, True
        session.send_ready()


class Session:
    """One connection. ``door`` is the :class:`~kraftfast.node.sockets.Sockets` that accepted it."""

    # framed, peer: the connection and its address. asked: requests under way, oldest first.
    # asked_bytes: their sizes. greeted: a first request came. seen_ms: when something last came.

    def __init__(self, door: Any, sock: Any, peer: str, now_ms: int) -> None:
        self.door, self.peer = door, peer
        self.framed = FramedSocket(sock, limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS)
        self.asked: deque[SessionRequest] = deque()
        self.asked_bytes = 0
        self.greeted = False
        self.seen_ms = now_ms
        self._events = select.EPOLLIN
        door.loop.watch(self.framed.fileno(), select.EPOLLIN, self._ready)

    def _ready(self, events: int) -> None:
        self.seen_ms = self.door.node.now_ms()
        try:
            if events & select.EPOLLOUT:
                self.framed.flush()
            if events & ~select.EPOLLOUT:
                for data in self.framed.receive():
                    self._handle(data)
                    if self.framed.sock.fileno() < 0:
                        return
            self._set_interest()
        except PeerGone:
            self.close()
        except (MalformedFrame, UnsupportedVersion) as error:
            self.door.node.log_line(f"{self.peer} sends what does not decode: {error} -> closed")
            self.close()

    def _set_interest(self) -> None:
        """Read only while there is room for more requests."""
        full = len(self.asked) >= REQUESTS_MAX or self.asked_bytes >= BYTES_MAX
        events = (0 if full else select.EPOLLIN) | (select.EPOLLOUT if self.framed.queued else 0)
        if events != self._events:
            self._events = events
            self.door.loop.rewatch(self.framed.fileno(), events)

    def _handle(self, data: frame.Frame) -> None:
        header = frame.decode_request_header(data)
        request = SessionRequest(self, header, len(data))
        self.asked.append(request)
        self.asked_bytes += len(data)
        self.greeted = True
        if header.api_key == ApiKey.API_VERSIONS:
            self._api_versions(request, header, data)
            self.framed.splitter.frame_bytes_max = limits.FRAME_BYTES_MAX
            return
        self.framed.splitter.frame_bytes_max = limits.FRAME_BYTES_MAX
        partition = self.door.node.partition
        if header.api_key == ApiKey.FETCH:
            message = wire_fetch.decode_request(header.version, data, header.body_start)
            self.door.fetch(request, message)
        elif header.api_key == ApiKey.PRODUCE:
            message = wire_produce.decode_request(header.version, data, header.body_start)
            self.door.produce(request, message)
        elif header.api_key in translate.REQUEST_FROM_WIRE:
            message = frame.decode_request_body(header, data)
            decoded = translate.REQUEST_FROM_WIRE[header.api_key](message, partition)
            self.door.node.step(ev.RequestReceived(request, decoded))
        else:
            self.door.ask(request, frame.decode_request_body(header, data))

    def _api_versions(self, request: SessionRequest, header: frame.RequestHeader, data: frame.Frame) -> None:
        if not header.served:
            request.finish([frame.unsupported_api_versions(header.correlation_id)])
            return
        message = frame.decode_request_body(header, data)
        refusal = api_versions_refusal(message, header.version)
        if refusal is not ErrorCode.NONE:
            request.respond(ApiVersionsResponse(error_code=refusal))
            return
        request.respond(api_versions_response(header.version, self.door.served, self.door.features))

    def send_ready(self) -> None:
        """Send the answers that are ready, as far as none before them is missing."""
        try:
            while self.asked and self.asked[0].done:
                request = self.asked.popleft()
                self.asked_bytes -= request.size
                request.session = None
                if request.pieces:
                    self.framed.send(request.pieces)
            if self.framed.sock.fileno() >= 0:
                self._set_interest()
        except PeerGone:
            self.close()

    def is_overdue(self, now_ms: int) -> bool:
        """Whether it said nothing for too long (slow-loris, half-open)."""
        patience = IDLE_MS_MAX if self.greeted else FIRST_REQUEST_MS_MAX
        return not self.asked and now_ms - self.seen_ms >= patience

    def close(self) -> None:
        """Hang up; whatever is still under way is answered to nobody."""
        if self.framed.sock.fileno() < 0:
            return
        for request in self.asked:
            request.session = None
        self.asked.clear()
        self.door.loop.unwatch(self.framed.fileno())
        self.framed.close()
        self.door.forget(self)
