"""``kraftfast bench floor``: the least work that the same records can cost on this machine."""

from __future__ import annotations

import json
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.limits import BATCH_BYTES_MAX

MIB = 1 << 20
FILES = ("prepared", "growing", "again")
TOTAL_MIB, KEPT_MIB, BATCH_BYTES, WINDOW, WINDOW_MAX = 256, 64, 65536, 32, 4096
TOTAL_MIB_MAX = 1 << 20


def check(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if asked["retention"] is not None and asked["files"] != "again":
        raise click.UsageError("--retention belongs to --files again")


@click.command(cls=options.Checked, check=check)
@options.below
@options.record_size
@click.option(
    "--batch-bytes",
    type=options.Size(1, BATCH_BYTES_MAX),
    default=BATCH_BYTES,
    show_default=True,
    help="A batch holds what fits into so much, one record at least.",
)
@click.option(
    "--window",
    type=click.IntRange(1, WINDOW_MAX),
    default=WINDOW,
    show_default=True,
    help="Batches under way.",
)
@click.option(
    "--total",
    type=options.Number(1, TOTAL_MIB_MAX),
    metavar="MIB",
    default=TOTAL_MIB,
    show_default=True,
    help="Commit so many MiB of values.",
)
@options.flushes
@click.option(
    "--files",
    type=click.Choice(FILES),
    default="prepared",
    show_default=True,
    help="What the log is when the clock starts: written beforehand, nothing, or old files that "
    "are used again in a circle.",
)
@click.option(
    "--retention",
    type=options.Number(1, TOTAL_MIB_MAX),
    metavar="MIB",
    help=f"With --files again: how large that circle is [{KEPT_MIB}].",
)
@options.as_json
def floor(**asked: Any) -> None:
    """The least work that three voters can do to commit the same records, in C.

    Three processes, shared memory, the same bytes, CRCs and flushes; no protocol, no producer, no
    elections. Each way to put bytes into files that suits is run once; the best of them is the
    floor of this machine.
    """
    from kraftfast.bench.floor import Work, best, run_ways
    from kraftfast.cli.scratch import refuse_without_space, scratch_directory
    from kraftfast.log.mounts import filesystem_of

    kept = int((asked["retention"] or KEPT_MIB) * MIB) if asked["files"] == "again" else 0
    total = int(asked["total"] * MIB)
    with scratch_directory("bench", asked["directory"]) as place:
        work = Work(
            place,
            asked["record_size"],
            asked["batch_bytes"],
            total,
            asked["window"],
            asked["durability"] != "memory",
            asked["files"],
            kept,
        )
        named = {"filesystem": filesystem_of(place)}
        refuse_without_space(place, 3 * work.file_bytes)
        found, problems = run_ways(work)
        lines = [each | named for each in found]
    for problem in problems:
        click.echo(f"kraftfast bench floor: not measured: {problem}", err=True)
    if asked["as_json"]:
        for each in lines:
            click.echo(json.dumps(each | {"best": each is best(lines)}))
        return
    from kraftfast.cli.bench import show_bench

    show_bench.floor(lines, best(lines))
