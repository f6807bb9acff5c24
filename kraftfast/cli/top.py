"""``kraftfast top``: a running quorum, as it works."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options, reach
from kraftfast.cli.root import Terminated

if TYPE_CHECKING:
    from kraftfast.live.pages import Sample
    from kraftfast.live.view import View

WINDOW_S = 5
DUMB = ("", "dumb", "unknown")


@click.command()
@reach.directory
@reach.bootstrap_server
@click.option(
    "--window",
    "window_s",
    type=click.Choice(["1", "5", "15", "60"]),
    help=f"Seconds that the figures are of [{WINDOW_S}; with --once 1].",
)
@click.option("--once", is_flag=True, help="Look for one window, print the figures, and end.")
@options.as_json
@options.timeout
def top(
    directory: str | None,
    servers: str | None,
    window_s: str | None,
    once: bool,
    as_json: bool,
    timeout: float,
) -> None:
    """Show a running quorum as it works: rates, latencies, lag, disks.

    w changes the window, s the stage that is drawn, c the columns, q ends it. By --dir, on the
    host of the replicas, it reads the counters that they share; by --bootstrap-server only what
    the leader tells.
    """
    reach.one_of(directory, servers)
    if as_json and not once:
        raise click.UsageError("--json goes with --once")
    if not once:
        check_terminal()
    with ExitStack() as undo:
        look = looked_at(directory, servers, timeout, undo)
        if once:
            print_once(look, int(window_s or 1), as_json)
        else:
            from kraftfast.cli.top_screen import Top

            screen = Top(look, directory or servers or "", int(window_s or WINDOW_S))
            screen.run()
            if screen.signo:
                raise Terminated(screen.signo)
            if screen.failure is not None:
                raise screen.failure


def check_terminal() -> None:
    """Raise InvalidOption if nothing can be shown live here; textual draws on stderr."""
    from kraftfast.errors import InvalidOption

    streams = (sys.stdin, sys.stdout, sys.stderr)
    if not all(each.isatty() for each in streams) or os.environ.get("TERM", "") in DUMB:
        raise InvalidOption("this is no terminal that top can draw on; --once prints the figures")
    if importlib.util.find_spec("textual") is None:
        raise InvalidOption(
            "top needs textual: pip install 'kraftfast[top]'; --once prints the figures without it"
        )


def looked_at(
    directory: str | None, servers: str | None, timeout: float, undo: ExitStack
) -> Callable[[], list[Sample]]:
    """Return what looks at the replicas. Raises NoQuorum, NotFormatted, StorageError."""
    from kraftfast.errors import NoQuorum
    from kraftfast.live.pages import Pages
    from kraftfast.live.remote_status import RemotePages

    if servers is not None:
        quorum = reach.there(servers, timeout)
        ask = RemotePages(lambda seconds: quorum.describe(timeout=seconds), timeout)
        return undo.enter_context(ask).samples
    assert directory is not None
    pages = undo.enter_context(Pages(directory))
    if not any(sample.up for sample in pages.samples()):
        if pages.lack is not None:
            raise pages.lack
        raise NoQuorum(f"no replica of {directory} runs")
    return pages.samples


def print_once(look: Callable[[], list[Sample]], window_s: int, as_json: bool) -> None:
    """Print what happened within a window from now on."""
    from kraftfast.live.view import view

    before = look()
    time.sleep(window_s)
    it = view(before, look())
    if as_json:
        click.echo(json.dumps(it.as_dict()))
    else:
        print_tables(it)


def print_tables(it: View) -> None:
    """Print the figures as tables."""
    from kraftfast.cli import top_cells as cells
    from kraftfast.cli.show import Out, put, table

    click.echo(cells.head(it))
    rows: list[tuple[tuple[str, ...], int, list[list[str]]]] = [
        (cells.REPLICAS, 2, [cells.replica_cells(each) for each in it.replicas]),
        (cells.STAGES, 1, [cells.stage_cells(name, each) for name, each in it.stages.items()]),
    ]
    for headings, left, lines in rows:
        if lines:
            made: Any = table(*headings, left=left)
            for line in lines:
                made.add_row(*line)
            click.echo()
            put(made)
    for problem in cells.problems(it):
        Out(soft_wrap=True).print(problem)
