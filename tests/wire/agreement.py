"""The tables and the hot paths on the same bytes: they must agree, errors included."""

from __future__ import annotations

from typing import Any

from kraftfast.errors import KraftfastError
from kraftfast.wire import fetch, produce
from kraftfast.wire.messages import FetchRequest, FetchResponse, ProduceRequest, ProduceResponse
from kraftfast.wire.schema import Message


def outcome(act: Any, *arguments: Any) -> Any:
    """What a call gives (pieces joined), or the class of our error that it raises."""
    try:
        given = act(*arguments)
    except KraftfastError as error:
        return type(error)
    return b"".join(given) if isinstance(given, list) else given


def agree(cls: type[Message], raw: bytes, version: int) -> Any:
    """What ``raw`` decodes to, or the class of the error."""
    by_tables = outcome(cls.decode, raw, version)
    header = b"\0\0\0\x07" + (b"\0" if version in cls.FLEXIBLE else b"")
    if cls is FetchRequest:
        hot = outcome(fetch.decode_request, version, raw, 0)
        hot = hot.to_message(version) if type(hot) is fetch.PartitionFetch else hot
    elif cls is ProduceRequest:
        hot = outcome(produce.decode_request, version, raw, 0)
        hot = hot.to_message() if type(hot) is produce.PartitionProduce else hot
    elif cls in (FetchResponse, ProduceResponse):
        room = fetch if cls is FetchResponse else produce
        hot = outcome(room.decode_response, version, header + raw)
        if isinstance(hot, tuple):
            number, hot = hot
            assert number == 7
        flat = (fetch.PartitionFetched, produce.PartitionProduced)
        hot = hot.to_message() if type(hot) in flat else hot
    else:
        return by_tables
    assert hot == by_tables
    return by_tables
