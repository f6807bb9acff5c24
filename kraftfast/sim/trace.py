"""A run in words: one line an event, ``fact -> action``."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from kraftfast.core import events as ev
from kraftfast.errors import ErrorCode
from kraftfast.types import OffsetAndEpoch, ReplicaKey

_OMITTED = ("cluster_id", "partition_known", "leader_endpoints", "source", "payload", "max_wait_ms")
_DEFAULTS = {
    "error": ErrorCode.NONE,
    "partition_error": ErrorCode.NONE,
    "stream": 0,
    "opens": False,
    "unanimous": False,
    "in_doubt": False,
    "has_no_log": False,
    "voters_committed": False,
    "in_memory": False,
    "after": None,
    "diverging": None,
    "snapshot_id": None,
    "pre_vote": False,
    "records_bytes": 0,
    "log_start_offset": 0,
    "rejected": False,
}


def _asker(source: Any) -> Any:
    """Return the sender of a request: a replica, or the host of a connection."""
    session = getattr(source, "session", None)
    return getattr(source, "peer_id", "a client") if session is None else session.host


def words(value: Any) -> str:
    """Return a message, event or effect on one line, without what says nothing."""
    if isinstance(value, ReplicaKey):
        return str(value.id)
    if isinstance(value, OffsetAndEpoch):
        return f"{value.offset}@{value.epoch}"
    if isinstance(value, ErrorCode):
        return value.name
    if isinstance(value, (ev.RequestReceived, ev.ResponseReceived)):
        if isinstance(value, ev.RequestReceived):
            return f"from {_asker(value.source)}: {words(value.request)}"
        return f"from {value.peer_id}: {words(value.response)}"
    # a compiled dataclass has no fields to be asked for
    if isinstance(value, Struct) or hasattr(value, "__dataclass_params__"):
        parts = []
        for name in type(value).__match_args__:
            content = getattr(value, name)
            if name in _OMITTED or content == _DEFAULTS.get(name, _OMITTED):
                continue
            parts.append(f"{name}={words(content)}")
        return f"{type(value).__name__}({', '.join(parts)})"
    return str(value)
