"""What ``quorum.json`` must say where it was lost: by the replicas that are there."""

from __future__ import annotations

import os

import msgspec

from kraftfast.errors import ForeignDirectory, KraftfastError
from kraftfast.node.storage.description import DESCRIPTION, Description
from kraftfast.node.storage.storage_host import HOST, DiskHost
from kraftfast.node.storage.stored_replica import StoredReplica, stored_replica


def lost_description(path: str, host: DiskHost = HOST) -> Description | None:
    """Return the description that the replicas in ``path`` amount to; None if there are none.

    The replica with the longest log says which replicas vote, and at which ``kraft.version``.
    Raises ForeignDirectory if they belong to different clusters.
    """
    found: dict[int, StoredReplica] = {}
    for name in host.disk.list_directory(path):
        if not name.isdecimal():
            continue
        try:
            each = stored_replica(os.path.join(path, name), host.disk)
        except (KraftfastError, AssertionError):
            continue
        if str(each.meta.node_id) == name:
            found[each.meta.node_id] = each
    if not found:
        return None
    if len({each.meta.cluster_id for each in found.values()}) > 1:
        raise ForeignDirectory(f"{path} holds replicas of different clusters, and no {DESCRIPTION}")
    newest = max(found.values(), key=lambda each: each.place)
    voters = sorted(newest.voter_ids or found)
    promised = newest.options
    return Description(
        newest.meta.cluster_id,
        voters,
        promised.durability,
        promised.records,
        promised.topic,
        added=sorted(set(found) - set(voters)),
        kraft_version=newest.history.kraft_version,
    )


def advice(path: str, host: DiskHost = HOST) -> str:
    """Return what to do about a ``quorum.json`` that is gone or damaged; empty: there is none."""
    description = lost_description(path, host)
    if description is None:
        return ""
    text = msgspec.json.encode(description).decode()
    return f"put {DESCRIPTION} back; by what the replicas hold it is {text}"
