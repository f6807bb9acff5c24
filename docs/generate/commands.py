"""The reference of the command line, from click's own description of each command."""

from __future__ import annotations

import re
from collections.abc import Iterator

import click

from kraftfast.cli.root import cli

HEAD = """# Command line

Every command of `kraftfast`, as `--help` prints it. The exit codes are in [Errors](errors.md).
"""
SPACE = re.compile(r"\s+")


def page() -> str:
    """Return the page."""
    context = click.Context(cli, info_name="kraftfast", obj={"debug": False})
    return "\n".join([HEAD, *sections(cli, context)])


def sections(command: click.Command, context: click.Context) -> Iterator[str]:
    """Yield the text of a command, then that of each command below it."""
    path = context.command_path
    depth = min(path.count(" ") + 1, 3)
    if depth > 1:
        yield f"\n{'#' * depth} {path}\n"
    yield described(command) + "\n"
    yield f"```text\n{' '.join([path, *command.collect_usage_pieces(context)])}\n```\n"
    rows = [row for each in command.get_params(context) if (row := option_row(each, context))]
    if rows:
        yield "| option | meaning |\n| --- | --- |\n" + "\n".join(rows) + "\n"
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, name
            yield from sections(below, click.Context(below, context, info_name=name))


def described(command: click.Command) -> str:
    """Return what a command's help says, paragraph by paragraph."""
    text = (command.help or "").replace("\b\n", "")
    return "\n\n".join(SPACE.sub(" ", part).strip() for part in text.split("\n\n"))


def option_row(parameter: click.Parameter, context: click.Context) -> str:
    """Return the row of an option or argument; an empty text if it is hidden or not described."""
    record = parameter.get_help_record(context)
    if record is None:
        return ""
    names, text = (SPACE.sub(" ", part) for part in record)
    for plain, escaped in (("|", "\\|"), ("<", "&lt;"), ("*", "\\*")):
        text = text.replace(plain, escaped)
    return f"| `{names}` | {text} |"
