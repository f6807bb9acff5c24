"""``kraftfast status``: what each replica says of itself."""

from __future__ import annotations

import json
import os
import shlex
from typing import Any

import click

from kraftfast.cli import options


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

    For a replica that does not run while others do, shows what is wrong with its directory. Ends
    with exit code 12 if no replica runs, or none that runs knows a leader.
    """
    from kraftfast.client.local_socket import ask
    from kraftfast.connected import directories_of
    from kraftfast.errors import (
        NoQuorum,
        PeerGone,
        StorageError,
        TimedOut,
        forbidden,
        raise_if_scarce,
    )
    from kraftfast.node.storage.replacing import fault_of

    statuses: dict[int, dict[str, Any]] = {}
    missing: dict[int, str] = {}
    refusal: StorageError | None = None
    for id, place in directories_of(directory).items():
        try:
            statuses[id] = ask(place, {"kind": "status"})
        except (PeerGone, TimedOut) as error:
            raise_if_scarce(error, "cannot reach a replica")
            missing[id], refusal = str(error), forbidden(error) or refusal
    for id in missing if statuses else ():
        missing[id] = fault_of(os.path.join(directory, str(id))) or missing[id]
    if as_json:
        click.echo(json.dumps({"replicas": list(statuses.values()), "missing": missing}))
    elif statuses:
        from kraftfast.cli.show import show_status

        show_status(statuses, missing)
    if not statuses:
        command = shlex.join(["kraftfast", "storage", "inspect", directory])
        hint = f"{command} shows what they left"
        raise refusal or NoQuorum(f"no replica of {directory} runs; {hint}")
    if all(status["leader_id"] < 0 for status in statuses.values()):
        raise NoQuorum("no replica that runs knows a leader")
