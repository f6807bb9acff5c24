"""``kraftfast storage``: directories are formatted once, before they are used, and looked at."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "format": "storage_format:format_",
    "info": "storage_info:info",
    "inspect": "storage_inspect:inspect",
    "recover": "storage_recover:recover",
}


class StorageGroup(click.Group):
    """One file a command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*COMMANDS, "random-uuid"]

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return super().get_command(ctx, name)
        module, _, attribute = COMMANDS[name].partition(":")
        found: click.Command = getattr(
            importlib.import_module(f"kraftfast.cli.{module}"), attribute
        )
        return found


@click.group(cls=StorageGroup)
def storage() -> None:
    """Format directories, and look at them."""


@storage.command("random-uuid")
def random_uuid() -> None:
    """Print a new id for a cluster."""
    from kraftfast.log import directory
    from kraftfast.types import uuid_text

    click.echo(uuid_text(directory.random_uuid()))
