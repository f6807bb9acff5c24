"""``kraftfast storage format``: the directory of one replica, or those of a whole quorum.

Rules of ``kafka-storage format`` (Kafka's ``StorageTool`` and
``Formatter``): the voters stand in ``controller.quorum.voters`` (``kraft.version`` 0), or in a
bootstrap checkpoint that one of three options describes (``kraft.version`` 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options

if TYPE_CHECKING:
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.types import Endpoint, Uuid, Voter, VoterSet


@click.command("format")
@click.option("--dir", "path", type=options.DIRECTORY, help="Format a quorum of this host here.")
@options.voters("How many voters it has [3].")
@click.option(
    "--config",
    "-c",
    type=options.PlacePath(dir_okay=False),
    help="Format one replica: its server.properties.",
)
@click.option(
    "--cluster-id", "-t", help="The cluster's id, the same for all its replicas; see random-uuid."
)
@click.option(
    "--standalone",
    "-s",
    is_flag=True,
    help="Begin a new quorum with this replica as the only voter; never for a replaced disk.",
)
@click.option(
    "--initial-controllers",
    "-I",
    metavar="ID@HOST:PORT:DIRECTORY_ID,...",
    help="Begin a new quorum with these voters, the same text for each; never for a replaced disk.",
)
@click.option(
    "--no-initial-controllers",
    "-N",
    is_flag=True,
    help="Join a quorum: the replica learns from others who votes. Also for a replaced disk.",
)
@click.option(
    "--feature", "-f", "features", multiple=True, metavar="NAME=LEVEL", help="kraft.version=0|1"
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
    standalone: bool,
    initial_controllers: str | None,
    no_initial_controllers: bool,
    features: tuple[str, ...],
    durability: str | None,
    records_mode: str | None,
    ignore_formatted: bool,
) -> None:
    """Format the directories of a whole quorum, or of one replica.

    With --dir, a quorum whose replicas all run on this host (start does this by itself). With
    --config and --cluster-id, the directory of one replica as kafka-storage does: one that has no
    controller.quorum.voters needs --standalone, --initial-controllers or --no-initial-controllers.
    The first two begin a quorum: they are refused if a bootstrap server knows one of this cluster.
    """
    if (path is None) == (config is None):
        raise click.UsageError("give either --dir or --config")
    promised = (durability or "majority", records_mode or "any")
    begins = [standalone, initial_controllers is not None, no_initial_controllers]
    if sum(begins) > 1:
        raise click.UsageError(
            "give one of --standalone, --initial-controllers and --no-initial-controllers"
        )
    if path is not None:
        if any(begins):
            raise click.UsageError("who votes in a quorum of --dir is said by --voters alone")
        asked = {"voters": voters, "durability": durability, "records": records_mode}
        if not (ignore_formatted and is_formatted_local(path, cluster_id, asked)):
            format_local(path, voters or 3, cluster_id, promised, level_of(features))
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
    from kraftfast.cli.server_properties import read_server
    from kraftfast.cli.storage.ask import refuse_second_quorum
    from kraftfast.node.witness import refuse_only_voter

    node = read_server(config).node
    if ignore_formatted and is_formatted(node, cluster_id):
        return
    check_kraft_version(features, dynamic=any(begins))
    directory_id, voter_set = first_voters(node, standalone, initial_controllers, any(begins))
    ids = [each.id for each in (node.voters if voter_set is None else voter_set)]
    refuse_only_voter(promised[1], node.campaign, ids, node.node_id)
    if voter_set is not None:
        refuse_second_quorum(node, cluster_id)
    format_replica(node, cluster_id, promised, directory_id, voter_set)


def is_formatted_local(path: str, cluster_id: str | None, asked: dict[str, Any]) -> bool:
    """Return whether there is a quorum, and tell it. Raises ForeignDirectory, InvalidOption."""
    from kraftfast.errors import ForeignDirectory, NotFormatted
    from kraftfast.node.storage.description import check_made_with, read_description

    try:
        found = read_description(path)
    except NotFormatted:
        return False
    if cluster_id is not None and checked(cluster_id) != found.cluster_id:
        raise ForeignDirectory(f"{path} belongs to cluster {found.cluster_id}")
    check_made_with(path, found, asked)
    click.echo(
        f"{path} is formatted already: cluster {found.cluster_id}, {len(found.voters)} voters, "
        f"durability {found.durability}, records {found.records}"
    )
    return True


def format_local(
    path: str,
    voters: int,
    cluster_id: str | None,
    promised: tuple[str, str],
    kraft_version: int,
) -> None:
    """Format all directories of a quorum on this host. Raises ForeignDirectory."""
    from kraftfast.node.storage.local_layout import format_quorum, replica_directories
    from kraftfast.node.witness import refuse_local

    refuse_local(promised[1])
    wanted = None if cluster_id is None else checked(cluster_id)
    made = format_quorum(
        path,
        voters,
        *promised,
        cluster_id=wanted,
        kraft_version=kraft_version,
    )
    for id, directory in replica_directories(path, made.voters).items():
        click.echo(f"Formatting metadata directory {directory} for node {id}.")
    click.echo(
        f"cluster {made.cluster_id}: {voters} voters, "
        f"durability {made.durability}, records {made.records}"
    )


def check_kraft_version(features: tuple[str, ...], dynamic: bool) -> None:
    """Check that the level asked for fits the way in which voters are named.

    Raises InvalidOption.
    """
    from kraftfast.errors import InvalidOption

    for level in map(feature_level, features):
        if bool(level) != dynamic:
            how = (
                "does not go with --standalone, --initial-controllers or --no-initial-controllers"
                if dynamic
                else "needs --standalone, --initial-controllers or --no-initial-controllers"
            )
            raise InvalidOption(f"kraft.version {level} {how}")


def level_of(features: tuple[str, ...]) -> int:
    """Return the level of a quorum of this host, 1 unless it is named. Raises InvalidOption."""
    from kraftfast.errors import InvalidOption

    levels = {feature_level(each) for each in features} or {1}
    if len(levels) > 1:
        raise InvalidOption(f"--feature: {' and '.join(features)} contradict each other")
    return levels.pop()


def feature_level(feature: str) -> int:
    """Parse ``kraft.version=LEVEL``. Raises InvalidOption."""
    from kraftfast.cli.server_properties import is_number
    from kraftfast.errors import InvalidOption

    name, equals, level = feature.partition("=")
    if not equals or not is_number(level):
        raise InvalidOption(f"--feature {feature}: NAME=LEVEL is expected")
    if name != "kraft.version":
        raise InvalidOption(f"--feature {name}: the one feature here is kraft.version")
    if int(level) not in (0, 1):
        raise InvalidOption(f"kraft.version {level}: 0 and 1 are known")
    return int(level)


def first_voters(
    node: NodeConfig, standalone: bool, initial_controllers: str | None, dynamic: bool
) -> tuple[Uuid, VoterSet | None]:
    """Return the directory's id, and what its bootstrap checkpoint says. Raises InvalidOption."""
    from kraftfast.errors import InvalidOption
    from kraftfast.log.small_files.directory import random_uuid
    from kraftfast.types import VoterSet

    own_id = random_uuid()
    if node.voters and dynamic:
        raise InvalidOption(
            "controller.quorum.voters names static voters: without it --standalone, "
            "--initial-controllers and --no-initial-controllers can be used"
        )
    if not node.voters and not dynamic:
        raise InvalidOption(
            "without controller.quorum.voters one of --standalone, --initial-controllers and "
            "--no-initial-controllers is needed"
        )
    if standalone:
        if not node.endpoints:
            raise InvalidOption("a voter needs a listener with a port, not 0")
        (endpoint,) = node.endpoints
        return own_id, VoterSet([first_voter(node.node_id, own_id, endpoint)])
    if initial_controllers is None:
        return own_id, None
    voters = VoterSet(parse_initial(initial_controllers, node.controller_listener))
    for voter in voters:
        if voter.id == node.node_id:
            own_id = voter.directory_id
    return own_id, voters


def first_voter(id: int, directory_id: Uuid, endpoint: Endpoint) -> Voter:
    """Return a voter that speaks every ``kraft.version`` that we do."""
    from kraftfast import limits
    from kraftfast.types import Voter

    return Voter(id, directory_id, (endpoint,), limits.KRAFT_VERSION_MIN, limits.KRAFT_VERSION_MAX)


def parse_initial(text: str, listener: str) -> list[Voter]:
    """Parse ``ID@HOST:PORT:DIRECTORY_ID,...`` Raises InvalidOption."""
    from kraftfast.arguments import ID_MAX
    from kraftfast.cli.server_properties import address_of, is_id
    from kraftfast.errors import InvalidOption
    from kraftfast.types import ZERO_UUID, Endpoint, uuid_from_text

    found: dict[int, Voter] = {}
    key = "--initial-controllers"
    for part in filter(None, (each.strip() for each in text.split(","))):
        id, at, rest = part.partition("@")
        address, _, directory_text = rest.rpartition(":")
        if not at or ":" not in address or not is_id(id):
            raise InvalidOption(
                f"{key}: {part!r} is not ID@HOST:PORT:DIRECTORY_ID, with an id up to {ID_MAX}"
            )
        host, port = address_of(address, key)
        try:
            directory_id = uuid_from_text(directory_text)
        except ValueError as error:
            raise InvalidOption(f"{key}: {part!r}: {error}") from None
        if directory_id == ZERO_UUID:
            raise InvalidOption(f"{key}: {part!r}: this directory id is reserved")
        if int(id) in found:
            raise InvalidOption(f"{key}: voter {id} is listed twice")
        found[int(id)] = first_voter(int(id), directory_id, Endpoint(listener, host, port))
    if not found:
        raise InvalidOption(f"{key} names no voter")
    return list(found.values())


def is_formatted(node: NodeConfig, cluster_id: str) -> bool:
    """Return whether the directory of a server is, and tell it. Raises ForeignDirectory."""
    from kraftfast.errors import ForeignDirectory, NotFormatted
    from kraftfast.log.disk import Disk
    from kraftfast.log.small_files.directory import read_meta

    try:
        found = read_meta(Disk(), node.directory)
    except NotFormatted:
        return False
    if (found.node_id, found.cluster_id) != (node.node_id, checked(cluster_id)):
        owner = f"node {found.node_id} of cluster {found.cluster_id}"
        raise ForeignDirectory(f"{node.directory} belongs to {owner}")
    click.echo(f"{node.directory} is formatted already")
    return True


def format_replica(
    node: NodeConfig,
    cluster_id: str,
    promised: tuple[str, str],
    directory_id: Uuid,
    voters: VoterSet | None,
) -> None:
    """Format the directory that a server.properties names. Raises ForeignDirectory."""
    from kraftfast.log.disk import Disk
    from kraftfast.log.small_files.directory import LogOptions, MetaProperties, format_directory
    from kraftfast.types import KRaftVersion, KRaftVoters

    meta = MetaProperties(checked(cluster_id), node.node_id, directory_id)
    first = () if voters is None else (KRaftVersion(1), KRaftVoters(voters))
    format_directory(Disk(), node.directory, meta, LogOptions(*promised), first)
    kind = "metadata directory"
    if voters is not None:
        votes = any(each.directory_id == directory_id for each in voters)
        kind = f"dynamic metadata {'voter ' if votes else ''}directory"
    click.echo(f"Formatting {kind} {node.directory} for node {node.node_id}.")


def checked(cluster_id: str) -> str:
    """Return a cluster id that Kafka's tools take, too. Raises InvalidOption."""
    from kraftfast.errors import InvalidOption
    from kraftfast.types import uuid_from_text

    try:
        uuid_from_text(cluster_id)
    except ValueError as error:
        raise InvalidOption(
            f"cluster id: {error}; kraftfast storage random-uuid makes one"
        ) from None
    return cluster_id
