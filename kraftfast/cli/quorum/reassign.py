"""``kraftfast quorum reassign``: to any set of voters, by single moves (KIP-642)."""

from __future__ import annotations

import os
import time

import click

from kraftfast.arguments import listed
from kraftfast.cli import reach
from kraftfast.cli.quorum.quorum_options import dry_run, ids, reaches, say
from kraftfast.cli.quorum.voters import forget


@click.command()
@reaches
@click.option("--to", "target_text", metavar="ID,...", help="The replicas that are to vote.")
@click.option("--cancel", is_flag=True, help="Stop where it is.")
@click.option("--no-wait", is_flag=True, help="Do not wait until they vote.")
@dry_run
def reassign(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    target_text: str | None,
    cancel: bool,
    no_wait: bool,
    dry_run: bool,
) -> None:
    """Let exactly these replicas vote.

    The leader adds and removes one voter at a time, a new one only once it has caught up, itself
    last; if it ends, the next leader continues. In a quorum of this host (--dir) missing replicas
    are made and started. kraftfast quorum describe --status shows how far it is.
    """
    from kraftfast.client.admin.quorum_info import base_port, check_dynamic

    if (target_text is None) == (not cancel):
        raise click.UsageError("give either --to or --cancel")
    target = None if target_text is None else sorted(ids(target_text))
    admin = reach.admin(directory, servers, controllers)
    info = reach.described(admin, time.monotonic() + timeout)
    before = info.voter_ids
    joined = ",".join(map(str, before))
    if target is None:
        text = "the reassignment is cancelled" if not dry_run else "DRY RUN of cancelling"
        text += f": voters {joined}"
    else:
        added = [id for id in target if id not in before]
        removed = [id for id in before if id not in target]
        verb = "DRY RUN of reassigning" if dry_run else "Reassigned" if not no_wait else "Assigning"
        text = f"{verb} voters {joined} to {','.join(map(str, target))}"
        check_dynamic(info)  # before anything is made
        if directory is not None:
            make_missing(directory, target, base_port(info), dry_run)
        else:
            refuse_unknown([id for id in added if info.find(id) is None])
        text += f" (added {listed(added)}, removed {listed(removed)})"
    if not dry_run:
        deadline = time.monotonic() + timeout
        while target and any(admin.describe(timeout=timeout).find(id) is None for id in target):
            if time.monotonic() >= deadline:
                break  # the leader says which
            time.sleep(0.05)
        with reach.saying("the voters to be reassigned", time.monotonic() + timeout):
            admin.reassign(target, wait=not no_wait, timeout=timeout)
        if target is not None:
            forget(directory, None)
    say(as_json, text, voters=list(before), target=target, dryRun=dry_run)


def make_missing(directory: str, target: list[int], port: int, dry_run: bool) -> None:
    """Make directories for ids that have none. ``port``: as ``check_ids``.

    Raises NotFormatted, InvalidOption.
    """
    from kraftfast.log.disk import Disk
    from kraftfast.node.storage.description import DESCRIPTION
    from kraftfast.node.storage.local_layout import add_to_description, check_ids

    makes = Disk().exists(os.path.join(directory, DESCRIPTION))
    check_ids(target, port if makes else 0)
    for id in target if makes and not dry_run else ():
        add_to_description(directory, id)


def refuse_unknown(unknown: list[int]) -> None:
    """Refuse a target that does not follow: it cannot vote. Raises RequestRefused."""
    from kraftfast.errors import ErrorCode, RequestRefused

    if unknown:
        why = f"{listed(unknown)} neither vote nor follow: start them first"
        code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
        raise RequestRefused(f"INVALID_REPLICA_ASSIGNMENT: {why}", code)
