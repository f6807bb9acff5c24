"""Control records: what leaders and snapshots write into the log about the quorum itself.

A control record is an ordinary one in a batch with the control attribute: its key is a version and
a type, its value a small flexible structure. Values are written at version 0, as Kafka does;
unknown tagged fields are skipped inside them, and kept at their end.

Sources: KIP-595 (LeaderChange), KIP-630 (snapshots), KIP-853 (versions, voters); Kafka's
``ControlRecordType``, ``ControlRecordUtils`` and the JSON schemas of the values.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final, NamedTuple, TypeVar

from kraftfast import errors, limits, varints
from kraftfast.record import pure
from kraftfast.record.shapes import Record
from kraftfast.types import (
    Endpoint,
    KRaftVersion,
    KRaftVoters,
    LeaderChange,
    ReplicaKey,
    Tags,
    Voter,
    VoterSet,
)

TARGET: Final = 10003
"""The tagged field of KRaftVoters with its ``target``: ids as big-endian 32-bit numbers. It is
ours, and Kafka skips it; ``wire/tags.py`` has the others."""

T = TypeVar("T")


class ControlType(IntEnum):
    """The type in the key of a control record. Kafka knows 0 and 1 too: ends of transactions."""

    LEADER_CHANGE = 2
    SNAPSHOT_HEADER = 3
    SNAPSHOT_FOOTER = 4
    KRAFT_VERSION = 5
    KRAFT_VOTERS = 6


class SnapshotHeader(NamedTuple):
    """First record of a snapshot; the timestamp (ms) is that of the last batch it replaces."""

    last_contained_log_timestamp: int
    tags: Tags = ()


class SnapshotFooter(NamedTuple):
    """Last record of a snapshot."""

    tags: Tags = ()


class OtherControl(NamedTuple):
    """A control record that does not concern the quorum, or of a type made after this code."""

    type: int
    value: bytes | None


ControlRecord = (
    LeaderChange | SnapshotHeader | SnapshotFooter | KRaftVersion | KRaftVoters | OtherControl
)


# --- reading, bounded (S7) ---


def _corrupt(reason: str) -> errors.CorruptBatch:
    return errors.CorruptBatch(f"control record: {reason}", reason=f"control record: {reason}")


class _Reader:
    """A cursor over a value; what is not there or not canonical is a corrupt record."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.at = 0

    @property
    def left(self) -> int:
        return len(self.data) - self.at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise _corrupt(f"{size} bytes wanted, {self.left} left")
        self.at += size
        return self.data[self.at - size : self.at]

    def integer(self, size: int, signed: bool = True) -> int:
        return int.from_bytes(self.take(size), "big", signed=signed)

    def uvarint(self) -> int:
        try:
            value, self.at = varints.read(self.data, self.at, len(self.data))
        except ValueError as error:
            raise _corrupt(str(error)) from None
        return value

    def string(self) -> str:
        size = self.uvarint() - 1
        if size < 0:
            raise _corrupt("null where a string is wanted")
        try:
            return self.take(size).decode()
        except UnicodeDecodeError:
            raise _corrupt("string is not UTF-8") from None

    def array(self, item: Callable[[_Reader], T], item_bytes_min: int) -> tuple[T, ...]:
        count = self.uvarint() - 1
        if not 0 <= count <= self.left // item_bytes_min:
            raise _corrupt(f"array of {count} in {self.left} bytes")
        return tuple(item(self) for _ in range(count))

    def tags(self) -> Tags:
        count = self.uvarint()
        if count > limits.TAGGED_FIELDS_MAX:
            raise _corrupt(f"{count} tagged fields")
        tags: list[tuple[int, bytes]] = []
        for _ in range(count):
            tag, size = self.uvarint(), self.uvarint()
            if tags and tag <= tags[-1][0]:
                raise _corrupt("tagged fields out of order")
            if size > limits.TAGGED_FIELD_BYTES_MAX:
                raise _corrupt(f"tagged field of {size} bytes")
            tags.append((tag, self.take(size)))
        return tuple(tags)

    def version(self, latest: int = 0) -> int:
        version = self.integer(2)
        if not 0 <= version <= latest:
            raise errors.UnsupportedVersion(f"control record of version {version}")
        return version


def _read_voter_id(reader: _Reader) -> ReplicaKey:
    key = ReplicaKey(reader.integer(4))
    reader.tags()
    return key


def _read_voter_key(reader: _Reader) -> ReplicaKey:
    key = ReplicaKey(reader.integer(4), reader.take(16))
    reader.tags()
    return key


def _read_leader_change(reader: _Reader) -> LeaderChange:
    version = reader.version(latest=1)
    leader_id = reader.integer(4)
    item, item_bytes_min = (_read_voter_key, 21) if version else (_read_voter_id, 5)
    voters = reader.array(item, item_bytes_min)
    granting = reader.array(item, item_bytes_min)
    return LeaderChange(leader_id, voters, granting, version, reader.tags())


def _read_snapshot_header(reader: _Reader) -> SnapshotHeader:
    reader.version()
    return SnapshotHeader(reader.integer(8), reader.tags())


def _read_snapshot_footer(reader: _Reader) -> SnapshotFooter:
    reader.version()
    return SnapshotFooter(reader.tags())


def _read_kraft_version(reader: _Reader) -> KRaftVersion:
    reader.version()
    return KRaftVersion(reader.integer(2), reader.tags())


def _read_endpoint(reader: _Reader) -> Endpoint:
    # Names count without their case; Kafka has them in upper case once they were read.
    endpoint = Endpoint(reader.string().upper(), reader.string(), reader.integer(2, signed=False))
    reader.tags()
    return endpoint


def _read_voter(reader: _Reader) -> Voter:
    voter_id, directory_id = reader.integer(4), reader.take(16)
    endpoints = reader.array(_read_endpoint, 5)
    version_min, version_max = reader.integer(2), reader.integer(2)
    reader.tags()  # of the version range
    reader.tags()
    return Voter(voter_id, directory_id, endpoints, version_min, version_max)


def _read_kraft_voters(reader: _Reader) -> KRaftVoters:
    reader.version()
    voters, tags = reader.array(_read_voter, 27), reader.tags()
    raw = dict(tags).get(TARGET)
    others = tuple(each for each in tags if each[0] != TARGET)
    try:
        target = None if raw is None else struct.unpack(f">{len(raw) // 4}i", raw)
        return KRaftVoters(VoterSet(voters), target, others)
    except (errors.InvalidOption, struct.error) as error:
        raise _corrupt(str(error)) from None


_READERS: Final[dict[int, Callable[[_Reader], ControlRecord]]] = {
    ControlType.LEADER_CHANGE: _read_leader_change,
    ControlType.SNAPSHOT_HEADER: _read_snapshot_header,
    ControlType.SNAPSHOT_FOOTER: _read_snapshot_footer,
    ControlType.KRAFT_VERSION: _read_kraft_version,
    ControlType.KRAFT_VOTERS: _read_kraft_voters,
}


def decode_control(record: Record) -> ControlRecord:
    """Return what a record of a control batch says.

    Raises :class:`~kraftfast.errors.CorruptBatch` if key or value do not decode, and for voters
    that are no set, ``UnsupportedVersion`` if the value is of a version made after this code.

    >>> data = control_batch([KRaftVersion(1)], timestamp=0, leader_epoch=2)
    >>> [decode_control(record) for record in pure.check_batch(data).records()]
    [KRaftVersion(kraft_version=1, tags=())]
    """
    key = record.key or b""
    if len(key) < 4 or key[0] & 0x80:
        raise _corrupt("no version and type in the key")
    kind = int.from_bytes(key[2:4], "big", signed=True)
    if kind not in _READERS:
        return OtherControl(kind, record.value)
    reader = _Reader(record.value or b"")
    decoded = _READERS[kind](reader)
    if reader.left:
        raise _corrupt(f"{reader.left} bytes behind the value")
    return decoded


# --- writing ---


def _tags(tags: Tags) -> bytes:
    parts = [varints.encoded(len(tags))]
    for tag, data in sorted(tags):
        parts += [varints.encoded(tag), varints.encoded(len(data)), data]
    return b"".join(parts)


def _string(text: str) -> bytes:
    raw = text.encode()
    return varints.encoded(len(raw) + 1) + raw


def _array(items: Sequence[bytes]) -> bytes:
    return varints.encoded(len(items) + 1) + b"".join(items)


_NO_TAGS: Final = _tags(())


def _key(voter_id: int, directory_id: bytes) -> bytes:
    if len(directory_id) != 16:
        raise OverflowError(f"a directory id of {len(directory_id)} bytes")
    return struct.pack(">i16s", voter_id, directory_id)


def _replica(key: ReplicaKey, version: int) -> bytes:
    return (_key(*key) if version else struct.pack(">i", key.id)) + _NO_TAGS


def _endpoint(endpoint: Endpoint) -> bytes:
    name, host = _string(endpoint.name), _string(endpoint.host)
    return name + host + endpoint.port.to_bytes(2, "big") + _NO_TAGS


def _voter(voter: Voter) -> bytes:
    endpoints = _array([_endpoint(endpoint) for endpoint in voter.endpoints])
    versions = struct.pack(">hh", voter.kraft_version_min, voter.kraft_version_max) + _NO_TAGS
    return _key(voter.id, voter.directory_id) + endpoints + versions + _NO_TAGS


def _encode(record: ControlRecord) -> tuple[int, bytes]:
    """Return type and value."""
    match record:
        case LeaderChange(leader_id, voters, granting, version, tags):
            body = struct.pack(">hi", version, leader_id)
            body += _array([_replica(key, version) for key in voters])
            body += _array([_replica(key, version) for key in granting])
            return ControlType.LEADER_CHANGE, body + _tags(tags)
        case SnapshotHeader(timestamp, tags):
            return ControlType.SNAPSHOT_HEADER, struct.pack(">hq", 0, timestamp) + _tags(tags)
        case SnapshotFooter(tags):
            return ControlType.SNAPSHOT_FOOTER, struct.pack(">h", 0) + _tags(tags)
        case KRaftVersion(kraft_version, tags):
            return ControlType.KRAFT_VERSION, struct.pack(">hh", 0, kraft_version) + _tags(tags)
        case KRaftVoters(voters, target, tags):
            if target is not None:
                tags = (*tags, (TARGET, struct.pack(f">{len(target)}i", *target)))
            body = struct.pack(">h", 0) + _array([_voter(voter) for voter in voters.stored])
            return ControlType.KRAFT_VOTERS, body + _tags(tags)
        case OtherControl(kind, value):
            return kind, value or b""


def control_batch(
    records: Sequence[ControlRecord], *, timestamp: int, base_offset: int = 0, leader_epoch: int
) -> bytes:
    """Return one control batch, as Kafka's leader writes it, CRC included; ``timestamp`` in ms.

    Raises :class:`~kraftfast.errors.InvalidOption` for values that their fields cannot hold.
    """
    encoded = []
    try:
        for i, record in enumerate(records):
            kind, value = _encode(record)
            key = struct.pack(">hh", 0, kind)
            encoded.append(Record(base_offset + i, timestamp, key, value))
    except (struct.error, OverflowError, UnicodeEncodeError) as error:
        raise errors.InvalidOption(f"control record: {error}") from None
    return pure.encode_batch(encoded, leader_epoch=leader_epoch, control=True)
