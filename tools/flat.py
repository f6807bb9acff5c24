"""The flat forms of Fetch and Produce: what a message of one topic and one partition comes to.

The tables of ``wire/messages.py`` say all but what stands here: which arrays hold the one topic and
partition, and what a flat field is called where its name alone would not tell.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from kraftfast.wire import messages
from kraftfast.wire.notation import Field, Versions
from kraftfast.wire.schema import Message

NAMES = {
    "Topics.Partitions.PartitionIndex": "partition",
    "Topics.Partitions.Index": "partition",
    "Responses.Partitions.PartitionIndex": "partition",
    "Responses.Partitions.ErrorCode": "partition_error_code",
    "Responses.Partitions.DivergingEpoch.Epoch": "diverging_epoch",
    "Responses.Partitions.DivergingEpoch.EndOffset": "diverging_end_offset",
    "Responses.Partitions.SnapshotId.EndOffset": "snapshot_end_offset",
    "Responses.Partitions.SnapshotId.Epoch": "snapshot_epoch",
    "TopicData.Name": "topic",
    "TopicData.PartitionData.Index": "partition",
    "Responses.Name": "topic",
    "Responses.PartitionResponses.Index": "partition",
}
"""Flat names that are not the field's own, by where it stands."""

NOTES = {
    "acks": "-1 all in-sync replicas, 1 the leader, 0 no answer at all",
    "current_leader_epoch": "-1: not told",
    "diverging_epoch": "-1 with diverging_end_offset -1: not diverging",
    "durability": "0: on disk, 1: in memory only",
    "fetch_offset": "of a voter: the end of what it has flushed (D3)",
    "high_watermark": "in a request: what the asker knows; 2**63 - 1: none",
    "isolation_level": "0 read uncommitted, 1 read committed",
    "last_fetched_epoch": "-1: not told",
    "leader_id": "-1 with leader_epoch -1: not told",
    "log_append_time_ms": "-1: the records keep the producer's times",
    "observer_endpoints": "where it could be a voter",
    "observer_kraft_versions": "likewise: least and most",
    "records": "a bytes-like object, or None; decoded: a view into the frame",
    "replica_directory_id": "zero: not told",
    "replica_epoch": "of a broker's registration, -1: none",
    "replica_id": "-1: a consumer",
    "snapshot_end_offset": "-1 with snapshot_epoch -1: no snapshot",
}
"""What a flat field means, where its name alone does not tell."""


@dataclass
class Flat:
    """One flat class: of which message, and which arrays hold its one topic and partition."""

    name: str
    message: type[Message]
    sole: tuple[str, str]
    omitted: tuple[str, ...] = ()  # arrays that have no flat field: they must be empty

    @property
    def of(self) -> str:
        """The message's class as the sources name it."""
        return self.message.__name__

    @property
    def served(self) -> Versions:
        """The versions that we speak."""
        return self.message.VERSIONS

    @property
    def flexible_from(self) -> int:
        """The first version with tagged fields."""
        return self.message.FLEXIBLE.first

    def is_sole(self, field: Field) -> bool:
        """Whether this array holds the one topic, or the one partition."""
        return field.array and field.name in self.sole

    def leaves(self) -> list[Leaf]:
        """Return the flat fields in the order of the bytes, one that moved at its first place."""
        found: dict[str, Leaf] = {}
        for place in self.places(self.message.FIELDS, (), self.served):
            leaf = found.setdefault(place.attribute, Leaf(place.attribute, []))
            leaf.places.append(place)
        return list(found.values())

    def places(
        self, fields: tuple[Field, ...], path: tuple[Field, ...], versions: Versions
    ) -> Iterator[Place]:
        """Yield where values stand, structs and the sole arrays taken apart."""
        for field in fields:
            within = both(versions, field.versions)
            if field.name in self.omitted and not path:
                continue
            if field.kind == "struct" and (self.is_sole(field) or not field.array):
                yield from self.places(field.fields, (*path, field), within)
            else:
                yield Place(field, path, within)


@dataclass
class Place:
    """A field of the table that becomes a flat one, with the structs around it."""

    field: Field
    path: tuple[Field, ...]
    versions: Versions

    @property
    def attribute(self) -> str:
        """The name of the flat field."""
        where = ".".join([*(each.name for each in self.path), self.field.name])
        return NAMES.get(where, self.field.attribute)


@dataclass
class Leaf:
    """A flat field. One that Kafka moved has two places, in different versions."""

    attribute: str
    places: list[Place]

    @property
    def field(self) -> Field:
        """The field of the table, for its type and default."""
        return self.places[0].field

    def versions(self, served: Versions) -> Versions:
        """The versions that have it somewhere."""
        first = min(place.versions.first for place in self.places)
        last = max(place.versions.last for place in self.places)
        return both(served, Versions(first, last))

    @property
    def is_list(self) -> bool:
        """Whether it is an array: one with anything in it is left to the tables."""
        return self.field.array

    @property
    def default(self) -> str:
        """Its default, as Python source."""
        if self.is_list:
            return "None" if self.field.default is None else "[]"
        if self.field.default is None:
            return "None"
        if self.field.kind == "uuid":
            return "ZERO_UUID"
        if isinstance(self.field.default, int) and self.field.default > 2**16:
            return f"0x{self.field.default:X}"
        return repr(self.field.default)

    @property
    def note(self) -> str:
        """What it means, and from which version on it is there."""
        return NOTES.get(self.attribute, "")


def both(one: Versions, other: Versions) -> Versions:
    """Return the versions that are in both ranges."""
    return Versions(max(one.first, other.first), min(one.last, other.last))


FETCH = (
    Flat(
        "PartitionFetch",
        messages.FetchRequest,
        ("Topics", "Partitions"),
        ("ForgottenTopicsData",),
    ),
    Flat("PartitionFetched", messages.FetchResponse, ("Responses", "Partitions")),
)
PRODUCE = (
    Flat("PartitionProduce", messages.ProduceRequest, ("TopicData", "PartitionData")),
    Flat("PartitionProduced", messages.ProduceResponse, ("Responses", "PartitionResponses")),
)
