"""``kraftfast bench consume``, ``recover``, ``start``, ``idle``, ``failover`` and ``attach``."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click

from kraftfast.cli import options

TOTAL_MIB, CONSUME_TOTAL_MIB = 256.0, 64.0
TIMES_MAX = 10_000
MIB = 1 << 20
BUSY_MAX = 1024
SNAPSHOT_MIB_MAX = 4096


def quorum_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say which quorum is measured, and where."""
    decorators = [
        options.below,
        options.voters("How many voters [3].", 3),
        options.durability,
        options.transport,
        options.as_json,
    ]
    for decorator in reversed(decorators):
        command = decorator(command)  # type: ignore[operator]  # as in bench.load_options
    return command


def total(default: float) -> Callable[..., Any]:
    """``--total MIB``"""
    return click.option(
        "--total",
        type=options.TOTAL_MIB,
        metavar="MIB",
        default=default,
        show_default=True,
        help="So many MiB of values.",
    )


def times(flag: str, default: int, help: str, least: int = 0) -> Callable[..., Any]:
    """An option that says how often."""
    return click.option(
        flag, type=click.IntRange(least, TIMES_MAX), default=default, show_default=True, help=help
    )


@contextmanager
def place_for(asked: dict[str, Any], kept_mib: float = 0.0) -> Iterator[str]:
    """Give a scratch directory with room for the logs. Raises DiskFull, StorageError."""
    from kraftfast.cli.scratch import refuse_without_space, scratch_directory

    refuse_without_space(asked["directory"], int(asked["voters"] * kept_mib * MIB))
    with scratch_directory("bench", asked["directory"]) as place:
        yield place


def started(place: str, asked: dict[str, Any], name: str = "quorum", **settings: Any) -> Any:
    """Start the quorum that is asked for, in ``place``."""
    from kraftfast.cli.bench.bench_quorum import quorum_of

    return quorum_of(os.path.join(place, name), asked, **settings)


def head(mode: str, asked: dict[str, Any], place: str) -> dict[str, Any]:
    """Return the keys with which each line begins."""
    from kraftfast import __version__
    from kraftfast.log.mounts import filesystem_of

    return {
        "peer": "kraftfast",
        "version": __version__,
        "voters": asked["voters"],
        "mode": mode,
        "durability": asked["durability"] or "majority",
        "transport": asked["transport"],
        "filesystem": filesystem_of(place),
    }


def put(lines: list[dict[str, Any]], as_json: bool, problem: str = "") -> None:
    """Print lines. Raises VerificationFailed after them if there is a problem."""
    from kraftfast.cli.bench import show_bench
    from kraftfast.errors import VerificationFailed

    if as_json:
        show_bench.tell_missing(lines)
    for line in lines:
        if as_json:
            click.echo(json.dumps(line))
        else:
            show_bench.figures(line)
    if problem:
        raise VerificationFailed(f"the verification failed: {problem}")


def progress_of(what: str, all_of_them: int) -> Callable[[int], None]:
    """Return what tells on a terminal how many of them are done."""

    def tell(done: int) -> None:
        if sys.stderr.isatty():
            click.echo(f"\r{what} {done} of {all_of_them}", err=True, nl=done == all_of_them)

    return tell


@click.command()
@quorum_options
@options.record_size
@total(CONSUME_TOTAL_MIB)
@options.seconds("How long to append while the arrivals are timed.", 5.0)
def consume(**asked: Any) -> None:
    """How fast a log is read from its start, and how soon a record arrives.

    Whole batches with their CRC checked, then record by record; then one append after another,
    each 1 ms after the commit before it, while a consumer in another process takes the time.
    """
    from kraftfast.bench.loads import consuming
    from kraftfast.bench.loads.drives import where
    from kraftfast.bench.loads.inputs import InputRows

    rows = InputRows(None, asked["record_size"])
    count = max(1, int(asked["total"] * MIB) // rows.size)
    with place_for(asked, asked["total"]) as place:
        begin = head("consume", asked, place)
        with started(place, asked) as quorum:
            lines, problem = consuming.catch_up(quorum, rows, count)
            lines.append(consuming.arrival(quorum, where(quorum, asked), asked["seconds"]))
    put([begin | line for line in lines], asked["as_json"], problem)


@click.command()
@quorum_options
@options.record_size
@total(TOTAL_MIB)
@options.retained_producers
@click.option(
    "--snapshot",
    type=options.Number(0, SNAPSHOT_MIB_MAX),
    metavar="MIB",
    default=0,
    show_default=True,
    help="Then load a state of so many MiB from a snapshot, on every replica.",
)
def recover(**asked: Any) -> None:
    """How long a quorum takes until it can be read again: after a stop, and after kill -9 of all.

    Without records first: what processes and an election take. What is beyond that is the log's
    part, from files that the page cache holds. Then how long a consumer takes that begins at a
    random offset, until it has the record.
    """
    from functools import partial

    from kraftfast.bench.loads import recovery_time
    from kraftfast.bench.loads.inputs import InputRows

    rows = InputRows(None, asked["record_size"])
    count = max(1, int(asked["total"] * MIB) // rows.size)
    with place_for(asked, asked["total"] + 2 * asked["snapshot"]) as place:
        begin = head("recover", asked, place)
        begin |= {"retained_producers": asked["retained_producers"]}
        start, remembered = partial(started, place, asked), asked["retained_producers"]
        lines, problem = recovery_time.measure(start, rows, count, remembered)
        if asked["snapshot"] and not problem:
            start = partial(started, place, asked, "state")
            lines.append(recovery_time.from_snapshot(start, asked["snapshot"]))
            if not lines[-1]["verified"]:
                problem = "a replica does not have the state that it had"
    put([begin | line for line in lines], asked["as_json"], problem)


@click.command()
@quorum_options
@times("--times", 10, "How many programs are started, one after another.", 1)
def start(**asked: Any) -> None:
    """From the start of a program to the first commit of a new quorum, by its parts."""
    from kraftfast.bench.loads import starting

    with place_for(asked) as place:
        line = head("start", asked, place)
        line |= starting.measure(place, asked)
    put([line], asked["as_json"])


@click.command()
@quorum_options
@options.seconds("How long to look at it.", 20.0)
@options.observers
@options.connections
def idle(**asked: Any) -> None:
    """What a quorum costs that does nothing: processor time, and memory beside its segments."""
    from kraftfast.bench.loads import idle_cost as at_rest
    from kraftfast.bench.loads import other_clients

    other_clients.check_descriptors(asked)
    with place_for(asked) as place:
        line = head("idle", asked, place)
        line |= {name: asked[name] for name in ("observers", "connections")}
        with started(place, asked) as quorum, other_clients.connected(quorum, asked):
            line |= at_rest.measure(quorum, asked["seconds"])
    put([line], asked["as_json"])


def check_failover(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if asked["resets"] and asked["transport"] != "socket":
        raise click.UsageError("--resets needs --transport socket: rings have no connections")
    if not asked["resets"] and not asked["kills"]:
        raise click.UsageError("--kills or --resets, at least 1")
    if asked["kills"] and asked["voters"] == 1:
        raise click.UsageError("--kills needs 3 voters or more: nobody else could lead")


@click.command(cls=options.Checked, check=check_failover)
@quorum_options
@options.record_size
@times("--kills", 20, "Kill the leader so often.")
@times("--resets", 0, "Reset all connections of the leader so often; needs root and ss.")
@click.option(
    "--pause",
    type=options.Number(0, 10),
    default=0.0002,
    show_default=True,
    help="Seconds between two appends of the load.",
)
@click.option(
    "--settle",
    type=options.Number(0, 1000),
    default=0.1,
    show_default=True,
    help="Seconds before each fault, once the quorum is whole.",
)
@click.option(
    "--busy",
    type=click.IntRange(0, BUSY_MAX),
    default=0,
    show_default=True,
    help="Meanwhile so many processes want a processor each.",
)
def failover(**asked: Any) -> None:
    """From kill -9 of the leader to the next commit, and whether resets change a leader.

    A time runs until the first commit of a later epoch that a producer is told of.
    """
    from kraftfast.bench.loads import failover as faults

    if asked["resets"]:
        faults.check_resets()
    lines = []
    with place_for(asked) as place, faults.other_work(asked["busy"]):
        begin = head("failover", asked, place) | {"busy": asked["busy"]}
        with started(place, asked) as quorum:
            if asked["kills"]:
                tell = progress_of("kill", asked["kills"])
                lines.append(faults.measure_kills(quorum, asked, tell))
            if asked["resets"]:
                tell = progress_of("reset", asked["resets"])
                lines.append(faults.measure_resets(quorum, asked, tell))
    put([begin | line for line in lines], asked["as_json"])


@click.command()
@click.option(
    "--dir",
    "directory",
    type=options.EXISTING,
    required=True,
    help="The directory of the quorum, or of one of its replicas.",
)
@options.seconds("How long to look at it.", 10.0)
@options.timeout
@options.as_json
def attach(directory: str, seconds: float, timeout: float, as_json: bool) -> None:
    """What a quorum that runs on this host does: rates, stages, flushes, processor time.

    It reads the replicas' shared counters before and after; they are asked nothing.
    """
    import kraftfast
    from kraftfast import __version__
    from kraftfast.bench.loads import attaching
    from kraftfast.cli import reach
    from kraftfast.cli.bench import show_bench

    path = os.path.abspath(directory)
    with reach.patiently(lambda left: kraftfast.connect(path, timeout=left), timeout) as quorum:
        line = {"peer": "kraftfast", "version": __version__, "mode": "attach"}
        line |= attaching.measure(quorum, seconds)
    if as_json:
        click.echo(json.dumps(line))
    else:
        show_bench.attached(line)
