"""Frames between replicas, over a socket or a ring: the requests of this one, and their answers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import FetchRequest
from kraftfast.node.translation import translate
from kraftfast.node.translation.diverging import check_cut
from kraftfast.node.translation.fetched_bytes import FetchedBytes
from kraftfast.wire import fetch as wire_fetch
from kraftfast.wire.messages import ApiKey

if TYPE_CHECKING:
    from kraftfast.core.messages import Payload, Request, Response
    from kraftfast.node.node import Node
    from kraftfast.wire.frame import Frame
    from kraftfast.wire.messages import InitProducerIdRequest
    from kraftfast.wire.repeated import Repeated


def client_id_of(node: Node) -> str:
    """Return the client id of this replica's requests, as Kafka's controllers make theirs."""
    return f"raft-client-{node.config.node_id}"


def encode_request(
    node: Node,
    repeated: Repeated,
    version: int,
    correlation: int,
    request: Request | InitProducerIdRequest,
) -> bytes:
    """Return the frame of a request, its length first. ``repeated``: of the link that it takes."""
    if isinstance(request, FetchRequest):
        fields = translate.fetch_to_wire(request, node.partition)
        return wire_fetch.encode_request(version, correlation, client_id_of(node), fields)
    api_key = translate.API_OF[type(request)]
    body = translate.request_to_wire(request, node.partition)
    return repeated.encode_request(api_key, version, correlation, client_id_of(node), body)


def decode_response(
    node: Node, repeated: Repeated, api_key: int, version: int, data: Frame
) -> tuple[Response, Payload]:
    """Return the answer in a frame without its length, and what comes with it for the log.

    Raises MalformedFrame, also for a divergence that would cut this log inside a batch.
    """
    if api_key == ApiKey.FETCH:
        _, fetched = wire_fetch.decode_response(version, data)
        response = translate.fetched_from_wire(fetched, node.partition)
        if response.diverging is not None:
            check_cut(node.core, node.log, response)
        return response, FetchedBytes(fetched)
    message = repeated.decode_response(api_key, version, data)
    return translate.response_from_wire(api_key, message, node.partition), message
