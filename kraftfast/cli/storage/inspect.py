"""``kraftfast storage inspect``: replicas that do not run, side by side."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options

if TYPE_CHECKING:
    from kraftfast.errors import KraftfastError
    from kraftfast.node.storage.stored_replica import StoredReplica


@click.command()
@click.argument(
    "paths", metavar="DIR...", nargs=-1, required=True, type=options.Existing(file_okay=False)
)
@options.as_json
def inspect(paths: tuple[str, ...], as_json: bool) -> None:
    """Show what each replica's directory holds: epoch, vote, offsets, voters, snapshots.

    DIR is a replica's directory, or that of a whole quorum. Nothing is changed. Damage of a log, or
    a quorum-state that cannot be that of its log, is exit code 33, after what the others hold.
    """
    found, faults = looked_at(replicas_of(paths))
    if as_json:
        click.echo(json.dumps([as_dict(each) for each in found]))
    elif found:
        show(found)
    if len(faults) > 1 and not as_json:
        for fault in faults:
            click.echo(f"cannot start: {fault}")
    if faults:
        raise faults[0]


def looked_at(paths: list[tuple[int, str]]) -> tuple[list[StoredReplica], list[KraftfastError]]:
    """Return the replicas that can be read, and what is wrong with each that a start refuses."""
    from kraftfast.errors import KraftfastError
    from kraftfast.node.storage.stored_replica import stored_replica

    found: list[StoredReplica] = []
    faults: list[KraftfastError] = []
    for _, path in paths:
        try:
            each = stored_replica(path)
        except KraftfastError as error:
            faults.append(error)
            continue
        found.append(each)
        fault = misplaced(each)
        if fault is not None:
            faults.append(fault)
        if each.state_fault is not None:
            faults.append(each.state_fault)
    return found, faults


def misplaced(each: StoredReplica) -> KraftfastError | None:
    """Return why the quorum of this host in which a directory has a place would not start it."""
    from kraftfast.errors import ForeignDirectory, KraftfastError
    from kraftfast.node.storage.description import read_description
    from kraftfast.node.storage.local_layout import replica_directories

    path, meta = os.path.abspath(each.path), each.meta
    home = os.path.dirname(path)
    try:
        quorum = read_description(home)
    except KraftfastError:
        return None
    ids = [id for id, at in replica_directories(home, quorum.replicas).items() if at == path]
    if ids and meta.node_id not in ids:
        return ForeignDirectory(f"{each.path} belongs to node {meta.node_id}, not {ids[0]}")
    if ids and meta.cluster_id != quorum.cluster_id:
        return ForeignDirectory(
            f"{each.path} belongs to cluster {meta.cluster_id}, not {quorum.cluster_id}"
        )
    return None


def replicas_of(paths: tuple[str, ...]) -> list[tuple[int, str]]:
    """Return the replicas' ids, by the quorum's directory, and directories. Raises NotFormatted."""
    from kraftfast.connected import directories_of

    return [each for path in paths for each in directories_of(path).items()]


def as_dict(each: StoredReplica) -> dict[str, Any]:
    """Return all that was found out, for JSON."""
    from kraftfast.types import uuid_text

    latest = each.history.latest
    voted = each.state.voted
    return {
        "directory": each.path,
        "running": each.running,
        "node_id": each.meta.node_id,
        "directory_id": uuid_text(each.meta.directory_id),
        "cluster_id": each.meta.cluster_id,
        "durability": each.options.durability,
        "topic": each.options.topic,
        "epoch": each.state.epoch,
        "leader_id": each.state.leader_id,
        "state_fault": None if each.state_fault is None else str(each.state_fault),
        "voted_id": -1 if voted is None else voted.id,
        "voted_directory_id": None if voted is None else uuid_text(voted.directory_id),
        "log_start_offset": each.log_start_offset,
        "end_offset": each.end_offset,
        "last_epoch": each.last_epoch,
        "possibly_acknowledged": each.phantom_tail,
        "kraft_version": each.history.kraft_version,
        "voters": [
            {
                "id": voter.id,
                "directory_id": uuid_text(voter.directory_id),
                "endpoints": [endpoint.text for endpoint in voter.endpoints],
            }
            for voter in (() if latest is None else latest.voters)
        ],
        "static_voters": each.static_voter_ids,
        "target": None if latest is None else latest.target,
        "snapshots": each.snapshots,
    }


def show(found: list[StoredReplica]) -> None:
    """Show the same for people: a line a replica, and what else there is to say."""
    from kraftfast.cli.show import put, table
    from kraftfast.node.storage.local_layout import on_one_device, shared_device_text

    made = table(
        "NodeId", "Epoch", "Leader", "Voted", "LogStartOffset", "LogEndOffset", "LastEpoch",
        "Voters", "Snapshots", left=1,
    )  # fmt: skip
    for each in found:
        voted = "" if each.state.voted is None else str(each.state.voted.id)
        leader = "" if each.state.leader_id < 0 else str(each.state.leader_id)
        ends = (each.log_start_offset, each.end_offset, each.last_epoch)
        snapshots = ", ".join(f"{offset}-{epoch}" for offset, epoch in each.snapshots)
        made.add_row(
            str(each.meta.node_id), str(each.state.epoch), leader, voted, *map(str, ends),
            voters_text(each), snapshots,
        )  # fmt: skip
    put(made)
    for each in found:
        for line in remarks(each):
            click.echo(f"replica {each.meta.node_id} ({os.path.relpath(each.path)}): {line}")
    for ids in on_one_device({each.meta.node_id: each.path for each in found}):
        click.echo(shared_device_text(ids))


def voters_text(each: StoredReplica) -> str:
    """Return who votes, by id."""
    ids = each.voter_ids
    return "as configured" if ids is None else ",".join(map(str, ids))


def remarks(each: StoredReplica) -> list[str]:
    """Return what is out of the ordinary about a replica."""
    said = []
    if each.running:
        said.append("a process runs it: what is shown may be old by now")
    if each.phantom_tail is not None:
        offset, epoch = each.phantom_tail
        said.append(
            f"records up to offset {offset}, epoch {epoch} may have been acknowledged and are not "
            "here: it votes for no shorter log until it has them again"
        )
    latest = each.history.latest
    if latest is not None and latest.target is not None:
        said.append(f"on its way to the voters {', '.join(map(str, latest.target))}")
    return said
