"""The small values that every floor speaks of. Immutable, comparable, without behaviour of I/O.

Kafka's words: epoch, offset, directory id, voter. Offsets are exclusive ends everywhere.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from kraftfast import limits
from kraftfast.errors import InvalidOption

Uuid = bytes
"""A 16-byte id as on the wire (most significant long first); its text is :func:`uuid_text`."""

ZERO_UUID: Uuid = bytes(16)
"""Absent directory id."""

METADATA_TOPIC = "__cluster_metadata"
METADATA_TOPIC_ID: Uuid = bytes(15) + b"\x01"
METADATA_PARTITION = 0

SOCKET_NAME = "replica.sock"
"""In the directory of a replica that runs: where its host's processes reach it."""

NO_EPOCH = -1
NO_OFFSET = -1
NO_NODE = -1


def uuid_text(uuid: Uuid) -> str:
    """Return URL-safe base64 without padding, 22 characters (Kafka's ``Uuid.toString``).

    >>> uuid_text(METADATA_TOPIC_ID)
    'AAAAAAAAAAAAAAAAAAAAAQ'
    """
    return base64.urlsafe_b64encode(uuid).rstrip(b"=").decode()


def uuid_from_text(text: str) -> Uuid:
    """Return the 16 bytes of :func:`uuid_text`. Raises ``ValueError`` for anything else.

    >>> uuid_from_text('AAAAAAAAAAAAAAAAAAAAAQ') == METADATA_TOPIC_ID
    True
    """
    try:
        raw = base64.b64decode(text + "==", altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if len(text) != 22 or len(raw) != 16:
        raise ValueError(f"not a base64 id of 22 characters: {text!r}")
    return raw


HOST_CHARACTERS = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.")
HOST_LABEL_CHARACTERS_MAX = 63
HOST_CHARACTERS_MAX = 253


Address = tuple[str, int]
"""Host and TCP port."""


def address_from_text(text: str, port_min: int = 1, *, any_host: bool = False) -> Address:
    """Return the host and port of ``host:port``, or of ``[host]:port`` with an IPv6 address.

    ``any_host``: the host may be missing, as where every address of this host is listened on.
    Raises ``ValueError``.

    >>> address_from_text("localhost:9092"), address_from_text("[::1]:9093")
    (('localhost', 9092), ('::1', 9093))
    """
    host, colon, port = text.rpartition(":")
    digits = port.isascii() and port.isdecimal() and len(port) <= 5
    if not colon or not digits or not port_min <= int(port) < 65536:
        raise ValueError(f"{text!r} is not host:port, with a port from {port_min} to 65535")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
        if ":" not in host:
            raise ValueError(f"{text!r}: brackets are for IPv6 addresses")
    if ":" in host:
        import ipaddress  # most hosts have a name

        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"{text!r}: {host!r} is no IPv6 address") from None
    elif not HOST_CHARACTERS.issuperset(host) or len(host) > HOST_CHARACTERS_MAX:
        raise ValueError(f"{text!r}: {host!r} is no host name")
    elif not host and not any_host:
        raise ValueError(f"{text!r}: the host is missing")
    elif any(not 0 < len(part) <= HOST_LABEL_CHARACTERS_MAX for part in _labels(host)):
        raise ValueError(f"{text!r}: a part of {host!r} is empty or longer than 63 characters")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Return whether only this host reaches a listener; an empty host is every address (S2)."""
    import ipaddress

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def address_text(host: str, port: int) -> str:
    """Return ``host:port``, an IPv6 host in brackets, as :func:`address_from_text` reads it.

    >>> address_text("localhost", 9092), address_text("::1", 9093)
    ('localhost:9092', '[::1]:9093')
    """
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def _labels(host: str) -> list[str]:
    return host.removesuffix(".").split(".") if host else []


class OffsetAndEpoch(NamedTuple):
    """A place in a log: an offset (often an exclusive end), and the epoch of the record before."""

    offset: int
    epoch: int


class ReplicaKey(NamedTuple):
    """A replica as votes and fetches name it; a zero directory id means "not told"."""

    id: int
    directory_id: Uuid = ZERO_UUID


class Endpoint(NamedTuple):
    """Where a listener of a replica can be reached; names are upper-case as Kafka writes them."""

    name: str
    host: str
    port: int

    @property
    def text(self) -> str:
        """``NAME://host:port``, as Kafka writes it."""
        return f"{self.name}://{address_text(self.host, self.port)}"


class Voter(NamedTuple):
    """One entry of a voter set (KIP-853 VotersRecord; static voters have no directory id)."""

    id: int
    directory_id: Uuid = ZERO_UUID
    endpoints: tuple[Endpoint, ...] = ()
    kraft_version_min: int = 0
    kraft_version_max: int = 0

    @property
    def key(self) -> ReplicaKey:
        """Id and directory id together."""
        return ReplicaKey(self.id, self.directory_id)


class VoterSet:
    """The voters in force (KIP-853; static voters of KIP-595 have no directory ids).

    Immutable. An empty set is that of an observer which does not know its voters yet.
    Raises ``InvalidOption`` for a negative or doubled id and above ``limits.VOTERS_MAX`` voters.
    """

    stored: tuple[Voter, ...]  # in the order of their record, which no decision rests on
    voters: tuple[Voter, ...]  # by ascending id
    ids: tuple[int, ...]  # the same order
    majority: int  # more than half; 1 for an empty set, which has none

    def __init__(self, voters: Iterable[Voter] = ()) -> None:
        self.stored = tuple(voters)
        self.voters = tuple(sorted(self.stored, key=lambda voter: voter.id))
        self.ids = tuple(voter.id for voter in self.voters)
        self.majority = len(self.voters) // 2 + 1
        self._by_id = {voter.id: voter for voter in self.voters}
        if len(self.voters) > limits.VOTERS_MAX:
            raise InvalidOption(f"{len(self.voters)} voters: at most {limits.VOTERS_MAX}")
        if len(self._by_id) != len(self.voters):
            raise InvalidOption(f"a voter id is named twice: {self.ids}")
        if self.ids and self.ids[0] < 0:
            raise InvalidOption(f"a voter id is negative: {self.ids}")

    @classmethod
    def of(cls, *ids: int) -> VoterSet:
        """Return static voters without directory ids and endpoints.

        >>> VoterSet.of(3, 1, 2).ids
        (1, 2, 3)
        """
        return cls(Voter(id) for id in ids)

    def is_voter(self, key: ReplicaKey) -> bool:
        """Return whether this replica is a voter, by id and by the set's directory if any (D19)."""
        voter = self._by_id.get(key.id)
        if voter is None:
            return False
        return voter.directory_id in (ZERO_UUID, key.directory_id)

    def get(self, voter_id: int) -> Voter | None:
        """Return the entry of this id, whatever its directory."""
        return self._by_id.get(voter_id)

    @property
    def keys(self) -> tuple[ReplicaKey, ...]:
        """All voters as requests address them."""
        return tuple(voter.key for voter in self.voters)

    def with_voter(self, voter: Voter) -> VoterSet:
        """Return this set and ``voter``, instead of an entry of the same id."""
        others = [each for each in self.voters if each.id != voter.id]
        return VoterSet(sorted([*others, voter], key=lambda each: each.id))

    def without(self, voter_id: int) -> VoterSet:
        """Return this set but for one."""
        return VoterSet(each for each in self.voters if each.id != voter_id)

    def supports(self, kraft_version: int) -> bool:
        """Return whether every voter takes this ``kraft.version``."""
        return all(
            each.kraft_version_min <= kraft_version <= each.kraft_version_max
            for each in self.voters
        )

    def is_only_voter(self, key: ReplicaKey) -> bool:
        """Return whether this replica is the whole set."""
        return len(self.voters) == 1 and self.is_voter(key)

    def key(self, voter_id: int) -> ReplicaKey:
        """Return the voter as requests address it; a zero directory id where the set has none."""
        return self._by_id[voter_id].key

    def endpoints(self, voter_id: int) -> tuple[Endpoint, ...]:
        """Return where the voter listens; empty for one that is not in the set."""
        voter = self._by_id.get(voter_id)
        return () if voter is None else voter.endpoints

    def others(self, key: ReplicaKey) -> tuple[int, ...]:
        """Return the ids of all voters but this replica."""
        return tuple(id for id in self.ids if id != key.id)

    def rank(self, voter_id: int, without: int) -> int:
        """Return the voter's place by id, from 0, when the voter ``without`` does not count."""
        return sum(1 for id in self.ids if id < voter_id and id != without)

    def __contains__(self, voter_id: int) -> bool:
        return voter_id in self._by_id

    def __iter__(self) -> Iterator[Voter]:
        return iter(self.voters)

    def __len__(self) -> int:
        return len(self.voters)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, VoterSet) and self.voters == other.voters

    def __hash__(self) -> int:
        return hash(self.voters)

    def __repr__(self) -> str:
        return f"VoterSet{self.ids}"


class ElectionState(NamedTuple):
    """What a replica must never forget about elections: the content of ``quorum-state`` (D5).

    Invariants over time (I9): ``epoch`` never falls; within an epoch ``voted`` never changes from
    one replica to another and ``leader_id`` never from one to another.
    """

    epoch: int = 0
    leader_id: int = NO_NODE  # -1: not known, or not elected
    voted: ReplicaKey | None = None  # a zero directory id: any directory of that id
    superseded: bool = False  # the configured voters never count again (D23)
    was_voter: bool = False  # a removed voter must not rejoin by itself (KAFKA-19850)


Tags = tuple[tuple[int, bytes], ...]
"""Tagged fields in the order of their numbers, contents not interpreted."""


class LeaderChange(NamedTuple):
    """A leader's first record of its epoch (KIP-595).

    ``version`` 1 exists in Kafka's schema and carries directory ids, but Kafka writes 0.
    """

    leader_id: int
    voters: tuple[ReplicaKey, ...]
    granting_voters: tuple[ReplicaKey, ...]
    version: int = 0
    tags: Tags = ()

    @classmethod
    def of(
        cls, leader_id: int, voter_ids: Iterable[int], granting_ids: Iterable[int]
    ) -> LeaderChange:
        """Return the record of version 0, which names voters by their ids."""
        voters, granting = map(ReplicaKey, voter_ids), map(ReplicaKey, granting_ids)
        return cls(leader_id, tuple(voters), tuple(granting))


class KRaftVersion(NamedTuple):
    """``kraft.version`` from here on: 0 static voters, 1 voters in the log (KIP-853)."""

    kraft_version: int
    tags: Tags = ()


class KRaftVoters(NamedTuple):
    """The voter set from here on, in force as soon as it is appended (KIP-853).

    ``target``: the ids that a reassignment is on the way to (KIP-642); None: none is under way. A
    record without it ends the reassignment.
    """

    voters: VoterSet
    target: tuple[int, ...] | None = None
    tags: Tags = ()
