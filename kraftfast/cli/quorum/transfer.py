"""``kraftfast quorum transfer``: another voter is to lead."""

from __future__ import annotations

import time

import click

from kraftfast.cli import reach
from kraftfast.cli.quorum.quorum_options import dry_run, reaches, say


@click.command()
@reaches
@click.option(
    "--to",
    "target",
    type=click.IntRange(0, 2**31 - 1),
    help="The voter that is to lead [the one with the longest log].",
)
@dry_run
def transfer(
    directory: str | None,
    servers: str | None,
    controllers: str | None,
    timeout: float,
    as_json: bool,
    target: int | None,
    dry_run: bool,
) -> None:
    """Hand leadership over.

    Appends wait until the other voter has all of the log, for an election's time at most; then the
    leader resigns in its favour, and the election begins at once.
    """
    from kraftfast.errors import ErrorCode, RequestRefused

    admin = reach.admin(directory, servers, controllers)
    info = reach.described(admin, time.monotonic() + timeout)
    before = info.leader_id
    if target is not None and target not in info.voter_ids:
        message = f"VOTER_NOT_FOUND: {target} is no voter"
        raise RequestRefused(message, ErrorCode.VOTER_NOT_FOUND)
    if dry_run:
        to = "the voter with the longest log" if target is None else str(target)
        text = f"DRY RUN of handing leadership over from {before} to {to}"
        say(as_json, text, leaderBefore=before, leader=target, dryRun=True)
        return
    with reach.saying("another leader", time.monotonic() + timeout):
        leader = admin.transfer(target, timeout=timeout)
    say(
        as_json,
        f"{leader} leads already"
        if leader == before
        else f"Leadership was handed over from {before} to {leader}",
        leaderBefore=before,
        leader=leader,
        dryRun=False,
    )
