"""A replica on this host at the other end of two rings: what comes and goes over them.

Fetches, their answers and acknowledgements are fixed structures, which the base class ``RingFetch``
(``ring_fetch.pyx``) carries; every other request is a frame of Kafka's. ``RingPeers``
(``ring_peers.py``) makes and drops these peers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import CorruptLog, MalformedFrame, UnsupportedVersion
from kraftfast.link.ring_link import RingLink
from kraftfast.log.reading.served import Served
from kraftfast.node.fetch_records import records_for
from kraftfast.node.rings.ring_fetch import (
    KIND_ANSWER,
    KIND_FETCH,
    KIND_REQUEST,
    KIND_RESPONSE,
    RingFetch,
)
from kraftfast.node.translation import translate
from kraftfast.node.translation.diverging import check_cut
from kraftfast.node.translation.peer_frames import decode_response, encode_request
from kraftfast.node.translation.translate import API_OF
from kraftfast.node.translation.translate_membership import barrier_from_wire
from kraftfast.types import ReplicaKey
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire import frame
from kraftfast.wire.messages import ApiKey
from kraftfast.wire.repeated import Repeated
from kraftfast.wire.versions import SERVED

if TYPE_CHECKING:
    from kraftfast.core.effects import AnswerFetch
    from kraftfast.core.messages import Request, Response
    from kraftfast.log.log import Log
    from kraftfast.node.node import Node
    from kraftfast.node.translation.translate_snapshot import Slice
    from kraftfast.wire.messages import InitProducerIdRequest
    from kraftfast.wire.primitives import Buffer
    from kraftfast.wire.schema import Message

MESSAGES_A_TURN = 64
WAITING_MAX = 64


class RingRequest:
    """A request of Kafka's framing that came over a ring, to be answered there."""

    __slots__ = ("peer", "api_key", "version", "correlation_id", "slice_bytes_max")

    # slice_bytes_max: of a snapshot in one answer, behind which a stream's answers wait.
    # session: None, since an answer over a ring has left this process at once.

    session = None

    def __init__(self, peer: RingPeer, header: frame.RequestHeader) -> None:
        self.peer, self.slice_bytes_max = peer, peer.ring_bytes // 16
        self.api_key, self.version, self.correlation_id = header[:3]

    def failed(self, error: Exception) -> None:
        """Drop the link for what answering this raised."""
        self.peer.failed(error)

    def reply(self, response: Response | Slice, records: Buffer | None = None) -> bool:
        """Send the answer; False if it finds no room: it is lost, and its asker times out.

        ``Snapshots`` keeps a slice, and tries again.
        """
        if self.peer.node.links.get(self.peer.id) is not self.peer:
            return True  # no process is there now
        partition = self.peer.node.partition
        if self.api_key != ApiKey.FETCH:
            body = translate.response_to_wire(self.api_key, response, partition, self.version)
            return self.respond(body)
        assert isinstance(response, core.FetchResponse)
        fetched = translate.fetched_to_wire(response, partition, records, self.version)
        pieces = wire_fetch.encode_response(self.version, self.correlation_id, fetched)
        return bool(self.peer.send(KIND_RESPONSE, b"".join(pieces)[frame.LENGTH_BYTES :]))

    def respond(self, body: Message) -> bool:
        """Send a wire message as the answer, as :meth:`reply`."""
        if self.peer.node.links.get(self.peer.id) is not self.peer:
            return True
        said = self.peer.repeated
        data = said.encode_response(self.api_key, self.version, self.correlation_id, body)
        return bool(self.peer.send(KIND_RESPONSE, data[frame.LENGTH_BYTES :]))

    def answer_fetch(self, response: core.FetchResponse, log: Log, effect: AnswerFetch) -> None:
        """Answer a Fetch outside streams, with the bytes themselves."""
        records = None
        bound = min(effect.max_bytes, self.peer.ring_bytes // 4)
        found = records_for(self.peer.node, self.peer.served, effect, bound)
        if found is not None:
            segment, position, length = found
            records = segment.file.view(position, position + length)
        self.reply(response, records)


class RingPeer(RingFetch):  # type: ignore[misc]  # it is compiled
    """A replica on this host, as the node's effects and the core's events know it."""

    def __init__(self, node: Node, link: RingLink, key: ReplicaKey, log_path: str) -> None:
        host = node.host
        super().__init__(link, key, log_path, host.open_segment, host.inline_bytes_max)
        self.node, self.ring_bytes = node, host.local.ring_bytes
        self.stats = node.stats
        self.since_ms = node.now_ms()
        self.waiting: dict[int, int] = {}  # correlation id -> API of what we asked
        self.repeated, self.served = Repeated(), Served()

    def send_request(self, correlation: int, request: Request | InitProducerIdRequest) -> bool:
        """Send a core request; False if it cannot go out now."""
        if type(request) is core.FetchRequest and request.stream:
            return bool(self.send_fetch(request))
        api_key = API_OF[type(request)]
        version = SERVED[api_key].last
        data = encode_request(self.node, self.repeated, version, correlation, request)
        if not self.send(KIND_REQUEST, data[frame.LENGTH_BYTES :]):
            return False
        self.waiting[correlation] = api_key
        if len(self.waiting) > WAITING_MAX:  # those that were never answered (I25)
            del self.waiting[next(iter(self.waiting))]
        return True

    def answer_stream(self, effect: AnswerFetch) -> None:
        """Push an answer on the follower's stream; the stream ends with a failed link."""
        offset, log = effect.read_offset, self.node.log
        try:
            end_offset = self.push(
                effect.response, offset, effect.max_bytes, log, effect.end_offset_max
            )
        except CorruptLog as error:  # the stream is blocked, until the follower opens another one
            self.node.damage.refuse(self.node, effect, error)
            self.push(effect.response, -1, 0, log)
            end_offset = offset
        except Exception as error:
            self.failed(error)
            return
        if offset >= 0:  # queued: before any Fetch that answers this push
            self.node.queue(ev.StreamAnswered(self.id, effect.response.stream, end_offset))

    def failed(self, error: Exception) -> None:
        """Drop this link alone for what it raised. Raise ``error`` if it is final."""
        self.node.failures.end(error, f"the link to replica {self.id}", self._break_off)

    def _break_off(self) -> None:
        self.broken: str | None = self.broken or "it failed"

    def reply(self, response: core.FetchResponse) -> None:
        """Answer a Fetch of a stream by a refusal, a divergence or a snapshot's id."""
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
                request = self.decode_fetch()
                if request is not None:
                    self.node.step(ev.RequestReceived(self, request))
            elif kind == KIND_ANSWER:
                self._handle_answer()
            else:
                self._handle_frame(kind)
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
        response = self.decode_answer()
        if response is not None:
            if response.diverging is not None:
                self._check_cut(response)
                if self.broken is not None:
                    return
            self.node.step(ev.ResponseReceived(self.id, 0, response, self))

    def _check_cut(self, response: core.FetchResponse) -> None:
        try:
            check_cut(self.node.core, self.node.log, response)
        except MalformedFrame as error:
            self.broken = str(error)

    def _handle_frame(self, kind: int) -> None:
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
        request: Request
        if header.api_key == ApiKey.FETCH:
            message = wire_fetch.decode_request(header.version, payload, header.body_start)
            request = translate.fetch_from_wire(message, partition)
        elif header.api_key == ApiKey.INIT_PRODUCER_ID:
            self.node.producer_ids.serve(source, frame.decode_request_body(header, payload))
            return
        else:
            request = self._decode(header, payload)
        self.node.step(ev.RequestReceived(source, request))

    def _decode(self, header: frame.RequestHeader, payload: bytes) -> Request:
        """Decode a core request of any API that replicas ask each other, but Fetch."""
        decode = translate.REQUEST_FROM_WIRE.get(header.api_key)
        request: Request | None = None
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
        version = SERVED[api_key].last
        response, message = decode_response(self.node, self.repeated, api_key, version, payload)
        if self.node.producer_ids.took(correlation, response):
            return
        self.node.step(ev.ResponseReceived(self.id, correlation, response, message))
