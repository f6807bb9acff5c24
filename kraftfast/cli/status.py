"""``kraftfast status``: what each replica says of itself."""

from __future__ import annotations

import json
from typing import Any

import click

from kraftfast.cli import options, reach


@click.command()
@click.option(
    "--dir",
    "directory",
    required=True,
    type=options.DIRECTORY,
    help="The quorum's, or one replica's.",
)
@options.as_json
def status(directory: str, as_json: bool) -> None:
    """Show each replica of a running quorum.

    Ends with exit code 12 if no replica runs, or none that runs knows a leader.
    """
    from kraftfast.client.local import ask
    from kraftfast.errors import NoQuorum, PeerGone, TimedOut

    statuses: dict[int, dict[str, Any]] = {}
    missing: dict[int, str] = {}
    for id, place in reach.replica_directories(directory).items():
        try:
            statuses[id] = ask(place, {"kind": "status"})
        except (PeerGone, TimedOut) as error:
            missing[id] = str(error)
    if as_json:
        click.echo(json.dumps({"replicas": list(statuses.values()), "missing": missing}))
    elif statuses:
        from kraftfast.cli.show import show_status

        show_status(statuses, missing)
    if not statuses:
        raise NoQuorum(f"no replica of {directory} runs")
    if all(status["leader_id"] < 0 for status in statuses.values()):
        raise NoQuorum("no replica that runs knows a leader")
