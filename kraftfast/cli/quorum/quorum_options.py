"""What the commands of ``kraftfast quorum`` have in common."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from typing import Any

import click

from kraftfast.cli import options, reach

ID = re.compile("[0-9]{1,10}")

directory = click.option(
    "--dir",
    "directory",
    type=options.DIRECTORY,
    callback=lambda _context, _option, given: None if given is None else quorum_of(given),
    help="The directory of a quorum, or of one replica, on this host.",
)
dry_run = click.option(
    "--dry-run", is_flag=True, help="Say what would be done, and whether it could; do nothing."
)


def reaches(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options by which every command finds the quorum, may wait, and may print JSON."""
    for option in (
        options.as_json,
        options.timeout,
        reach.bootstrap_controller,
        reach.bootstrap_server,
        directory,
    ):
        command = option(command)
    return command


def quorum_of(directory: str) -> str:
    """Return the directory of the quorum that a replica's directory lies in, or it itself.

    The leader may be another replica of that quorum.
    """
    from kraftfast.errors import KraftfastError
    from kraftfast.log.disk import Disk
    from kraftfast.log.small_files.directory import read_meta
    from kraftfast.node.storage.description import read_description

    above = os.path.dirname(os.path.abspath(directory))
    try:
        meta, known = read_meta(Disk(), directory), read_description(above)
    except KraftfastError:
        return directory
    is_of_it = (meta.cluster_id, meta.node_id in known.replicas) == (known.cluster_id, True)
    return above if is_of_it else directory


def say(as_json: bool, text: str, **facts: Any) -> None:
    """Print the outcome, for people or for programs."""
    click.echo(json.dumps(facts) if as_json else text)


def ids(text: str) -> list[int]:
    """Parse ``1,2,3``: different ids. Raises UsageError."""
    found = [part.strip() for part in text.split(",")]
    if not all(ID.fullmatch(part) and int(part) < 2**31 for part in found):
        raise click.UsageError(f"{text!r} is no list of ids like 1,2,3")
    numbers = [int(part) for part in found]
    if len(set(numbers)) < len(numbers):  # a slip of 1,2 would leave 1 alone to vote
        raise click.UsageError(f"{text!r} names an id twice")
    return numbers
