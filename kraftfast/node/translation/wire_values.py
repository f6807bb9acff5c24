"""What every translation between the core's messages and Kafka's needs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from kraftfast.core.messages import UNSAID, LeaderIdentity
from kraftfast.errors import ErrorCode
from kraftfast.types import ZERO_UUID, Endpoint, OffsetAndEpoch, Uuid
from kraftfast.wire.frame import WireMessage

FieldValue = Any
"""The value of a message's field, of the type that its table gives it."""


class Partition(NamedTuple):
    """The quorum's log as requests name it, and the listener whose endpoints are given out."""

    topic: str
    topic_id: Uuid
    listener: str


def endpoints_from_wire(entries: list[WireMessage]) -> tuple[Endpoint, ...]:
    """Return listeners as the core has them; their names count without their case."""
    return tuple(Endpoint(entry.name.upper(), entry.host, entry.port) for entry in entries)


def identity_fields(identity: LeaderIdentity) -> dict[str, FieldValue]:
    """Return our tagged fields beside a leader's endpoint."""
    if identity == UNSAID:
        return {}
    offset, epoch = identity.voters_at
    return {
        "directory_id": identity.directory_id,
        "voters_offset": offset,
        "voters_epoch": epoch,
        "voters_committed": identity.committed,
    }


def identity_from_wire(entries: Iterable[WireMessage]) -> LeaderIdentity:
    """Return what a leader's endpoints say of its directory and voters."""
    for entry in entries:
        if entry.directory_id != ZERO_UUID:
            place = OffsetAndEpoch(entry.voters_offset, entry.voters_epoch)
            return LeaderIdentity(entry.directory_id, place, entry.voters_committed)
    return UNSAID


def error_code(code: int) -> ErrorCode:
    """Return Kafka's code; one that we do not know counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR
