"""``kraftfast storage recover``: one replica goes on alone, after a majority was lost."""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options

if TYPE_CHECKING:
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.node.storage.stored_replica import StoredReplica
    from kraftfast.types import Endpoint


@click.command()
@click.argument(
    "paths", metavar="DIR...", nargs=-1, required=True, type=options.Existing(file_okay=False)
)
@click.option(
    "--config",
    "-c",
    type=options.PlacePath(dir_okay=False),
    help="The server.properties of the replica that continues: where others will reach it.",
)
@click.option(
    "--dry-run", is_flag=True, help="Only show what would be done, and what would be lost."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@options.as_json
def recover(
    paths: tuple[str, ...], config: str | None, dry_run: bool, yes: bool, as_json: bool
) -> None:
    """Make the replica with the longest log the only voter of its quorum.

    For a quorum whose majority will never come back: DIR... are the directories that are left, none
    of them in use. Records that only the lost ones held are lost. Afterwards start this replica
    first. Then make every other one again: remove controller.quorum.voters from its
    server.properties and name this replica in controller.quorum.bootstrap.servers, format its
    directory with --no-initial-controllers, start it, and run kraftfast quorum add-controller. A
    replica that is formatted as it first was may begin a second quorum.
    """
    from kraftfast.cli.server_properties import read_server
    from kraftfast.log.recovery import LogSettings
    from kraftfast.node.storage.recovering import make_sole_voter, next_epoch

    directories = folded(paths)
    found, chosen = look(directories)
    node = read_server(config).node if config is not None else None
    endpoints = where(chosen, node)
    plan: dict[str, Any] = {
        "directory": chosen.path,
        "node_id": chosen.meta.node_id,
        "voters_before": chosen.voter_ids,
        "end_offset": chosen.end_offset,
        "last_epoch": chosen.last_epoch,
        "epoch": next_epoch(chosen),
        "possibly_acknowledged": chosen.phantom_tail,
        "done": False,
    }
    if not as_json or not (dry_run or yes):
        for line in explained(chosen, found):
            click.echo(line, err=as_json)
    if not dry_run and (yes or confirmed(chosen)):
        durability = chosen.options.durability
        if node is None:
            settings = LogSettings(how="mapped" if durability == "memory" else "written")
        else:
            settings = node.log_settings(durability)
        with kept_stopped(chosen, found):
            refuse_used(found, look(directories)[0])
            plan["set_aside"] = set_aside(chosen, found)  # first: they must not lead beside it
            plan["end_offset_after"] = make_sole_voter(chosen, endpoints, settings)
        plan["done"] = True
    if as_json:
        click.echo(json.dumps(plan))
    elif plan["done"]:
        for directory in plan["set_aside"]:
            click.echo(f"set aside: {directory}")
        click.echo(f"replica {chosen.meta.node_id} is the only voter from epoch {plan['epoch']} on")
    else:
        click.echo("nothing was changed")


def folded(paths: tuple[str, ...]) -> tuple[str, ...]:
    """Return the directories of the replicas, each once; say which were named twice."""
    from kraftfast.cli.storage.inspect import replicas_of

    kept: dict[str, str] = {}
    for _, path in replicas_of(paths):
        real = os.path.realpath(path)
        if real in kept:
            click.echo(f"kraftfast: {path} is {kept[real]}, which was named already", err=True)
        kept.setdefault(real, path)
    return tuple(kept.values())


def look(directories: tuple[str, ...]) -> tuple[list[StoredReplica], StoredReplica]:
    """Return the replicas that are left, and the one that continues. Raises as :func:`choose`,
    ForeignDirectory for one that its quorum would not start.
    """
    from kraftfast.cli.storage.inspect import misplaced
    from kraftfast.node.storage.stored_replica import stored_replica

    found = [stored_replica(path) for path in directories]
    chosen = choose(found)
    for each in found:
        fault = misplaced(each)
        if fault is not None:
            raise fault
    refuse_longer(chosen, found)
    return found, chosen


def refuse_longer(chosen: StoredReplica, found: list[StoredReplica]) -> None:
    """Raise InvalidOption if a replica that is not named would be set aside with a longer log.

    One that cannot be read could not continue. Raises DirectoryInUse if it runs.
    """
    from kraftfast.errors import InvalidOption, KraftfastError
    from kraftfast.node.storage.stored_replica import stored_replica

    named = {os.path.realpath(each.path) for each in found}
    home = home_of(chosen, found)
    for path in () if home is None else replicas_in(home).values():
        if os.path.realpath(path) in named:
            continue
        try:
            each = stored_replica(path)
        except (KraftfastError, AssertionError):
            continue
        refuse_running(each)
        if each.meta.cluster_id == chosen.meta.cluster_id and each.place > chosen.place:
            raise InvalidOption(
                f"{path} has a longer log than {chosen.path}: it ends at offset "
                f"{each.end_offset}, epoch {each.last_epoch}; name it, too, or rename it if it "
                "must not count"
            )


def refuse_used(found: list[StoredReplica], now: list[StoredReplica]) -> None:
    """Raise DirectoryInUse if a replica is not what was shown: another may have more by now."""
    from kraftfast.errors import DirectoryInUse

    for before, each in zip(found, now, strict=True):
        if (before.path, before.place, before.state) != (each.path, each.place, each.state):
            raise DirectoryInUse(f"{each.path} was used since this was shown: run it again")


def refuse_running(each: StoredReplica) -> None:
    """Raise DirectoryInUse if a process runs this replica."""
    from kraftfast.errors import DirectoryInUse

    if each.running:
        raise DirectoryInUse(f"a process runs {each.path}: stop it first")


def choose(found: list[StoredReplica]) -> StoredReplica:
    """Return the replica with the longest log, of equal ones the one that begins first.

    Raises DirectoryInUse, InvalidOption.
    """
    from kraftfast.errors import InvalidOption

    for each in found:
        refuse_running(each)
    clusters = {each.meta.cluster_id for each in found}
    if len(clusters) > 1:
        raise InvalidOption(f"these belong to different clusters: {', '.join(sorted(clusters))}")
    chosen = max(found, key=lambda each: (each.place, -each.log_start_offset))
    only_voter = chosen.voter_ids == (chosen.meta.node_id,)
    if len(found) == 1 and only_voter and chosen.state_fault is None:
        raise InvalidOption(f"{chosen.path} belongs to the only voter already")
    return chosen


def where(chosen: StoredReplica, node: NodeConfig | None) -> tuple[Endpoint, ...]:
    """Return where others will reach it; empty: as its voter set says. Raises InvalidOption."""
    from kraftfast.errors import ForeignDirectory

    if node is None:
        return ()
    if node.node_id != chosen.meta.node_id:
        raise ForeignDirectory(
            f"{chosen.path} belongs to node {chosen.meta.node_id}, not {node.node_id}"
        )
    return node.endpoints


@contextlib.contextmanager
def kept_stopped(chosen: StoredReplica, found: list[StoredReplica]) -> Iterator[None]:
    """Keep the quorum of this host that it belongs to from being started. Raises DirectoryInUse.

    Where a link leads to its directory, another path may name it: what was named is held itself.
    """
    from kraftfast.node.storage.description import run_lock
    from kraftfast.node.storage.held_directory import HeldDirectory

    home = home_of(chosen, found)
    with contextlib.ExitStack() as held:
        if home is not None:
            held.enter_context(run_lock(home))
        for each in {os.path.realpath(each.path): each for each in found}.values():
            held.enter_context(HeldDirectory().take(each.path))
        yield


def set_aside(chosen: StoredReplica, found: list[StoredReplica]) -> list[str]:
    """Rename the other directories of a quorum of this host; return their new names."""
    from kraftfast.node.storage.local_layout import set_others_aside

    home = home_of(chosen, found)
    return [] if home is None else set_others_aside(home, chosen.meta.node_id)


def home_of(chosen: StoredReplica, found: list[StoredReplica]) -> str | None:
    """Return the directory of its quorum of this host; None: no path that was named leads there.

    A replica's directory there may be a link, or a link may have been named.
    """
    id = chosen.meta.node_id
    named = (chosen.path, *(each.path for each in found))
    for path in (*named, *map(os.path.realpath, named)):
        home = os.path.dirname(path)
        with contextlib.suppress(OSError):
            if id in replicas_in(home) and os.path.samefile(replicas_in(home)[id], chosen.path):
                return home
    return None


def replicas_in(home: str) -> dict[int, str]:
    """Return the directories of the quorum of this host in ``home``; empty if there is none."""
    from kraftfast.errors import NotFormatted
    from kraftfast.node.storage.description import read_description
    from kraftfast.node.storage.local_layout import replica_directories

    try:
        return replica_directories(home, read_description(home).replicas)
    except NotFormatted:
        return {}


def explained(chosen: StoredReplica, found: list[StoredReplica]) -> Iterator[str]:
    """Yield what will be done, and what it gives up."""
    from kraftfast.node.witness import is_witness

    id, others = chosen.meta.node_id, [each for each in found if each is not chosen]
    voters = (
        "those of its configuration"
        if chosen.voter_ids is None
        else ", ".join(map(str, chosen.voter_ids))
    )
    yield f"replica {id} of cluster {chosen.meta.cluster_id}: {chosen.path}"
    yield f"  its voters so far: {voters}"
    yield f"  its log {extent(chosen)}"
    if chosen.state_fault is not None:
        yield f"  its vote is lost: {chosen.state_fault}"
    for each in others:
        yield (
            f"  replica {each.meta.node_id} {extent(each)}: what it holds before or behind that "
            "log is lost"
        )
    if home_of(chosen, found) is None:
        yield "  no quorum.json beside it names it: no other directory is set aside; if a link in a"
        yield "    quorum's directory leads here, name that link instead"
    yield "From now on this log counts as the committed one: records here that never were committed"
    yield "are committed with it. What is lost:"
    yield "  - every record that the others committed and this log does not hold; it is unknown"
    yield "    whether there is one"
    if chosen.phantom_tail is not None:
        offset, epoch = chosen.phantom_tail
        yield f"  - records up to offset {offset}, epoch {epoch}, which may have been acknowledged"
    if is_witness(chosen.options.records):
        yield "  - a leader, until it is started with kraftfast.campaign=true: it is a witness of"
        yield "    Kafka's controllers (records=kafka-raft), which never leads unless it is told"
    yield "  - the other replicas as they are: never start them again from their directories, which"
    yield "    are set aside here if they belong to a quorum of this host. Once this replica runs,"
    yield "    give them controller.quorum.bootstrap.servers in place of controller.quorum.voters,"
    yield "    format them with --no-initial-controllers, start them, and add them with kraftfast"
    yield "    quorum add-controller; formatted as they first were they may begin a second quorum"


def extent(each: StoredReplica) -> str:
    """Return where its log begins and ends, in words."""
    return (
        f"begins at offset {each.log_start_offset} and ends at offset {each.end_offset}, epoch "
        f"{each.last_epoch}"
    )


def confirmed(chosen: StoredReplica) -> bool:
    """Return whether the operator types its id. Raises UsageError without a terminal."""
    id = chosen.meta.node_id
    return asked(id).strip() == str(id)


def asked(id: int) -> str:
    """Return what is typed. Raises UsageError."""
    if not sys.stdin.isatty():
        raise click.UsageError(
            "stdin is no terminal, so nothing can be confirmed: pass --yes, or --dry-run"
        )
    return str(click.prompt(f"Type {id} to go on, anything else to leave it", err=True))
