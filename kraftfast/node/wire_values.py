"""What every translation between the core's messages and Kafka's needs."""

from __future__ import annotations

from typing import Any, NamedTuple

from kraftfast.errors import ErrorCode
from kraftfast.types import Endpoint, Uuid


class Partition(NamedTuple):
    """The quorum's log as requests name it, and the listener whose endpoints are given out."""

    topic: str
    topic_id: Uuid
    listener: str


def endpoints_from_wire(entries: list[Any]) -> tuple[Endpoint, ...]:
    """Listeners as the core has them; their names count without their case."""
    return tuple(Endpoint(entry.name.upper(), entry.host, entry.port) for entry in entries)


def error_code(code: int) -> ErrorCode:
    """Kafka's code; one that we do not know counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
