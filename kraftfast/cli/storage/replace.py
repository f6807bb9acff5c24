"""``kraftfast storage replace``: rebuild the directory of one replica from the others."""

from __future__ import annotations

import json
import os
import re
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options

if TYPE_CHECKING:
    from kraftfast.node.storage.replacing import ReplacementPlan


@click.command()
@click.argument("path", metavar="DIR/ID", type=options.PlacePath(path_type=str))
@click.option("--dry-run", is_flag=True, help="Only say what would be done.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--share-device", is_flag=True, help="Make it beside others if its disk is gone.")
@options.timeout
@options.as_json
def replace(
    path: str, dry_run: bool, yes: bool, share_device: bool, timeout: float, as_json: bool
) -> None:
    """Rebuild the directory of one replica from the others, which keep running.

    For a replica of a running quorum of this host that stays down: its disk was lost or replaced,
    or its log is damaged. DIR/ID is its directory, which may be gone. It leaves the voter set, the
    directory is set aside, not removed, and a new one takes its place; the replica votes again
    once it has caught up. If DIR/ID is a link it stays, and the directory that it leads to is set
    aside and made again; if that is not there and the new one would be on a device that holds other
    replicas, it is refused unless --share-device is given. If the command is interrupted, run it
    again. It needs kraft.version 1.
    """
    from kraftfast.cli.storage.recover import asked
    from kraftfast.node.storage.replacing import plan_replacement

    home, id = replica_of(path)
    plan = plan_replacement(home, id, admin_of(home), timeout, share_device)
    done = False
    if not as_json or not (dry_run or yes):
        for line in explained(plan):
            click.echo(line, err=as_json)
    if not (dry_run and as_json):  # which shows the refusal
        plan.check_place()
    if not dry_run and (yes or asked(id).strip() == str(id)):
        from kraftfast.cli.quorum.voters import wait_for

        plan.run(wait_for, time.monotonic() + 2 * timeout)
        done = True
    if as_json:
        click.echo(json.dumps(as_dict(plan, done)))
        plan.check_place()
    elif done:
        if plan.set_aside is not None:
            click.echo(f"set aside: {plan.set_aside}")
        click.echo(f"replica {id} {'votes' if plan.votes else 'follows'} again")
    else:
        click.echo("nothing was changed")


def replica_of(path: str) -> tuple[str, int]:
    """Return the quorum's directory and the replica's id. Raises UsageError, NotFormatted."""
    from kraftfast.node.storage.description import read_description

    home, name = os.path.split(os.path.abspath(path))
    if not re.fullmatch("0|[1-9][0-9]{0,9}", name):
        raise click.UsageError(f"{path} names no replica: DIR/ID is expected, as in q/2")
    read_description(home)
    return home, int(name)


def admin_of(home: str) -> Any:
    """Return the admin client of a quorum on this host."""
    from kraftfast.cli import reach

    return reach.admin(home, None, None)


def explained(plan: ReplacementPlan) -> Iterator[str]:
    """Yield the lines that say what will be done."""
    from kraftfast.types import uuid_text

    left = ", ".join(map(str, plan.voters_left))
    yield f"replica {plan.id}: {plan.directory}"
    yield f"  what is wrong with it: {plan.fault or 'nothing that its files show'}"
    if plan.old_directory_id is not None:
        old = uuid_text(plan.old_directory_id)
        yield f"  directory id {old} leaves the voter set: until the end {left} vote"
    end = "it votes once it has caught up" if plan.votes else "it follows as an observer"
    if plan.made:
        yield f"  the new one is there, with directory id {uuid_text(plan.directory_id)}: {end}"
        return
    if plan.place != plan.directory:
        yield f"  a link leads to {plan.place}: that is replaced, the link stays"
    elif os.path.islink(plan.directory):
        yield "  a link to a disk that is gone: the new directory takes the place of the link"
    if plan.refusal:
        return
    if plan.move:
        yield "  it is made on a device that holds other replicas (--share-device)"
    if os.path.exists(plan.place):  # not a link that leads nowhere
        yield "  the directory is renamed, not removed: only the records that the others have count"
    yield f"  a new one is made, with a new directory id: {end}"


def as_dict(plan: ReplacementPlan, done: bool) -> dict[str, Any]:
    """Return the plan, and whether it was carried out, for ``--json``."""
    from kraftfast.types import uuid_text

    old = plan.old_directory_id
    return {
        "directory": plan.directory,
        "place": plan.place,
        "node_id": plan.id,
        "fault": plan.fault,
        "voters_left": plan.voters_left,
        "old_directory_id": None if old is None else uuid_text(old),
        "directory_id": uuid_text(plan.directory_id),
        "refusal": plan.refusal,
        "votes": plan.votes,
        "set_aside": plan.set_aside,
        "done": done,
    }
