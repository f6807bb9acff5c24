"""``kraftfast storage info``: whether a server's directory is formatted, and for which replica."""

from __future__ import annotations

import os

import click

from kraftfast.cli import options


@click.command()
@click.option(
    "--config",
    "-c",
    required=True,
    type=options.PlacePath(dir_okay=False),
    help="Its server.properties.",
)
@click.pass_context
def info(ctx: click.Context, config: str) -> None:
    """Show the directory of a server, as kafka-storage info does. Problems are exit code 1."""
    from kraftfast.cli.server_properties import read_server

    node = read_server(config).node
    lines, problems = looked_at(node.directory, node.node_id)
    for line in lines:
        click.echo(line)
    if problems:
        click.echo(f"Found problem{'s' if len(problems) > 1 else ''}:")
        for problem in problems:
            click.echo(f"  {problem}")
        click.echo("")
        ctx.exit(1)


def looked_at(path: str, node_id: int) -> tuple[list[str], list[str]]:
    """Return what is there, in Kafka's words, and what is wrong with it."""
    from kraftfast.errors import ForeignDirectory, NotFormatted
    from kraftfast.log.disk import Disk
    from kraftfast.log.small_files.directory import META, read_fields, read_meta

    if not os.path.exists(path):
        return [], [f"{path} does not exist"]
    if not os.path.isdir(path):
        return [], [f"{path} is not a directory"]
    lines = ["Found log directory:", f"  {path}", ""]
    disk, problems = Disk(), []
    try:
        meta = read_meta(disk, path)
        fields = read_fields(disk, os.path.join(path, META))
        text = ", ".join(f"{key}={value}" for key, value in sorted(fields.items()))
        lines += [f"Found metadata: {{{text}}}", ""]
        if meta.node_id != node_id:
            problems.append(f"{path} belongs to node {meta.node_id}, not {node_id}")
    except NotFormatted:
        problems.append(f"{path} is not formatted.")
    except ForeignDirectory as error:
        problems.append(str(error))
    return lines, problems
