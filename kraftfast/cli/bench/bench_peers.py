"""``kraftfast bench peers`` and ``peer``: the same work, done by other replicated logs by turns."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench.bench_results import results_folder, resume, run_and_show
from kraftfast.errors import InputError

if TYPE_CHECKING:
    from kraftfast.bench.results.result import Result

ROUNDS_MAX = 10_000
SECONDS, TIMEOUT_S, TOTAL_MIB = 5.0, 300.0, 512.0
NAME = re.compile("[a-z0-9][a-z0-9_-]{0,63}")
UNMEASURED = 1
"""The exit code where something failed, or was asked for by name and is not there."""
FOLDER = options.PlacePath(path_type=Path)

seconds = options.seconds("How long a run of one program is measured.", SECONDS)
timeout = click.option(
    "--timeout",
    type=options.SECONDS,
    default=TIMEOUT_S,
    show_default=True,
    help="Seconds that a driver has for a run, with its start.",
)


@click.command("peer")
@click.option("--program", type=FOLDER, required=True, help="The driver.")
@click.option(
    "--mode",
    type=click.Choice(["latency", "throughput"]),
    default="latency",
    show_default=True,
    help="One record outstanding, or many.",
)
@options.below
@options.record_size
@seconds
@options.flushes
@timeout
@options.as_json
def run_peer(**asked: Any) -> None:
    """Run the driver of another log once, and check the line that it prints.

    bench/peers/README.md in a clone says how drivers are called and what they print.
    """
    from kraftfast.bench.peers import PeerWork, run
    from kraftfast.cli.bench import show_bench
    from kraftfast.cli.scratch import scratch_directory
    from kraftfast.log.mounts import filesystem_of

    with scratch_directory("bench", asked["directory"]) as place:
        durable = asked["durability"] == "majority"
        work = PeerWork(place, asked["mode"], asked["record_size"], asked["seconds"], durable)
        line = run(asked["program"], work, asked["timeout"]) | {"filesystem": filesystem_of(place)}
    if asked["as_json"]:
        click.echo(json.dumps(line))
    else:
        click.echo(f"{line['peer']} {line['version']}, {line['mode']}")
        show_bench.figures(line)


class Only(click.ParamType[Any]):
    """Names of programs: ``kraftfast,etcd``."""

    name = "NAME,NAME,..."

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        if isinstance(value, list):
            return value
        names = value.split(",")
        for name in names:
            if not NAME.fullmatch(name):
                self.fail(f"{name[:40]!r} is no name of a program", param, ctx)
        return list(dict.fromkeys(names))


def check_peers(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if asked["build"] and asked["peers"] is None:
        raise click.UsageError("--build needs --peers FOLDER: where drivers are built")
    if asked["kills"] and asked["only"] and "kraftfast" not in asked["only"]:
        raise click.UsageError("--kills are of kraftfast, which --only leaves out")


@click.command("peers", cls=options.Checked, check=check_peers)
@click.option(
    "--peers",
    type=FOLDER,
    metavar="FOLDER",
    help="Where the drivers are built; without it only kraftfast and the floor run.",
)
@click.option("--build", is_flag=True, help="Build the drivers that are missing; needs a clone.")
@click.option("--only", type=Only(), help="Only these, and in this order [all].")
@click.option(
    "--rounds",
    type=click.IntRange(1, ROUNDS_MAX),
    default=3,
    show_default=True,
    help="How often each program runs.",
)
@seconds
@click.option(
    "--total",
    type=options.Number(1, 1 << 20),
    metavar="MIB",
    default=TOTAL_MIB,
    show_default=True,
    help="MiB of values that kraftfast and the floor commit where throughput is measured.",
)
@options.flushes
@click.option(
    "--kills",
    type=click.IntRange(0, 10_000),
    default=0,
    show_default=True,
    help="Also kill kraftfast's leader so often, in each round.",
)
@timeout
@options.below
@resume
@results_folder
@options.as_json
def run_peers(**asked: Any) -> None:
    """Measure other replicated logs beside kraftfast and the floor, by turns.

    Three voters on this machine; one 100 B record outstanding, and many of 1 KiB. Each is verified
    after each run, and says what it flushes before it acknowledges. What cannot be built or run is
    named, and the others run. The result is one as of bench run: each turn is saved as it ends.
    """
    from kraftfast.bench import peers
    from kraftfast.bench.results import plan

    named = asked["only"]
    asked["only"] = named or _all(asked["peers"])
    missing = _missing(asked)
    if len(missing) == len(asked["only"]):
        raise InputError(f"nothing to measure: {missing[asked['only'][0]]}")
    for reason in missing.values():
        click.echo(f"kraftfast bench peers: not measured: {reason}", err=True)
    if asked["peers"] is None:
        asked["peers"] = Path()
    asked["peers"] = asked["peers"].absolute()
    table = peers.table(asked)
    failures = {f"{name}, {mode}": missing[name] for name in missing for mode in peers.RECORD_BYTES}
    whole = plan.of_table(table, "peers")
    result = run_and_show(
        whole, table, asked["directory"], asked["resume"], asked["folder"],
        asked["as_json"], show_rows, failures,
    )  # fmt: skip
    if asked["as_json"]:
        for row in peers.rows(result):
            click.echo(json.dumps(row))
    if not result.runs or len(result.failures) > len(failures) or (named and missing):
        click.get_current_context().exit(UNMEASURED)


def _all(folder: Path | None) -> list[str]:
    """Return the names of all that can run: ours, the drivers that are known, others in FOLDER."""
    from kraftfast.bench.peers import NAMES, OURS

    if folder is None:
        return list(OURS)
    try:
        there = [each for each in os.listdir(folder / "bin") if NAME.fullmatch(each)]
    except OSError:
        there = []
    return [*OURS, *sorted({*NAMES, *there} - {*OURS})]


def _missing(asked: dict[str, Any]) -> dict[str, str]:
    """Return which programs are not there, and why; those that can be are built if that is asked.

    Raises InputError where drivers are to be built and there is no clone.
    """
    from kraftfast.bench import peers

    folder, missing = asked["peers"], {}
    for name in asked["only"]:
        if name in peers.OURS:
            continue
        if folder is None:
            missing[name] = f"{name}: --peers says where the drivers are"
        elif not (folder / "bin" / name).is_file():
            told = f"there is no {folder / 'bin' / name}: --build makes it, in a clone"
            if asked["build"]:
                click.echo(f"building {name} into {folder}", err=True)
                told = peers.build(folder, name)
            missing |= {name: f"{name}: {told}"} if told else {}
    return missing


def show_rows(result: Result) -> None:
    """Print a line for each program and mode: medians with their ranges, and what they promise."""
    from kraftfast.bench.page.texts import spread
    from kraftfast.bench.peers import FAILOVER, rows
    from kraftfast.cli.show import microseconds, put, table

    words = ("program", "mode", "version", "flushed before an acknowledgement", "which survives")
    made = table(*words, "records/s", "p50, us", "p99, us", "runs", left=5)
    for row in rows(result):
        texts = [row[key] or "" for key in ("name", "mode", "version", "fsync", "survives")]
        found = [
            [row[key + suffix] for suffix in ("", "_min", "_max")]
            for key in ("records_per_s", "p50_us", "p99_us")
        ]
        figures = (spread([] if each[0] is None else each) for each in found)
        made.add_row(*texts, *figures, str(row["runs"]))
    put(made)
    for each in result.values(FAILOVER, "p50_us"):
        click.echo(f"after kill -9 of kraftfast's leader, the next commit: {microseconds(each)}")
