"""A replica beside Kafka's own controllers (``records=kafka-raft``): a witness.

It votes, follows and acknowledges. The log belongs to Kafka's controllers: a record that is not
Kafka's metadata ends them, and so does a snapshot that lacks the metadata. So a witness
takes no records from producers, makes no snapshots, keeps those that it fetched from a leader, and
never asks to lead: only Kafka's controllers register brokers and make topics. With
``kraftfast.campaign=true`` it may lead, for instance where no other replica has all records that a
majority committed; everything else stays as it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.errors import InvalidOption
from kraftfast.log.small_files.directory import KAFKA_RAFT

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraftfast.node.node_config import NodeConfig

PRODUCES_NOTHING = (
    "it is a witness of Kafka's controllers (records=kafka-raft) and takes no records from "
    "producers: one that is not Kafka's metadata would end Kafka's controllers"
)
HOLDS_NOTHING = (
    "holds no records, and Kafka's controllers could not begin there (records=kafka-raft)"
)


def is_witness(records: str) -> bool:
    """Return whether a replica of a log that takes such records is a witness."""
    return records == KAFKA_RAFT


def start_line(campaigns: bool, config: NodeConfig) -> str:
    """Return what a witness says of itself at its start."""
    limits = (config.retention_bytes, config.retention_ms)
    leads = (
        "it may lead (kraftfast.campaign=true); while it does no broker can register"
        if campaigns
        else "it never leads (kraftfast.campaign=true lets it)"
    )
    kept = "; metadata.max.retention.* does not trim its log" if limits != (None, None) else ""
    return (
        "witness of Kafka's controllers (records=kafka-raft): it votes and acknowledges, takes no "
        f"records from producers, keeps only snapshots that it fetched from a leader; {leads}{kept}"
    )


def refuse_only_voter(
    records: str, campaigns: bool | None, ids: Iterable[int], node_id: int
) -> None:
    """Raise InvalidOption for a quorum whose only voter would be a witness: none would lead."""
    if is_witness(records) and not campaigns and list(ids) == [node_id]:
        raise InvalidOption(
            "--records kafka-raft makes a witness, which never leads, so it cannot be the only "
            "voter: let it join a quorum of Kafka's controllers (--no-initial-controllers), or set "
            "kraftfast.campaign=true"
        )


def refuse_local(records: str) -> None:
    """Raise InvalidOption for a quorum of witnesses alone: none would lead, or append to it."""
    if is_witness(records):
        raise InvalidOption(
            "records=kafka-raft makes witnesses of Kafka's controllers, which never lead and take "
            "no records from producers: format them one by one (kraftfast storage format --config "
            "FILE --records kafka-raft)"
        )
