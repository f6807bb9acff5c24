"""What a replica, or a message, is made of: plain tuples, the same from each form of the core.

The compiled core and the interpreted one are compared by it, and states that differ only in the
names of their replicas (``names``: another id for each that has one) are told to be the same.
"""

from __future__ import annotations

import marshal
import re
from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from kraftfast.core.config import QuorumConfig
from kraftfast.core.replication.majority import Acknowledged
from kraftfast.core.request_manager import RequestManager
from kraftfast.core.trail import EpochTrail
from kraftfast.types import Endpoint, VoterSet
from tests.model.storing import attributes_of, print_of

Names = Mapping[int, int]
THE_SAME: Names = {}
IDS = {
    "id", "leader_id", "peer_id", "replica_id", "target_id", "voter_id", "displaced_by",
    "_local_id",
}  # fmt: skip
"""Fields that hold the id of a replica."""
MANY = {
    "unheard", "fetched_since", "confirmed", "granted", "rejected", "without_log", "_own",
    "unacknowledged", "voter_ids", "target",
}  # fmt: skip
"""Fields that hold ids in no order that means anything."""
KEYED = {"_peers", "voters", "reported", "round_asks", "heard"}
"""Fields that hold what belongs to each id."""
CORRELATIONS = {"correlation", "membership_correlation", "round_asks"}
UNDER_WAY = range(1, 8)
"""Requests that are: one at most to each peer, so their numbers say no more."""
LEFT_OUT = {
    "world", "config", "random", "static_voters", "_stored", "warning", "leader", "follower",
    "streams", "generations",
}  # fmt: skip
"""Fields that follow from the setting and the id, are for people, or are told elsewhere."""
SPOKEN = re.compile(r"^(leader |host|)(\d+)(\.\d+|)$")
"""Values of records, and hosts, name a replica."""


def content_of(thing: Any, names: Names = THE_SAME, field: str = "") -> Any:
    """Return it as plain tuples, with other names for its replicas."""
    kind = type(thing)
    if kind is int or kind is bool:
        if field in CORRELATIONS:
            return 1 if thing in UNDER_WAY else thing
        if field == "slot":  # which one follows from the ids
            return int(thing >= 0)
        return names.get(thing, thing) if field in IDS else int(thing)
    plain = PLAIN.get(kind)
    if plain is not None:
        return plain(thing, names)
    if kind is tuple or kind is list or kind is deque:
        return of_many(thing, names, field)
    if kind is dict:
        keys = "id" if field in KEYED else field
        values = field if field in CORRELATIONS else ""
        found = [
            (content_of(key, names, keys), content_of(value, names, values))
            for key, value in thing.items()
        ]
        return tuple(sorted(found, key=repr))
    if kind is set or kind is frozenset:
        return tuple(sorted(content_of(each, names, "id" if field in MANY else "")
                            for each in thing))  # fmt: skip
    if isinstance(thing, int):
        return int(thing)
    if isinstance(thing, Enum):
        return str(thing.value)
    if isinstance(thing, type):
        return thing.__name__
    return of_object(kind, thing, names)


def of_many(things: Any, names: Names, field: str) -> Any:
    """Return the content of an array."""
    if field in MANY:
        return tuple(sorted(names.get(each, each) for each in things))
    if field == "parked":  # of one replica in order; that between replicas means nothing
        things = sorted(things, key=lambda each: names.get(each.replica_id, each.replica_id))
    if field == "source" and len(things) == 2:  # a reader's barrier: whose, and what it must see
        return (names.get(things[0], things[0]), content_of(things[1], names))
    return tuple([content_of(each, names) for each in things])


def of_object(kind: type, thing: Any, names: Names) -> Any:
    """Return the content of a named tuple, or of an object with fields."""
    fields = getattr(kind, "_fields", None)
    if fields is not None:
        return tuple([content_of(each, names, name) for name, each in zip(fields, thing)])
    known = _ATTRIBUTES.get(kind)
    if known is None:
        every = attributes_of(kind, thing)
        known = _ATTRIBUTES[kind] = tuple(each for each in every if each not in LEFT_OUT)
    found = [content_of(getattr(thing, name), names, name) for name in known]
    return (kind.__name__, *found)


_ATTRIBUTES: dict[type, tuple[str, ...]] = {}


def of_text(text: str, names: Names) -> str:
    found = SPOKEN.match(text) if names else None
    if found is None:
        return text
    before, id, after = found.groups()
    return f"{before}{names.get(int(id), int(id))}{after}"


def of_bytes(value: bytes, names: Names) -> bytes:
    """Return a directory id: a letter 16 times, the upper or lower one that its replica has."""
    if len(value) != 16 or value[0] < 64:
        return value
    case = 96 if value[0] > 96 else 64
    return bytes([names.get(value[0] - case, value[0] - case) + case]) * 16


def of_voters(voters: VoterSet, names: Names) -> Any:
    return tuple(sorted(content_of(each, names) for each in voters))


def of_acknowledged(found: Acknowledged, names: Names) -> Any:
    offsets = [(names.get(id, id), found.get(slot)) for slot, id in enumerate(found.voter_ids)]
    return tuple(sorted(offsets))


def of_endpoint(endpoint: Endpoint, names: Names) -> Any:
    port = endpoint.port
    return endpoint.name, of_text(endpoint.host, names), names.get(port - 9000, port - 9000)


def of_peers(peers: RequestManager, names: Names) -> Any:
    fetching = peers.fetching.id if peers.fetching is not None else 0
    return names.get(fetching, fetching), content_of(peers._peers, names, "_peers")


PLAIN: dict[type, Callable[[Any, Names], Any]] = {
    type(None): lambda thing, names: None,
    float: lambda thing, names: thing,
    str: of_text,
    bytes: of_bytes,
    VoterSet: of_voters,
    Acknowledged: of_acknowledged,
    EpochTrail: lambda trail, names: trail.entries,
    Endpoint: of_endpoint,
    RequestManager: of_peers,
    QuorumConfig: lambda config, names: 0,
}


def content_print(thing: Any, names: Names = THE_SAME) -> int:
    """Return 64 bits that stand for the content, the same in every process and form."""
    return print_of(marshal.dumps(content_of(thing, names), 2))
