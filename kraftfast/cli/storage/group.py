"""``kraftfast storage``: format, inspect, recover and replace directories of replicas."""

from __future__ import annotations

import click

from kraftfast.cli.lazy import lazy_group

COMMANDS = {
    "format": (
        "storage.format:format_",
        "Format the directories of a whole quorum, or of one replica.",
    ),
    "info": ("storage.info:info", "Show the directory of a server, as kafka-storage info does."),
    "inspect": ("storage.inspect:inspect", "Show what each replica's directory holds."),
    "recover": (
        "storage.recover:recover",
        "Make the replica with the longest log the only voter of its quorum.",
    ),
    "replace": (
        "storage.replace:replace",
        "Rebuild the directory of one replica from the others, which keep running.",
    ),
}


@lazy_group(COMMANDS)
def storage() -> None:
    """Format, inspect, recover and replace directories of replicas."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
    from kraftfast.log.small_files import directory
    from kraftfast.types import uuid_text

    click.echo(uuid_text(directory.random_uuid()))
