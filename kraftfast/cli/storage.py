"""``kraftfast storage``: directories are formatted once, before they are used."""

from __future__ import annotations

import click

from kraftfast.cli import options


@click.group()
def storage() -> None:
    """Format directories."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
    from kraftfast.log import directory
    from kraftfast.types import uuid_text

    click.echo(uuid_text(directory.random_uuid()))


@storage.command("format")
@click.option("--dir", "path", type=options.DIRECTORY, help="Format a quorum of this host here.")
@options.voters("How many voters it has [3].")
@click.option(
    "--config",
    "-c",
    type=click.Path(dir_okay=False),
    help="Format one replica: its server.properties.",
)
@click.option(
    "--cluster-id", "-t", help="The cluster's id, the same for all its replicas; see random-uuid."
)
@options.durability
@options.records
@click.option(
    "--ignore-formatted", "-g", is_flag=True, help="Leave alone what is formatted already."
)
def format_(
    path: str | None,
    voters: int | None,
    config: str | None,
    cluster_id: str | None,
    durability: str | None,
    records_mode: str | None,
    ignore_formatted: bool,
) -> None:
    """Format the directories of a whole quorum, or of one replica.

    With --dir, a quorum whose replicas all run on this host (start does this by itself). With
    --config and --cluster-id, the directory of one replica as kafka-storage does.
    """
    if (path is None) == (config is None):
        raise click.UsageError("give either --dir or --config")
    options_ = (durability or "majority", records_mode or "any")
    if path is not None:
        format_local(path, voters or 3, cluster_id, options_, ignore_formatted)
        return
    if voters is not None:
        raise click.UsageError(
            "--voters goes with --dir; the voters of a server stand in its properties"
        )
    if cluster_id is None:
        raise click.UsageError(
            "--config needs --cluster-id; kraftfast storage random-uuid makes one"
        )
    assert config is not None
    format_replica(config, cluster_id, options_, ignore_formatted)


def format_local(
    path: str,
    voters: int,
    cluster_id: str | None,
    promised: tuple[str, str],
    ignore_formatted: bool,
) -> None:
    """All directories of a quorum on this host. Raises ForeignDirectory."""
    from kraftfast import quorum
    from kraftfast.errors import NotFormatted

    if ignore_formatted:
        try:
            found = quorum.read_description(path)
            click.echo(
                f"{path} is formatted already: "
                f"cluster {found.cluster_id}, {len(found.voters)} voters"
            )
            return
        except NotFormatted:
            pass
    made = quorum.format_quorum(
        path, voters, *promised, cluster_id=checked(cluster_id) if cluster_id else None
    )
    for id, directory in quorum.replica_directories(path, made.voters).items():
        click.echo(f"Formatting metadata directory {directory} for node {id}.")
    click.echo(
        f"cluster {made.cluster_id}: {voters} voters, "
        f"durability {made.durability}, records {made.records}"
    )


def format_replica(
    config: str, cluster_id: str, promised: tuple[str, str], ignore_formatted: bool
) -> None:
    """The directory that a server.properties names. Raises ForeignDirectory."""
    from kraftfast.cli.properties import read_server
    from kraftfast.errors import ForeignDirectory, NotFormatted
    from kraftfast.log.directory import (
        LogOptions,
        MetaProperties,
        format_directory,
        random_uuid,
        read_meta,
    )
    from kraftfast.log.disk import Disk

    node = read_server(config).node
    if ignore_formatted:
        try:
            found = read_meta(Disk(), node.directory)
        except NotFormatted:
            pass
        else:
            if (found.node_id, found.cluster_id) != (node.node_id, checked(cluster_id)):
                owner = f"node {found.node_id} of cluster {found.cluster_id}"
                raise ForeignDirectory(f"{node.directory} belongs to {owner}")
            click.echo(f"{node.directory} is formatted already")
            return
    meta = MetaProperties(checked(cluster_id), node.node_id, random_uuid())
    format_directory(Disk(), node.directory, meta, LogOptions(*promised))
    click.echo(f"Formatting metadata directory {node.directory} for node {node.node_id}.")


def checked(cluster_id: str) -> str:
    """A cluster id that Kafka's tools take too. Raises InvalidOption."""
    from kraftfast.errors import InvalidOption
    from kraftfast.types import uuid_from_text

    try:
        uuid_from_text(cluster_id)
    except ValueError as error:
        raise InvalidOption(
            f"cluster id: {error}; kraftfast storage random-uuid makes one"
        ) from None
    return cluster_id
