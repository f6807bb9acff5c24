"""``kraftfast bench``: one JSON line a measurement, the same that other logs' harnesses print."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench_floor import floor
from kraftfast.cli.bench_results import compare_results, list_results, run_plan
from kraftfast.cli.lazy import Group

WINDOW = 32
RECORD_BYTES = 100
MIB = 1 << 20
SEGMENT_BYTES_MAX = 2**31 - MIB
SEGMENT_BYTES = 256 * MIB
BATCH_OVERHEAD_BYTES = 61
RECORD_OVERHEAD_BYTES = 16
SLACK_BYTES = 32 * MIB
KEPT_SEGMENTS = 4
SETTLE_S = 1.5
"""After the load: retention looks once a second, and nothing is to go while it is verified."""
LATENCY_PREPARE_BYTES = 32 * MIB
SUSTAINED_PREPARE_MIB = 64.0


@click.group(cls=Group)
def bench() -> None:
    """Measure throughput, latency, the disk and the floor; compare results."""


for each in (floor, run_plan, list_results, compare_results):
    bench.add_command(each)


def check_load(asked: dict[str, Any]) -> None:
    """Refuse options that do not go together. Raises UsageError."""
    if asked["total"] is not None and asked["seconds"] is not None:
        raise click.UsageError("--total or --seconds, not both")


def check_sustained(asked: dict[str, Any]) -> None:
    """As :func:`check_load`, for ``sustained``."""
    check_load(asked)
    if asked["samples"] or asked["stages"]:
        raise click.UsageError("--samples and --stages belong to throughput and latency")


def load_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that throughput and latency have in common."""
    decorators = [
        click.option(
            "--dir",
            "directory",
            type=options.DIRECTORY,
            help="Measure below this directory [/var/tmp].",
        ),
        click.option(
            "--record-size",
            type=options.RECORD_BYTES,
            default=RECORD_BYTES,
            show_default=True,
            help="Bytes of a value.",
        ),
        click.option("--seconds", type=options.SECONDS, help="Measure for so long [5]."),
        click.option(
            "--total",
            type=options.MIB,
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
            help="A segment of the log holds so much [what is prepared, 256 MiB at least].",
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
            "--samples",
            metavar="FILE",
            type=click.Path(dir_okay=False),
            help="Write the time of every commit in every stage as Parquet.",
        ),
        click.option(
            "--values",
            type=click.Choice(["random", "json"]),
            default="random",
            show_default=True,
            help="What the records hold: random bytes, or what looks like JSON.",
        ),
        click.option("--stages", is_flag=True, help="Add the latency of each stage to the line."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON, as most do anyway."),
    ]
    for decorator in reversed(decorators):
        command = decorator(command)  # type: ignore[operator]  # their common type is `function`
    return command


@bench.command(cls=options.Checked, check=check_load)
@load_options
@options.batch_bytes
@options.window(WINDOW)
@options.compression
def throughput(**asked: Any) -> None:
    """Records per second, as fast as the window allows.

    Bulk appends of records from memory; a latency is that of a batch, from handing over its first
    record to its commit. Every replica is verified afterwards, and the files are removed.
    """
    measure("throughput", asked)


@bench.command(cls=options.Checked, check=check_load)
@load_options
def latency(**asked: Any) -> None:
    """Time from an append to its commit, one record outstanding."""
    fixed = {
        "window": 1,
        "batch_bytes": 64 * 1024,
        "compression": "none",
        "compression_level": None,
    }
    measure("latency", asked | fixed)


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
    if asked["prepare"] is None:
        asked["prepare"] = min(SUSTAINED_PREPARE_MIB, asked["total"] or SUSTAINED_PREPARE_MIB)
    measure("sustained", asked)


def measure(mode: str, asked: dict[str, Any]) -> None:
    """Make a quorum, run the load, verify, print the line. Raises VerificationFailed after it."""
    from kraftfast.bench.inputs import Rows
    from kraftfast.cli.scratch import refuse_without_space, scratch_directory
    from kraftfast.errors import VerificationFailed

    if asked["samples"]:
        from kraftfast.bench.samples import check_target, parquet

        parquet()
        check_target(asked["samples"])
    size, total = asked["record_size"], asked["total"]
    rows = Rows(None, size, json=asked["values"] == "json")
    refuse_without_space(asked["directory"], asked["voters"] * kept_bytes(asked))
    count = None if total is None else max(1, int(total * MIB) // size)
    asked["count"], asked["seconds"] = count, (asked["seconds"] or 5.0) if count is None else None
    with scratch_directory("bench", asked["directory"]) as place:
        line, problem = run(mode, rows, place, prepared(mode, asked, count), asked)
    if mode == "sustained" and not asked["as_json"]:
        from kraftfast.cli.show import show_sustained

        show_sustained(line)
    else:
        click.echo(json.dumps(line))
    if problem:
        raise VerificationFailed(f"the verification failed: {problem}")


def kept_bytes(asked: dict[str, Any]) -> int:
    """Return how many bytes of log each replica will hold at least."""
    kept = asked["total"] if asked["retention"] is None else asked["retention"]
    return int(max(kept or 0, asked["prepare"] or 0) * MIB)


def prepared(mode: str, asked: dict[str, Any], count: int | None) -> int:
    """Return how many bytes of log to prepare before the clock starts."""
    if asked["prepare"] is not None:
        return int(asked["prepare"] * MIB)
    if count is None:
        return LATENCY_PREPARE_BYTES if mode == "latency" else 0
    overhead = RECORD_OVERHEAD_BYTES + (BATCH_OVERHEAD_BYTES if mode == "latency" else 1)
    return int(count * (asked["record_size"] + overhead)) + SLACK_BYTES


def run(
    mode: str, rows: Any, place: str, prepare_bytes: int, asked: dict[str, Any]
) -> tuple[dict[str, Any], str]:
    """Return (the JSON line, what the verification found wrong or "")."""
    from kraftfast import LocalQuorum
    from kraftfast.bench import inputs, report, verify
    from kraftfast.bench.sustained import costs, costs_since, cpu_s_per_million
    from kraftfast.log.mounts import filesystem_of

    retention = None if asked["retention"] is None else int(asked["retention"] * MIB)
    wanted = prepare_bytes if retention is None else retention // KEPT_SEGMENTS
    segment_bytes = asked["segment_bytes"] or min(SEGMENT_BYTES_MAX, max(wanted, SEGMENT_BYTES))
    quorum = LocalQuorum(
        place,
        asked["voters"],
        durability=asked["durability"],
        flush=asked["flush"],
        transport=asked["transport"],
        idle=asked["idle"],
        processors=asked["processors"],
        segment_bytes=segment_bytes,
        prepare_bytes=prepare_bytes,
        retention_bytes=retention,
        timeout=600.0,
    )
    settings = {"batch_bytes": asked["batch_bytes"], "window": asked["window"]}
    compression = {each: asked[each] for each in ("compression", "compression_level")}
    with quorum, quorum.producer(record_bytes_max=rows.size, **settings, **compression) as producer:
        before = quorum.statuses()
        first_offset = max(status["high_watermark"] for status in before.values())
        spent = costs(quorum)
        done, more = drive(mode, quorum, producer, rows, asked)
        used = costs_since(spent, costs(quorum))
        after = quorum.statuses()
        end_offset = max(status["high_watermark"] for status in after.values())
        if retention is not None:
            time.sleep(SETTLE_S)
        checker: inputs.Checker = rows.checker(done.handed_over)
        _, problem = verify.verify(quorum, first_offset, end_offset, checker)
        line = report.bench_line(
            done,
            mode=mode,
            voters=asked["voters"],
            durability=quorum.description.durability,
            value_bytes=rows.size,
            window=asked["window"],
            verified=not problem,
        )
        flushes = sum(replica.flushes for replica in report.replicas(before, after))
        line |= {
            "durability": quorum.description.durability,
            "flush": asked["flush"],
            "transport": asked["transport"],
            "idle": asked["idle"],
            "batch_bytes": asked["batch_bytes"],
            "compression": asked["compression"],
            "values": asked["values"],
            "prepared_mib": round(prepare_bytes / MIB),
            "retention_mib": asked["retention"],
            "filesystem": filesystem_of(place),
            "fsyncs_per_1000_records": round(1000 * flushes / done.handed_over, 4),
            "cpu_s_per_million_records": cpu_s_per_million(used, done.handed_over),
        }
        line |= more
        if mode == "sustained":
            line["processes_cost"] = [asdict(each) for each in used]
        if asked["stages"]:
            line["stages"] = [asdict(stage) for stage in report.stages(after, producer)]
        return line, problem


def drive(
    mode: str, quorum: Any, producer: Any, rows: Any, asked: dict[str, Any]
) -> tuple[Any, dict[str, Any]]:
    """Run the load; returns it, and what was seen meanwhile where more than that is asked for.

    With ``--samples``, look at every replica meanwhile and write what was seen.
    """
    from kraftfast.bench import load
    from kraftfast.bench.samples import Looking, Sampler

    bounds = asked["count"], asked["seconds"]
    if not asked["samples"]:
        if mode == "sustained":
            return drive_sustained(quorum, producer, rows, *bounds)
        run = load.throughput if mode == "throughput" else load.one_outstanding
        return run(producer, rows, *bounds), {}
    watches = {id: quorum.watch(id) for id in quorum.directories}
    try:
        sampler = Sampler({id: watch.stats for id, watch in watches.items()})
        if mode == "throughput":
            with Looking(sampler):
                done = load.throughput(producer, rows, *bounds)
        else:
            done = load.one_outstanding(producer, rows, *bounds, sampler.look)
    finally:
        for watch in watches.values():
            watch.close()
    sampler.write(asked["samples"])
    return done, {}


def drive_sustained(
    quorum: Any, producer: Any, rows: Any, count: int | None, seconds: float | None
) -> tuple[Any, dict[str, Any]]:
    """Run the load and look at it each second; returns it, and the keys for the line."""
    from kraftfast.bench import load
    from kraftfast.bench.sustained import Timeline, machine_stolen_s

    watches = [quorum.watch(id) for id in quorum.directories]
    loads, stolen_s = os.getloadavg(), machine_stolen_s()
    try:
        timeline = Timeline(producer, [watch.stats for watch in watches])
        done = load.throughput(producer, rows, count, seconds, timeline.looking())
    finally:
        for watch in watches:
            watch.close()
    return done, {
        "load_average": [round(each, 2) for each in loads],
        "stolen_s": round(machine_stolen_s() - stolen_s, 2),
        "timeline": [asdict(each) for each in timeline.seconds],
    }


@bench.command()
@click.option(
    "--dir", "directory", type=options.DIRECTORY, help="Measure below this directory [/var/tmp]."
)
@click.option("--quick", is_flag=True, help="Fewer samples.")
@options.as_json
def disk(directory: str | None, quick: bool, as_json: bool) -> None:
    """What an fdatasync costs on a disk, and which preparation of files suits it."""
    from kraftfast.bench.disk import measure as measure_disk
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
        from kraftfast.cli.show import show_disk

        show_disk(cells, filesystem)
