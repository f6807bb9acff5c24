"""The numbers of Kafka's APIs, and the two message classes of each."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import IntEnum
from typing import NamedTuple

from kraftfast.wire.notation import Versions, versions
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


class Definition(NamedTuple):
    """What a message class is made of: see ``schema.define``."""

    name: str
    key: ApiKey
    served: str
    flexible: str
    table: str


class Classes(Mapping[int, type[Message]]):
    """The message class of each API, by its key; made at its first use, which most never have."""

    def __init__(self) -> None:
        self.definitions: dict[int, Definition] = {}
        self._made: dict[int, type[Message]] = {}

    def __getitem__(self, key: int) -> type[Message]:
        made = self._made.get(key)
        if made is None:
            made = self._made[key] = define(*self.definitions[key], MODULE)
        return made

    def __iter__(self) -> Iterator[int]:
        return iter(self.definitions)

    def __len__(self) -> int:
        return len(self.definitions)


REQUESTS, RESPONSES = Classes(), Classes()
"""The class of each API's request and response."""

SIDE_OF: dict[str, tuple[Classes, int]] = {}
"""Where a message is found, by its name."""

SERVED: dict[int, Versions] = {}
"""The versions of each API that we speak."""


def api(key: ApiKey, name: str, served: str, flexible: str, request: str, response: str) -> None:
    """Define the two messages of one API, in the versions ``served``."""
    SERVED[key] = versions(served)
    for classes, suffix, table in (
        (REQUESTS, "Request", request),
        (RESPONSES, "Response", response),
    ):
        classes.definitions[key] = Definition(name + suffix, key, served, flexible, table)
        SIDE_OF[name + suffix] = classes, key
