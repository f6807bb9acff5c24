"""``kraftfast spark``: jobs over whole logs, on Apache Spark."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import click

from kraftfast.cli import options
from kraftfast.cli.bench.bench_results import Values, keep, over, plan_of_matrix, results_folder
from kraftfast.cli.lazy import Group

master = click.option(
    "--master",
    default="local[2,4]",
    show_default=True,
    help="Where Spark runs: on this machine, or a cluster's address.",
)
memory = click.option("--memory", default="2g", show_default=True, help="Of the driver's JVM.")
servers = click.option(
    "--bootstrap-server", "servers", metavar="HOST:PORT[,...]", help="Read from these instead."
)


@click.group(cls=Group)
def spark() -> None:
    """Jobs over whole logs on Apache Spark: audit, convert, compact.

    They need Java 17, and pip install 'kraftfast[spark]'.
    """


def session(place: str, size: str) -> Any:
    """Raises SparkUnavailable."""
    import logging

    from kraftfast.spark import get_spark

    logging.getLogger().addHandler(logging.NullHandler())  # py4j shows what Ctrl-C ends
    return get_spark(place, memory=size)


@spark.command()
@click.argument("replicas", nargs=-1, required=True, metavar="DIR...", type=options.PlacePath())
@master
@memory
@options.as_json
def audit(replicas: tuple[str, ...], master: str, memory: str, as_json: bool) -> None:
    """Compare the logs of replicas, byte for byte and CRC for CRC.

    DIR is a replica's directory, a whole quorum's, or a glob. Reports the first difference, its
    place, and the replica that deviates; exit code 16 if anything does.
    """
    from kraftfast.errors import VerificationFailed
    from kraftfast.spark.jobs.auditing import audit as run
    from kraftfast.spark.reading.locations import find_places

    for each in replicas:
        find_places(each)  # raises before Spark is started, which takes long
    report = run(session(master, memory), replicas)
    click.echo(json.dumps(report.as_dict()) if as_json else "\n".join(report.lines()))
    if report.first is not None:
        raise VerificationFailed(report.first.text)


@spark.command()
@click.argument("places", nargs=-1, metavar="[DIR] TARGET", type=options.PlacePath())
@servers
@click.option("--columns", type=click.Choice(["full", "meta"]), default="full", show_default=True)
@click.option(
    "--compression", type=click.Choice(["zstd", "snappy", "none"]), default="zstd",
    show_default=True,
)  # fmt: skip
@master
@memory
@options.as_json
def convert(
    places: tuple[str, ...], servers: str | None, columns: str, compression: str, master: str,
    memory: str, as_json: bool,
) -> None:  # fmt: skip
    """Write a log as Parquet files into the folder TARGET; go on where an earlier run stopped."""
    from kraftfast.spark.jobs.conversion import convert as run

    more = {"columns": columns} | ({"bootstrap.servers": servers} if servers else {})
    source, target = source_and_target(places, servers)
    done = run(session(master, memory), source, target, compression=compression, **more)
    fields = {name: getattr(done, name) for name in ("path", "files", "kept", "rows", "bytes")}
    if as_json:
        click.echo(json.dumps(fields))
    else:
        click.echo(
            f"{done.path}: {done.files:,} files, {done.kept:,} of them from before; "
            f"{done.rows:,} rows written, {done.bytes:,} bytes"
        )


def source_and_target(places: tuple[str, ...], servers: str | None) -> tuple[str, str]:
    """Return ("" or DIR, TARGET). Raises UsageError unless there is one source."""
    if len(places) != (1 if servers else 2):
        raise click.UsageError("give either DIR or --bootstrap-server, and a TARGET")
    if not servers:
        from kraftfast.spark.reading.locations import find_places
        from kraftfast.spark.spark_options import local_path

        find_places(os.path.abspath(local_path(places[0])))  # raises before Spark is started
    return "" if servers else places[0], places[-1]


@spark.command()
@click.argument("places", nargs=-1, metavar="[DIR] TARGET", type=options.PlacePath())
@servers
@master
@memory
@options.as_json
def compact(
    places: tuple[str, ...], servers: str | None, master: str, memory: str, as_json: bool
) -> None:
    """Write the latest value of each key as Parquet into the folder TARGET, which must be new.

    Records without a key are left out, and counted.
    """
    from kraftfast.errors import InputError
    from kraftfast.spark import told
    from kraftfast.spark.jobs.conversion import compact as latest
    from kraftfast.spark.spark_options import local_path

    source, target = source_and_target(places, servers)
    target = os.path.abspath(local_path(target))
    if os.path.exists(target):
        raise InputError(f"{target} exists already")
    reader = session(master, memory).read.format("kraftfast")
    unfinished = f"{target}.unfinished"
    with told():
        log = reader.option("bootstrap.servers", servers).load() if servers else reader.load(source)
        try:
            without = log.where("key is null").count()
            latest(log).write.mode("overwrite").parquet(unfinished)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        os.rename(unfinished, target)
    keys = _rows(target)
    fields = {"path": target, "keys": keys, "records_without_key": without}
    said = f"; {without:,} records without a key left out" if without else ""
    click.echo(json.dumps(fields) if as_json else f"{target}: {keys:,} keys{said}")


def _rows(folder: str) -> int:
    """Return the rows of all Parquet files in a folder, by their footers."""
    from pyarrow import parquet

    names = [name for name in os.listdir(folder) if name.endswith(".parquet")]
    return sum(parquet.read_metadata(os.path.join(folder, name)).num_rows for name in names)


def check_picture(path: str) -> None:
    """Raise InputError or StorageError if no picture can be written there, before Spark starts."""
    from kraftfast.bench.targets import check_replaceable
    from kraftfast.errors import StorageError

    check_replaceable(path, b"<svg", "a picture")
    folder = os.path.dirname(path) or "."
    if not os.access(folder, os.W_OK):
        raise StorageError(f"cannot write {path}: no file can be made in {folder}")


@spark.command()
@click.argument("samples", nargs=-1, required=True, metavar="FILE...", type=options.Existing())
@click.option("--slices", type=click.IntRange(1, 1000), default=1, help="Of the time [1].")
@click.option(
    "--picture",
    metavar="FILE",
    type=options.PlacePath(dir_okay=False),
    help="Draw the percentiles into an SVG file.",
)
@master
@memory
@options.as_json
def latency(
    samples: tuple[str, ...], slices: int, picture: str | None, master: str, memory: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Percentiles of each stage on each replica, of what a bench wrote with ``--samples FILE``."""
    from kraftfast.bench.loads.load import SAMPLES_MIN
    from kraftfast.cli.show import put, table
    from kraftfast.spark import told
    from kraftfast.spark.jobs import commit_percentiles as job

    if picture is not None:
        check_picture(picture)
    reader = session(master, memory).read
    with told():
        rows = job.table(job.latency(reader.parquet(*samples), slices=slices))
    if picture is not None:
        job.picture(rows, picture)
    if as_json:
        click.echo(json.dumps(rows))
        return
    quantiles = (*job.QUANTILES, "max_us")
    made = table("stage", "replica", "slice", "samples", *(name[:-3] for name in quantiles))
    for row in rows:
        few = {name for name, least in SAMPLES_MIN.items() if row["count"] < least}
        times = ("-" if name in few else f"{row[name]:,.1f} us" for name in quantiles)
        made.add_row(
            row["stage"], str(row["replica"]), str(row["slice"]), f"{row['count']:,}", *times
        )
    put(made)


@spark.command()
@click.option("--seeds", metavar="A:B", help="Run these seeds of the simulator, B left out.")
@click.option("--bench", metavar="COMMAND", help="Or `kraftfast bench COMMAND`, with --over.")
@over
@click.option(
    "--repeat", type=click.IntRange(1, 10_000), default=1, show_default=True,
    help="How often each benchmark is run.",
)  # fmt: skip
@options.below
@results_folder
@click.option(
    "--backend", type=click.Choice(["process", "spark", "inline"]), default="process",
    show_default=True, help="Processes of this machine, Spark's executors, or this process.",
)  # fmt: skip
@click.option("--workers", type=click.IntRange(1), default=2, show_default=True)
@click.option(
    "--out", type=options.PlacePath(file_okay=False), metavar="DIR",
    help="Keep rows here, and go on from them.",
)  # fmt: skip
@master
@memory
@options.as_json
def sweep(
    seeds: str | None, bench: str | None, over: Values, repeat: int, directory: str | None,
    folder: Path | None, backend: str, workers: int, out: str | None, master: str, memory: str,
    as_json: bool,
) -> None:  # fmt: skip
    """Run many seeds of the simulator, or combinations of a benchmark's options: a row each.

    --bench throughput --over record-size=100,1024 is `bench matrix` on processes or on Spark's
    executors; each machine that ran some of it leaves a result (see `bench list`). Benchmarks
    share their machine: on one alone give --backend inline. Exit code 16 if a run failed.
    """
    from kraftfast.bench.results.result import default_folder, new_path
    from kraftfast.cli import sweeping
    from kraftfast.errors import VerificationFailed
    from kraftfast.spark.jobs.sweeps import sweep as run

    if bool(seeds) == bool(bench):
        raise click.UsageError("give either --seeds or --bench")
    if seeds and (over or repeat != 1 or directory is not None or folder is not None):
        raise click.UsageError("--over, --repeat, --dir and --results belong to --bench")
    items: list[Any]
    if bench:
        plan, table = plan_of_matrix(bench, over, repeat)
        new_path(
            folder or default_folder(), plan.name
        ).unlink()  # or is told before hours are spent
        what, again, items = (
            sweeping.measure,
            sweeping.measure_again,
            sweeping.turns(plan, directory),
        )
    else:
        what, again = sweeping.simulate, sweeping.simulate_again  # type: ignore[assignment]
        items = sweeping.seeds(seeds or "")
    hidden = not sys.stderr.isatty()
    with click.progressbar(length=len(items), label="runs", file=sys.stderr, hidden=hidden) as bar:
        rows = run(
            what, items, backend=backend, out=out or "", workers=workers, again=again,
            spark=session(master, memory) if backend == "spark" else None,
            progress=lambda done, _all: bar.update(done - bar.pos),
        )  # fmt: skip
    failed = [row for row in rows if not row["ok"]]
    for row in rows if as_json else failed:
        text = f"{row['again']}\n  {row['error']}"
        click.echo(json.dumps(row) if as_json else text)
    for result in sweeping.results(plan, table, rows) if bench else ():
        keep(result, folder, quiet=as_json)
    if not as_json:
        took = sum(row["seconds"] for row in rows)
        click.echo(f"{len(rows):,} runs, {len(failed):,} failed, {took:.1f} s of work")
    if failed:
        raise VerificationFailed(f"{len(failed)} of {len(rows)} runs failed: {failed[0]['again']}")
