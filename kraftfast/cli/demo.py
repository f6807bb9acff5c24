"""``kraftfast demo``: a quorum, an input, and a report of how it went."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from typing import Any

import click

from kraftfast.cli import options

RECORDS = 1_000_000
RECORD_BYTES = 100
RECORD_OVERHEAD_BYTES = 7
"""At least, in a batch."""
VOTERS = 3
WINDOW = 64


@click.command()
@click.option("--input", "input_path", metavar="FILE", help="Append the lines of FILE; - is stdin.")
@click.option(
    "--records",
    "count",
    type=click.IntRange(1, options.INT64_MAX),
    help=f"Generate so many records [{RECORDS:,}].",
)
@click.option(
    "--record-size",
    type=options.RECORD_BYTES,
    help=f"Bytes of a generated record [{RECORD_BYTES}].",
)
@options.voters("How many voters [3].")
@options.durability
@options.flush
@options.transport
@options.idle
@options.batch_bytes
@options.window(WINDOW)
@options.compression
@click.option(
    "--dir",
    "directory",
    type=options.DIRECTORY,
    help="Keep the quorum here [a directory that is removed].",
)
@options.timeout
@options.as_json
def demo(**asked: Any) -> None:
    """Append an input to a quorum, show how it went, verify it.

    Starts a quorum of worker processes on this host, appends the input while a progress bar runs,
    and reports throughput, commit latency and where the time went. Then the replicas' logs are
    compared with each other, byte for byte, and with the input.
    """
    from kraftfast.bench.loads.inputs import InputRows, Lines, open_input
    from kraftfast.cli.scratch import refuse_without_space, scratch_directory
    from kraftfast.errors import VerificationFailed

    path, count, size = asked["input_path"], asked["count"], asked["record_size"]
    if path is not None and (count is not None or size is not None):
        raise click.UsageError("--input cannot be combined with --records or --record-size")
    given: InputRows | Lines
    if path is None:
        given = InputRows(count or RECORDS, RECORD_BYTES if size is None else size, numbered=True)
    else:
        given = Lines(path, open_input("-") if path == "-" else None)
    directory = asked["directory"]
    if given.count is not None and given.value_bytes is not None:
        need = given.value_bytes + given.count * RECORD_OVERHEAD_BYTES
        refuse_without_space(directory, (asked["voters"] or VOTERS) * need)
    with nullcontext(directory) if directory else scratch_directory("demo") as place:
        report = run(given, place, asked)
    if asked["as_json"]:
        click.echo(json.dumps(report.as_dict()))
    else:
        from kraftfast.cli.show import show_report

        show_report(report)
    if report.problem:
        raise VerificationFailed(f"the verification failed: {report.problem}")


def run(given: Any, place: str, asked: dict[str, Any]) -> Any:
    """Append the input to a quorum in ``place``; returns the :class:`Report`."""
    from kraftfast import LocalQuorum, limits
    from kraftfast.bench import same_logs
    from kraftfast.bench.loads import inputs, load
    from kraftfast.bench.results import report
    from kraftfast.log.mounts import filesystem_of

    quorum = LocalQuorum(
        place,
        asked["voters"],
        durability=asked["durability"],
        flush=asked["flush"],
        transport=asked["transport"],
        idle=asked["idle"],
        timeout=asked["timeout"],
        prepare_bytes=limits.PREPARE_STRIDE_BYTES,  # its input comes at once
    )
    settings = {"batch_bytes": asked["batch_bytes"], "window": asked["window"]}
    with (
        quorum,
        quorum.producer(
            record_bytes_max=inputs.RECORD_BYTES_MAX,
            compression=asked["compression"],
            compression_level=asked["compression_level"],
            **settings,
        ) as producer,
    ):
        before = quorum.statuses()
        first_offset = max(status["high_watermark"] for status in before.values())
        with progress_bar(given.count) as progress:
            done = load.append_all(producer, given.chunks(), progress, asked["timeout"])
        after = quorum.statuses()
        end_offset = max(status["high_watermark"] for status in after.values())
        compared, problem = same_logs.verify(quorum, first_offset, end_offset, given.checker)
        return report.LoadReport(
            done,
            voters=len(quorum.directories),
            durability=quorum.description.durability,
            flush=asked["flush"],
            transport=asked["transport"],
            filesystem=filesystem_of(place),
            stages=report.stages(after, producer),
            replicas=report.replicas(before, quorum.statuses()),
            first_offset=first_offset,
            end_offset=end_offset,
            compared_bytes=compared,
            problem=problem,
            **settings,
        )


@contextmanager
def progress_bar(total: int | None) -> Iterator[Any]:
    """Give a function that takes the number of records so far; None if stderr is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("appending"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=Console(stderr=True), refresh_per_second=4) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)
