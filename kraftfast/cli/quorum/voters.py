"""``kraftfast quorum add-controller`` and ``remove-controller``, in Kafka's words."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from kraftfast.cli import options, reach
from kraftfast.cli.quorum.quorum_options import dry_run, reaches, say
from kraftfast.cli.root import Terminated

if TYPE_CHECKING:
    from kraftfast.client.admin.quorum_info import QuorumInfo
    from kraftfast.types import Endpoint, Uuid


@click.command("add-controller")
@reaches
@click.option(
    "--command-config",
    "-c",
    type=options.PlacePath(dir_okay=False),
    help="The server.properties of the replica that is to vote.",
)
@click.option(
    "--controller-id",
    "-i",
    type=click.IntRange(0, 2**31 - 1),
    help="With --dir: which replica of that quorum; made if there is none [the next one].",
)
@dry_run
def add_controller(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    command_config: str | None,
    controller_id: int | None,
    dry_run: bool,
) -> None:
    """Add a voter, once it has caught up.

    A server must run already, formatted with --no-initial-controllers; its properties are given by
    --command-config. In a quorum that kraftfast start runs (--dir) the replica is made and started.
    Voters can be added from kraft.version 1 on (kraftfast quorum upgrade).
    """
    from kraftfast.client.admin.quorum_info import base_port, check_addition

    if command_config is not None and controller_id is not None:
        raise click.UsageError("--controller-id goes with --dir: node.id is in the properties")
    if command_config is None and directory is None:
        raise click.UsageError("--command-config is needed: whom to add")
    server = None if command_config is None else from_properties(command_config)
    admin = reach.admin(directory, servers, controllers)
    deadline = time.monotonic() + timeout
    if server is not None:
        id, directory_id, endpoints, cluster_id = server
        info = reach.described(admin, deadline)
        check_addition(info, id)
        if dry_run:
            refuse_stranger(info, id)
    else:
        assert directory is not None
        info = reach.described(admin, deadline)
        check_addition(info, controller_id)  # before anything is made
        id, directory_id, endpoints = of_local(
            directory, controller_id, base_port(info), dry_run, deadline
        )
        cluster_id = None
    if not dry_run:
        left = reach.left_until(deadline)
        waited_for = f"controller {id} to catch up with the leader"
        with telling_what_goes_on(id, server is None), reach.saying(waited_for, deadline):
            admin.add_voter(id, directory_id, endpoints, cluster_id=cluster_id, timeout=left)
        forget(directory, [id])
    where = ", ".join(each.text for each in endpoints)
    text = f"controller {id} with directory id {_text(directory_id)} and endpoints: {where}"
    say(
        as_json,
        f"DRY RUN of adding {text}" if dry_run else f"Added {text}",
        id=id,
        directoryId=_text(directory_id),
        endpoints=[each.text for each in endpoints],
        dryRun=dry_run,
    )


def _text(directory_id: Uuid) -> str:
    from kraftfast.types import uuid_text

    return uuid_text(directory_id)


def from_properties(path: str) -> tuple[int, Uuid, tuple[Endpoint, ...], str | None]:
    """Return id, directory id, endpoints and cluster id of a server.

    Raises InputError, InvalidOption, NotFormatted, ForeignDirectory.
    """
    from kraftfast.cli.server_properties import read_server
    from kraftfast.errors import ForeignDirectory, InvalidOption
    from kraftfast.log.disk import Disk
    from kraftfast.log.small_files.directory import read_meta

    node = read_server(path).node
    if not node.endpoints:
        raise InvalidOption(f"{path}: no controller listener that others could reach")
    meta = read_meta(Disk(), node.directory)
    if meta.node_id != node.node_id:
        raise ForeignDirectory(f"{node.directory} belongs to node {meta.node_id}")
    return meta.node_id, meta.directory_id, node.endpoints, meta.cluster_id or None


def of_local(
    directory: str, id: int | None, port: int, dry_run: bool, deadline: float
) -> tuple[int, Uuid, tuple[Endpoint, ...]]:
    """Return a replica of a quorum on this host, made if need be. ``port``: as ``check_ids``.

    Raises InvalidOption, NotFormatted, StorageError, NoQuorum if it is not started until the
    deadline.
    """
    from kraftfast.node.storage.description import read_description
    from kraftfast.node.storage.local_layout import ON_THIS_HOST, add_to_description, check_ids
    from kraftfast.types import ZERO_UUID

    known = read_description(directory)
    if dry_run and id not in known.replicas:
        chosen = known.next_id if id is None else id
        check_ids([chosen], port)
        return chosen, ZERO_UUID, (ON_THIS_HOST,)
    chosen, directory_id = add_to_description(directory, id, port=port)
    with telling_what_goes_on(chosen, made=True):
        return chosen, directory_id, wait_for(os.path.join(directory, str(chosen)), deadline)


@contextlib.contextmanager
def telling_what_goes_on(id: int, made: bool) -> Iterator[None]:
    """Say on stderr what an interrupt does not undo; ``made``: by this command."""
    try:
        yield
    except (KeyboardInterrupt, Terminated):
        text = f"replica {id} was made and may" if made else f"controller {id} may"
        more = f"; --controller-id {id} goes on" if made else ""
        click.echo(f"kraftfast: {text} become a voter{more}", err=True)
        raise


def wait_for(place: str, deadline: float) -> tuple[Endpoint, ...]:
    """Return the endpoints of a replica, as it reports them once it runs. Raises NoQuorum."""
    from kraftfast.client.local_socket import wait_started
    from kraftfast.errors import NoQuorum
    from kraftfast.types import Endpoint

    with reach.saying(f"kraftfast start to run the replica in {place}", deadline):
        try:
            return tuple(Endpoint(*each) for each in wait_started(place, deadline)["endpoints"])
        except NoQuorum as error:
            hint = "kraftfast start says why on its stderr, and tries again"
            raise NoQuorum(f"{error}; {hint}") from None


def forget(directory: str | None, ids: list[int] | None) -> None:
    """Forget replacements that were begun in a quorum of this host: it is decided who votes."""
    from kraftfast.errors import NotFormatted
    from kraftfast.node.storage.description import forget_replacements

    if directory is not None:
        with contextlib.suppress(NotFormatted):  # the directory of a server has no quorum.json
            forget_replacements(directory, ids)


def refuse_stranger(info: QuorumInfo, id: int) -> None:
    """Raise RequestRefused if this server does not run: a leader adds only what follows it."""
    from kraftfast.errors import ErrorCode, RequestRefused

    if info.find(id) is None:
        raise RequestRefused(
            f"REQUEST_TIMED_OUT: {id} does not fetch from the leader: start it first",
            ErrorCode.REQUEST_TIMED_OUT,
        )


@click.command("remove-controller")
@reaches
@click.option(
    "--controller-id", "-i", type=click.IntRange(0, 2**31 - 1), required=True, help="Its node.id."
)
@click.option(
    "--controller-directory-id", "-d", "directory_text", help="Its directory id [as it votes now]."
)
@dry_run
def remove_controller(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    controller_id: int,
    directory_text: str | None,
    dry_run: bool,
) -> None:
    """Remove a voter; it follows as an observer until it is stopped.

    It does not vote again by itself, even with controller.quorum.auto.join.enable. A voter is not
    removed while the others without it are no majority that runs: remove lost voters first.
    """
    from kraftfast.client.admin.quorum_info import check_dynamic
    from kraftfast.errors import ErrorCode, RequestRefused
    from kraftfast.types import uuid_from_text

    try:
        directory_id = uuid_from_text(directory_text) if directory_text is not None else None
    except ValueError as error:
        raise click.UsageError(f"--controller-directory-id: {error}") from None
    admin = reach.admin(directory, servers, controllers)
    deadline = time.monotonic() + timeout
    info = reach.described(admin, deadline)
    check_dynamic(info)
    voters = {each.id: each.directory_id for each in info.voters}
    directory_id = directory_id or voters.get(controller_id)
    if directory_id is None or (dry_run and voters.get(controller_id) != directory_id):
        raise RequestRefused(
            f"VOTER_NOT_FOUND: {controller_id} is no voter, or has another directory id",
            ErrorCode.VOTER_NOT_FOUND,
        )
    if dry_run and len(voters) == 1:
        message = "VOTER_NOT_FOUND: the last voter cannot be removed"
        raise RequestRefused(message, ErrorCode.VOTER_NOT_FOUND)
    if not dry_run:
        with reach.saying(f"the removal of controller {controller_id}", deadline):
            admin.remove_voter(controller_id, directory_id, timeout=reach.left_until(deadline))
        forget(directory, [controller_id])
    text = f" KRaft controller {controller_id} with directory id {_text(directory_id)}"
    say(
        as_json,
        f"DRY RUN of removing {text}" if dry_run else f"Removed {text}",
        id=controller_id,
        directoryId=_text(directory_id),
        dryRun=dry_run,
    )
