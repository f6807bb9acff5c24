"""A request of Kafka's that came through the door for processes of this host, to be answered once.

Tools and programs on this host reach a replica so that has no TCP listener at all.
"""

from __future__ import annotations

import base64
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.errors import MalformedFrame, UnsupportedVersion
from kraftfast.node.requests import admin_requests
from kraftfast.node.translation import translate
from kraftfast.node.translation import translate_membership as membership
from kraftfast.wire import frame
from kraftfast.wire.repeated import Repeated

if TYPE_CHECKING:
    from kraftfast.core.messages import Response
    from kraftfast.node.node import Node
    from kraftfast.wire.schema import Message


class LocalRequest:
    """One request and the socket that its answer goes to.

    ``done(sock, well)`` ends it: ``well`` if it was answered.
    """

    __slots__ = ("node", "sock", "done", "api_key", "version", "correlation_id", "repeated")

    def __init__(
        self,
        node: Node,
        sock: socket.socket,
        header: frame.RequestHeader,
        done: Callable[[socket.socket, bool], None],
        repeated: Repeated,
    ) -> None:
        self.node, self.sock, self.done, self.repeated = node, sock, done, repeated
        self.api_key, self.version, self.correlation_id = header[:3]

    software = ""  # that its client names

    @property
    def listener(self) -> str:
        """Whose addresses are given out: those that replicas use."""
        return self.node.partition.listener

    def failed(self, error: Exception) -> None:
        """Close the connection for what answering this raised."""
        self.node.failures.end(error, "a local request", lambda: self.done(self.sock, False))

    def reply(self, response: Response) -> None:
        """Answer with a core response."""
        partition = self.node.partition
        self.respond(translate.response_to_wire(self.api_key, response, partition, self.version))

    def respond(self, body: Message) -> None:
        """Answer with a wire message; the client may be gone."""
        answer = self.api_key, self.version, self.correlation_id, body
        data = self.repeated.encode_response(*answer)
        well = False
        try:
            self.sock.send(data[frame.LENGTH_BYTES :], socket.MSG_DONTWAIT)
            well = True
        except OSError as error:
            self.node.tell("answer_lost", why=error.strerror)
        finally:
            self.done(self.sock, well)


def take(
    node: Node,
    sock: socket.socket,
    text: str,
    done: Callable[[socket.socket, bool], None],
    repeated: Repeated,
) -> None:
    """Hand a request (a frame without its length, in base64) to what answers it.

    ``repeated``: what was last said at this door.

    Raises MalformedFrame, UnsupportedVersion: then the socket is still the caller's.
    """
    try:
        data = base64.b64decode(text, validate=True)
    except ValueError as error:
        raise MalformedFrame(f"a request that is no base64: {error}") from None
    header = frame.decode_request_header(data)
    decode = membership.REQUEST_FROM_WIRE.get(header.api_key)
    message = repeated.decode_request(header, data)
    request = LocalRequest(node, sock, header, done, repeated)
    if decode is not None:
        node.step(ev.RequestReceived(request, decode(message, node.partition)))
    elif not admin_requests.take(node, request, message):
        raise UnsupportedVersion(f"API {header.api_key} is not for this door")
