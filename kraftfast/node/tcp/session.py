"""A connection that came in over TCP: its requests, and their answers in the order of the requests.

A few requests of one connection may be under way at once (a client pipelines its Produces); the
answers leave in order, as Kafka's clients expect.
"""

from __future__ import annotations

import select
from collections import deque
from typing import TYPE_CHECKING

from kraftfast import limits
from kraftfast.core import events as ev
from kraftfast.core.messages import FetchResponse, VoteRequest
from kraftfast.errors import ErrorCode, PeerGone
from kraftfast.link.socket_link import FramedSocket
from kraftfast.log.reading.served import Served
from kraftfast.node.failures import is_final
from kraftfast.node.fetch_records import records_for
from kraftfast.node.translation import translate
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import frame
from kraftfast.wire import produce as wire_produce
from kraftfast.wire.messages import ApiKey, ApiVersionsResponse
from kraftfast.wire.repeated import REPEATED, Repeated
from kraftfast.wire.versions import VOTE_PRE_VOTE_VERSION, api_versions_refusal

if TYPE_CHECKING:
    import socket

    from kraftfast.core.effects import AnswerFetch
    from kraftfast.core.messages import Response
    from kraftfast.log.log import Log
    from kraftfast.node.ports import SliceSource
    from kraftfast.node.tcp.sockets import Sockets
    from kraftfast.node.translation.translate_snapshot import Slice
    from kraftfast.wire.primitives import Buffer
    from kraftfast.wire.schema import Message

BYTES_MAX = 32 * 1024 * 1024
ANSWER_BYTES_MAX = 8 * 1024 * 1024
ANSWERED_BYTES_A_TURN = 64 * 1024
"""Of a session's requests that are answered at once, before others have their turn. What one costs
grows with its size; the smallest would come by ten thousands in what one turn reads."""
ANSWERED_BYTES_MIN = 4 * 1024  # each counts for that much at least
PROGRESS_BYTES = 64 * 1024
"""What has to move within the times below, unless it is the last."""
FIRST_REQUEST_MS_MAX = 10_000
FRAME_MS_MAX = 30_000  # for as much of a frame
IDLE_MS_MAX = 600_000  # connections.max.idle.ms; also for a whole frame
ANSWER_MS_MAX = IDLE_MS_MAX  # for as much of an answer: consumers may not poll for minutes
PRESSED_ANSWER_MS_MAX = 30_000  # the same, while all sessions together hold much


class SessionRequest:
    """One request of a session, to be answered once; ``session`` None: it has gone.

    ``ends``: the connection is closed in the place of an answer.
    """

    __slots__ = (
        "session", "api_key", "version", "correlation_id", "pieces", "done", "size", "ends"
    )  # fmt: skip
    slice_bytes_max = limits.BATCH_BYTES_MAX  # of a snapshot at once

    def __init__(self, session: Session, header: frame.RequestHeader, size: int) -> None:
        self.session: Session | None = session
        self.api_key, self.version, self.correlation_id = header[:3]
        self.pieces: list[Buffer] = []
        self.done = self.ends = False
        self.size = size

    @property
    def listener(self) -> str:
        """The listener that its connection came by; "" if that has gone."""
        return "" if self.session is None else self.session.listener

    @property
    def software(self) -> str:
        """What its client says of itself (KIP-511), "" if nothing."""
        return "" if self.session is None else self.session.software

    def failed(self, error: Exception) -> None:
        """End the connection for what answering this raised."""
        self.done = True
        if self.session is not None:
            self.session.fail(error)
        elif is_final(error):
            raise error

    def reply(self, response: Response | Slice, records: Buffer | None = None) -> None:
        """Answer with a core response."""
        if self.session is None:
            return
        partition = self.session.door.node.partition
        if self.api_key == ApiKey.FETCH:
            assert isinstance(response, FetchResponse)
            fetched = translate.fetched_to_wire(response, partition, records, self.version)
            self.finish(wire_fetch.encode_response(self.version, self.correlation_id, fetched))
        else:
            body = translate.response_to_wire(self.api_key, response, partition, self.version)
            self.respond(body)

    def answer_fetch(self, response: FetchResponse, log: Log, effect: AnswerFetch) -> None:
        """Answer a Fetch with the log's bytes, copied: the segment may be cut or unmapped (R8)."""
        records = None
        if self.session is None:
            return
        found = records_for(self.session.door.node, self.session.served, effect, effect.max_bytes)
        if found is not None:
            segment, position, length = found
            records = bytes(segment.file.view(position, position + length))
        self.reply(response, records)

    def respond(self, body: Message) -> None:
        """Answer with a wire message."""
        if self.session is not None:
            answer = self.api_key, self.version, self.correlation_id, body
            if self.api_key in REPEATED:
                self.finish([self.session.repeated.encode_response(*answer)])
            else:
                self.finish(frame.response_pieces(*answer))

    def finish(self, pieces: list[Buffer]) -> None:
        """Answer with the pieces of a frame; an empty list: there is no answer (acks=0)."""
        session = self.session
        if session is None or self.done:
            return
        self.pieces, self.done = pieces, True
        session.send_ready()

    def hang_up(self) -> None:
        """End the connection in the place of an answer, behind the answers before it."""
        self.ends = True
        self.finish([])


class Session:
    """One connection. :class:`~kraftfast.node.tcp.sockets.Sockets`, its ``door``, accepted it.

    Bounds (S6, S10, I25): requests and bytes under way, answers that are not taken, the time to the
    first request, for progress of a frame that has begun and of an answer, and of silence.
    """

    # framed, host: the connection and the address it comes from. listener: the name of the listener
    # that it came by. software: what its client says of itself. asked: requests under way, oldest
    # first.
    # asked_bytes: their sizes. fetches: how many of them are Fetches, whose answers are large.
    # counted_bytes: what the door counts for this session.
    # produces: a Produce came. greeted: a first request came. paused: nothing is read, for what is
    # under way is enough.
    # seen_ms: when something last came. frame_ms: when the frame that is not whole yet last made
    # progress, to frame_bytes; -1 for none; began_ms: when it began. sent_ms: when what is queued
    # last made progress, or nothing was; taken_bytes: what the kernel took since. repeated: what
    # was last said over it.

    def __init__(
        self, door: Sockets, sock: socket.socket, host: str, listener: str, now_ms: int
    ) -> None:
        self.door, self.host, self.listener = door, host, listener
        self.framed = FramedSocket(sock, limits.FRAME_BYTES_MAX_BEFORE_API_VERSIONS)
        self.framed.splitter.judge = frame.request_bytes_max
        self.software = ""
        self.repeated, self.served = Repeated(), Served()
        self.asked: deque[SessionRequest] = deque()
        self.asked_bytes = self.fetches = 0
        self.counted_bytes = 0
        self.greeted = self.paused = self.produces = False
        self.seen_ms = self.sent_ms = self.accepted_ms = self.began_ms = now_ms
        self.frame_ms = -1
        self.frame_bytes = self.taken_bytes = 0
        self._taking = False
        self._events = select.EPOLLIN
        door.loop.watch(self.framed.fileno(), select.EPOLLIN, self._ready, self.fail)

    @property
    def closed(self) -> bool:
        """Whether the connection is closed."""
        return self.framed.sock.fileno() < 0

    @property
    def held_bytes(self) -> int:
        """How many bytes of requests and answers it holds."""
        return self.framed.splitter.held_bytes + self.asked_bytes + self.framed.queued_bytes

    def _ready(self, events: int) -> None:
        if events & select.EPOLLOUT:
            self.send_ready()
        if events & ~select.EPOLLOUT and not self.closed:
            self.seen_ms = self.door.node.now_ms()
            self.take()

    def take(self) -> None:
        """Take requests, as many as may be under way at once."""
        self._taking = True
        answered_bytes = 0
        try:
            for data in self.framed.receive():
                self._handle(data)
                if not self.asked or self.asked[-1].done:
                    answered_bytes += ANSWERED_BYTES_MIN + len(data)
                took_turn = answered_bytes >= ANSWERED_BYTES_A_TURN
                if self.closed or took_turn or self._is_full():
                    self.paused = True  # what was read already: epoll reports it no more
                    break
        except Exception as error:
            self.fail(error)
        finally:
            self._taking = False
        if not self.closed:
            self._note_progress()
            self.look_again()

    def _note_progress(self) -> None:
        """Record when the frame that is under way began, and when much of it came."""
        splitter = self.framed.splitter
        if not splitter.partial:
            self.frame_ms = -1
            return
        if self.frame_ms < 0:
            self.began_ms = self.frame_ms = self.seen_ms
        elif splitter.arrived_bytes >= self.frame_bytes + PROGRESS_BYTES:
            self.frame_ms = self.seen_ms
        else:
            return
        self.frame_bytes = splitter.arrived_bytes

    def _is_full(self) -> bool:
        """Return whether what is under way is enough: the other side is to wait.

        Produces are taken one behind the other, but nothing behind a Fetch: answers wait for those
        before them, and so do their records.
        """
        return (
            self.fetches > 0
            or len(self.asked) >= limits.REQUESTS_OF_A_CONNECTION
            or self.asked_bytes >= BYTES_MAX
            or self.framed.queued_bytes >= ANSWER_BYTES_MAX
            or not self.door.may_read(self)
            or (self.produces and not self.door.has_room_for_records())
        )

    def look_again(self) -> None:
        """Read only while there is room for more requests."""
        held = self.held_bytes
        self.door.count(held - self.counted_bytes)
        self.counted_bytes = held
        full = self._is_full()
        if self.paused and not full:
            if self.frame_ms >= 0:
                self.frame_ms = self.began_ms = self.door.node.now_ms()
            self.door.resume(self)  # what was read already: epoll reports it no more
        self.paused = full
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
        self.frame_ms = -1
        self.framed.splitter.frame_bytes_max = limits.FRAME_BYTES_MAX
        partition = self.door.node.partition
        if header.api_key == ApiKey.API_VERSIONS:
            self._api_versions(request, header, data)
        elif header.api_key == ApiKey.FETCH:
            self.fetches += 1
            message = wire_fetch.decode_request(header.version, data, header.body_start)
            self.door.fetch(request, message)
        elif header.api_key == ApiKey.PRODUCE:
            self.produces = True
            produced = wire_produce.decode_request(header.version, data, header.body_start)
            self.door.produce(request, produced)
        elif header.api_key in translate.REQUEST_FROM_WIRE:
            message = self.repeated.decode_request(header, data)
            decoded = translate.REQUEST_FROM_WIRE[header.api_key](message, partition)
            if isinstance(decoded, VoteRequest):
                decoded.speaks_pre_vote = header.version >= VOTE_PRE_VOTE_VERSION
            self.door.node.step(ev.RequestReceived(request, decoded))
        else:
            self.door.ask(request, self.repeated.decode_request(header, data))

    def _api_versions(
        self, request: SessionRequest, header: frame.RequestHeader, data: frame.Frame
    ) -> None:
        if not header.served:
            request.finish([frame.unsupported_api_versions(header.correlation_id)])
            return
        message = frame.decode_request_body(header, data)
        self.software = message.client_software_name
        refusal = api_versions_refusal(message, header.version)
        if refusal is ErrorCode.NONE and message.cluster_id is not None:
            node = self.door.node
            if (message.cluster_id, message.node_id) != (node.cluster_id, node.config.node_id):
                refusal = ErrorCode.REBOOTSTRAP_REQUIRED  # KIP-1242: another replica was meant
        if refusal is not ErrorCode.NONE:
            request.respond(ApiVersionsResponse(error_code=refusal))
            return
        request.respond(self.door.versions(header.version))

    def send_ready(self) -> None:
        """Send the answers that are ready, as far as none before them is missing."""
        before = queued = self.framed.queued_bytes
        try:
            while self.asked and self.asked[0].done:
                request = self.asked.popleft()
                self.asked_bytes -= request.size
                self.fetches -= request.api_key == ApiKey.FETCH
                request.session = None
                queued += sum(map(len, request.pieces))
                self.framed.send(request.pieces)
                if request.ends:
                    self.framed.flush()
                    self.close()
                    return
            self.framed.flush()
        except PeerGone:
            self.close()
            return
        self.taken_bytes += queued - self.framed.queued_bytes
        if not before or not self.framed.queued or self.taken_bytes >= PROGRESS_BYTES:
            self.sent_ms, self.taken_bytes = self.door.node.now_ms(), 0
        if not self._taking:
            self.look_again()

    def has_sent(self, request: SliceSource) -> bool:
        """Return whether the answer to a request has left this process, or never will."""
        return self.closed or (request.session is None and not self.framed.queued)

    def is_overdue(self, now_ms: int) -> bool:
        """Return whether it is too slow in what it owes, or has said nothing for too long."""
        known = self.greeted or self.framed.splitter.held_bytes  # what is known may be large
        if not known and now_ms - self.accepted_ms >= FIRST_REQUEST_MS_MAX:
            return True
        answer_ms_max = PRESSED_ANSWER_MS_MAX if self.door.is_pressed() else ANSWER_MS_MAX
        if self.framed.queued and now_ms - self.sent_ms >= answer_ms_max:
            return True
        if self.paused:
            return False
        if self.frame_ms >= 0 and now_ms - self.frame_ms >= FRAME_MS_MAX:
            return True
        if self.frame_ms >= 0 and now_ms - self.began_ms >= IDLE_MS_MAX:
            return True
        return not self.asked and now_ms - self.seen_ms >= IDLE_MS_MAX

    def fail(self, error: Exception) -> None:
        """End this connection alone for what it raised. Raise ``error`` if it is final."""
        if isinstance(error, PeerGone):
            self.close()
        else:
            self.door.node.failures.end(error, f"a connection from {self.host}", self.close)

    def close(self) -> None:
        """Hang up; what is still under way is not answered."""
        if self.closed:
            return
        for request in self.asked:
            request.session = None
        self.asked.clear()
        self.door.count(-self.counted_bytes)
        self.door.loop.unwatch(self.framed.fileno())
        self.framed.close()
        self.door.forget(self)
