"""``kraftfast bench``: one JSON line a measurement, the same that other logs' harnesses print."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench.bench_floor import floor
from kraftfast.cli.bench.bench_peers import run_peer, run_peers
from kraftfast.cli.bench.bench_report import write_report
from kraftfast.cli.bench.bench_results import compare_results, list_results, run_matrix, run_plan
from kraftfast.cli.bench.bench_scenarios import attach, consume, failover, idle, recover, start
from kraftfast.cli.lazy import Group

if TYPE_CHECKING:
    from kraftfast.bench.loads.measurement import Around

WINDOW = 32
LOAD_WINDOW = 64
SUSTAINED_PREPARE_MIB = 64.0
CALLERS = ("processes", "threads", "tasks")
"""Of ``kraftfast.bench.loads.callers``, which a command that measures nothing need not import."""
SHARED_WINDOW = 64
LATENCY_FIXED: dict[str, Any] = {
    "window": 1,
    "batch_bytes": 64 * 1024,
    "compression": "none",
    "compression_level": None,
}
"""What latency does not leave to choose: one record outstanding, in a batch of its own."""
DETAILS = ("histograms", "processes_cost")
"""Of a line: only with ``--json``."""
RATES_MAX = 100
PRODUCERS_MAX = 64
NUMBER_BYTES = 8
"""Of ``kraftfast.bench.loads.inputs``: in each record of several producers."""


@click.group(cls=Group)
def bench() -> None:
    """Measure throughput, latency, the disk and the floor; compare results."""


RESULTS = (run_plan, run_matrix, run_peers, list_results, compare_results, write_report)
SCENARIOS = (consume, recover, start, idle, failover, attach)
for each in (floor, run_peer, *RESULTS, *SCENARIOS):
    bench.add_command(each)


def check_load(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if asked["total"] is not None and asked["seconds"] is not None:
        raise click.UsageError("--total or --seconds, not both")


def check_together(asked: dict[str, Any]) -> None:
    """As :func:`check_load`, for what has ``--producers``."""
    check_load(asked)
    if asked["producers"] == 1 and not asked.get("callers"):
        return
    if asked["record_size"] < NUMBER_BYTES:
        flag = "--producers" if asked["producers"] > 1 else "--callers"
        raise click.UsageError(f"{flag} needs records of {NUMBER_BYTES} bytes, for a number")
    if asked.get("samples"):
        raise click.UsageError("--samples belongs to one producer")
    if asked["retention"] is not None:
        raise click.UsageError("--retention belongs to one producer: all records are checked")
    if asked.get("warm_up") is not None:
        raise click.UsageError("--warm-up belongs to one producer")


def check_sustained(asked: dict[str, Any]) -> None:
    """As :func:`check_load`, for ``sustained``."""
    check_load(asked)
    if asked["samples"] or asked["stages"]:
        raise click.UsageError("--samples and --stages belong to throughput and latency")


def scenario_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what is run, and on what."""
    decorators = [
        options.below,
        options.record_size,
        click.option(
            "--seconds",
            type=options.SECONDS,
            help="Measure for so long [5; a timeline: 1].",
        ),
        click.option(
            "--total",
            type=options.TOTAL_MIB,
            metavar="MIB",
            help="Or so many MiB of values.",
        ),
        click.option(
            "--prepare",
            type=options.MIB,
            metavar="MIB",
            help="Prepare so much of the log before the clock starts [all of --total].",
        ),
        click.option(
            "--segment-bytes",
            type=options.SEGMENT_BYTES,
            help="A segment of the log holds so much [what is prepared, 256 MiB at least; in "
            "memory a sixteenth of --retention].",
        ),
        click.option(
            "--retention",
            type=options.MIB,
            metavar="MIB",
            help="Keep so much of the log; old segments are used again. What is kept is verified.",
        ),
        options.voters("How many voters [3].", 3),
        options.durability,
        options.flush,
        options.transport,
        options.idle,
        options.processors,
        click.option(
            "--values",
            type=click.Choice(["random", "json"]),
            default="random",
            show_default=True,
            help="What the records hold: random bytes, or what looks like JSON.",
        ),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)  # type: ignore[operator]  # their common type is `function`
    return command


def burden_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that say what a quorum has to bear besides."""
    for decorator in (options.retained_producers, options.connections, options.observers):
        command = decorator(command)
    return command


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that throughput and latency have in common."""
    decorators = [
        scenario_options,
        click.option(
            "--samples",
            metavar="FILE",
            type=options.PlacePath(dir_okay=False),
            help="Write the time of every commit in every stage as Parquet.",
        ),
        click.option("--stages", is_flag=True, help="Add the latency of each stage to the line."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, as most do anyway."),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)
    return command


@bench.command(cls=options.Checked, check=check_together)
@load_options
@options.batch_bytes
@options.window(WINDOW)
@options.compression
@burden_options
@click.option(
    "--producers",
    type=click.IntRange(1, PRODUCERS_MAX),
    default=1,
    show_default=True,
    help="So many at once: from 2 on a process each.",
)
@click.option(
    "--warm-up",
    type=options.MIB,
    metavar="MIB",
    help="Append so many MiB before the clock starts [about 1 MiB]. With twice as much as "
    "--retention, old segments are used again from the first second on.",
)
def throughput(**asked: Any) -> None:
    """Records per second, as fast as the window allows.

    Bulk appends of records from memory; a latency is that of a batch, from handing over its first
    record to its commit. Every replica is verified afterwards, and the files are removed.
    """
    measure("throughput", asked)


@bench.command(cls=options.Checked, check=check_together)
@load_options
@burden_options
@click.option(
    "--producers",
    type=click.IntRange(1, PRODUCERS_MAX),
    default=1,
    show_default=True,
    help="So many callers at once, each with one record outstanding.",
)
@click.option(
    "--callers",
    type=click.Choice(CALLERS),
    help="What calls: processes with a producer each, or threads or asyncio tasks that share one "
    "[processes, from 2 producers on].",
)
def latency(**asked: Any) -> None:
    """Time from an append to its commit, one record outstanding.

    Of several callers: records per second of all, and how long a call took in the mean.
    """
    shared = {"window": SHARED_WINDOW} if asked["callers"] in ("threads", "tasks") else {}
    measure("latency", asked | LATENCY_FIXED | shared)


@bench.command(cls=options.Checked, check=check_sustained)
@load_options
@options.batch_bytes
@options.window(WINDOW)
@options.compression
def sustained(**asked: Any) -> None:
    """Records per second and the slowest batches, second by second, and what it costs.

    As throughput, meant for runs that are much longer than what was prepared: the log grows, or
    uses old segments again with --retention. For every process: seconds of CPU, page faults,
    context switches, bytes written, fdatasyncs.
    """
    measure("sustained", asked)


class Rates(click.ParamType[Any]):
    """Rates of records a second: ``1000,50000``."""

    name = "R,R,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[float]:
        if isinstance(value, list):
            return value
        rate = options.Number(1, 1e9)
        rates = [rate.convert(each, param, ctx) for each in value.split(",")]
        if len(rates) > RATES_MAX:
            self.fail(f"{len(rates)} rates: {RATES_MAX} at most", param, ctx)
        if len({f"{each:g}" for each in rates}) < len(rates):
            self.fail(f"{value!r} has a rate twice", param, ctx)
        return rates


def check_rates(asked: dict[str, Any]) -> None:
    """As :func:`check_load`, for ``load``."""
    if asked["total"] is not None:
        raise click.UsageError("--total belongs to the others: --seconds for each rate")
    if asked["samples"]:
        raise click.UsageError("--samples belongs to throughput and latency")


@bench.command(cls=options.Checked, check=check_rates)
@load_options
@options.batch_bytes
@options.window(LOAD_WINDOW)
@options.compression
@click.option(
    "--rates",
    type=Rates(),
    help="Records a second, separated by commas [10 to 100 % of what is measured first].",
)
def load(**asked: Any) -> None:
    """Times at given rates, from when each record was due: where the knee is.

    The rate does not wait for commits (an open loop), so a stall is paid by every record that fell
    into it. First it is measured how fast it goes; of a rate that was not held it says by how much,
    and no times.
    """
    measure("load", asked)


def measure(mode: str, asked: dict[str, Any]) -> None:
    """Make a quorum, run the load, verify, print. Raises VerificationFailed after it."""
    from kraftfast.errors import VerificationFailed

    if asked["samples"]:
        from kraftfast.bench.profiling.samples import check_target, parquet

        parquet()
        check_target(asked["samples"])
    lines, problem = scenario(mode, asked)
    show(mode, lines, asked["as_json"])
    if problem:
        raise VerificationFailed(f"the verification failed: {problem}")


def scenario(
    mode: str, asked: dict[str, Any], around: Around | None = None
) -> tuple[list[dict[str, Any]], str]:
    """Make a quorum, run the load, verify; return (the lines of the result, what is wrong or "").

    ``asked``: by name, what ``scenario_options`` and those of the command take. ``around``: as of
    :func:`kraftfast.bench.loads.measurement.measure`.
    """
    from kraftfast.bench.loads import measurement, other_clients
    from kraftfast.bench.loads.inputs import InputRows
    from kraftfast.cli.bench.bench_quorum import quorum_of
    from kraftfast.cli.scratch import refuse_without_space, scratch_directory

    if mode == "sustained" and asked["prepare"] is None:
        asked["prepare"] = min(SUSTAINED_PREPARE_MIB, asked["total"] or SUSTAINED_PREPARE_MIB)
    size, total = asked["record_size"], asked["total"]
    rows = InputRows(None, size, json=asked["values"] == "json")
    other_clients.check_descriptors(asked)
    refuse_without_space(asked["directory"], asked["voters"] * measurement.kept_bytes(asked))
    count = None if total is None else max(1, int(total * measurement.MIB) // size)
    asked["count"], asked["seconds"] = count, (asked["seconds"] or 5.0) if count is None else None
    prepare_bytes = measurement.prepared(mode, asked)
    with (
        scratch_directory("bench", asked["directory"]) as place,
        quorum_of(place, asked, prepare_bytes) as quorum,
    ):
        return measurement.measure(quorum, mode, rows, prepare_bytes, asked, around)


def show(mode: str, lines: list[dict[str, Any]], as_json: bool) -> None:
    """Print the lines of a result, as JSON or for people."""
    from kraftfast.cli.bench import show_bench

    if as_json:
        show_bench.tell_missing(lines)
        for line in lines:
            click.echo(json.dumps(line))
    elif mode == "sustained":
        show_bench.sustained(lines[0])
    elif mode == "load":
        show_bench.load(lines)
    else:
        brief = {key: value for key, value in lines[0].items() if key not in DETAILS}
        click.echo(json.dumps(brief))
        if mode == "throughput":
            click.echo(show_bench.perf_test(lines[0]))


@bench.command()
@options.below
@click.option("--quick", is_flag=True, help="Fewer samples.")
@options.as_json
def disk(directory: str | None, quick: bool, as_json: bool) -> None:
    """What an fdatasync costs on a disk, and which preparation of files suits it."""
    from kraftfast.bench.fdatasync_cost import measure as measure_disk
    from kraftfast.cli.scratch import scratch_directory
    from kraftfast.log.mounts import filesystem_of

    with scratch_directory("bench", directory) as place:
        cells = measure_disk(place, 0.1 if quick else 1.0)
        filesystem = filesystem_of(place)
    if as_json:
        click.echo(
            json.dumps({"filesystem": filesystem, "cells": [asdict(cell) for cell in cells]})
        )
    else:
        from kraftfast.cli.bench import show_bench

        show_bench.disk(cells, filesystem)
