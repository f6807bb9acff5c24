"""``kraftfast quorum``: who votes, who leads; in the words of ``kafka-metadata-quorum``."""

from __future__ import annotations

import importlib

import click

COMMANDS = {
    "describe": "quorum_describe:describe",
    "add-controller": "quorum_voters:add_controller",
    "remove-controller": "quorum_voters:remove_controller",
    "reassign": "quorum_reassign:reassign",
    "transfer": "quorum_transfer:transfer",
    "upgrade": "quorum_upgrade:upgrade",
}


class QuorumGroup(click.Group):
    """One file a purpose."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, name: str) -> click.Command | None:
        if name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[name].partition(":")
        found: click.Command = getattr(
            importlib.import_module(f"kraftfast.cli.{module}"), attribute
        )
        return found


@click.group(cls=QuorumGroup)
def quorum() -> None:
    """Show who votes and leads, and change it.

    Of a quorum on this host (--dir), or of servers (--bootstrap-server, --bootstrap-controller).
    Refusals end with exit code 10, without a leader with 12, without an answer in time with 15.
    """
