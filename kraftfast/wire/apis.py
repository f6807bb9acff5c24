"""The numbers of Kafka's APIs, and the two message classes of each."""

from __future__ import annotations

from enum import IntEnum
from typing import Any

from kraftfast.wire.schema import Message, define

MODULE = "kraftfast.wire.messages"
"""Where every message class is found, whichever file has its table."""


class ApiKey(IntEnum):
    """The number of each API; a request's header begins with it."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    SASL_AUTHENTICATE = 36
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    VOTE = 52
    BEGIN_QUORUM_EPOCH = 53
    END_QUORUM_EPOCH = 54
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    FETCH_SNAPSHOT = 59
    DESCRIBE_CLUSTER = 60
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    UPDATE_RAFT_VOTER = 82


REQUESTS: dict[int, type[Message]] = {}
"""The class of each API's request, by its key."""

RESPONSES: dict[int, type[Message]] = {}
"""The class of each API's response, by its key."""


def api(key: ApiKey, name: str, served: str, flexible: str, request: str, response: str) -> Any:
    """The two classes of one API, in the versions ``served``."""
    REQUESTS[key] = define(f"{name}Request", key, served, flexible, request, MODULE)
    RESPONSES[key] = define(f"{name}Response", key, served, flexible, response, MODULE)
    return REQUESTS[key], RESPONSES[key]
