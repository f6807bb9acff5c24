"""``kraftfast spark``: jobs over whole logs, on Apache Spark."""

from __future__ import annotations

import json
import os
import shutil
from typing import Any

import click

from kraftfast.cli import options

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


@click.group()
def spark() -> None:
    """Jobs over whole logs on Apache Spark: audit, convert, compact.

    They need Java 17, and pip install 'kraftfast[spark]'.
    """


def session(place: str, size: str) -> Any:
    """Raises SparkUnavailable."""
    from kraftfast.spark import get_spark

    return get_spark(place, memory=size)


@spark.command()
@click.argument("replicas", nargs=-1, required=True, metavar="DIR...")
@master
@memory
@options.as_json
def audit(replicas: tuple[str, ...], master: str, memory: str, as_json: bool) -> None:
    """Hold the logs of replicas against each other, byte for byte and CRC for CRC.

    DIR is a replica's directory, a whole quorum's, or a glob. Says what differs first, where, and
    which replica is odd; exit code 16 if anything does.
    """
    from kraftfast.errors import VerificationFailed
    from kraftfast.spark.audit import audit as run

    report = run(session(master, memory), replicas)
    click.echo(json.dumps(report.as_dict()) if as_json else "\n".join(report.lines()))
    if report.first is not None:
        raise VerificationFailed(report.first.text)


@spark.command()
@click.argument("source", required=False, default="", metavar="[DIR]")
@click.argument("target", metavar="TARGET")
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
    source: str, target: str, servers: str | None, columns: str, compression: str, master: str,
    memory: str, as_json: bool,
) -> None:  # fmt: skip
    """Write a log as Parquet files into the folder TARGET; go on where an earlier run stopped."""
    from kraftfast.spark.convert import convert as run

    more = {"columns": columns} | ({"bootstrap.servers": servers} if servers else {})
    one_source(source, servers)
    done = run(session(master, memory), source, target, compression=compression, **more)
    fields = {name: getattr(done, name) for name in ("path", "files", "kept", "rows", "bytes")}
    if as_json:
        click.echo(json.dumps(fields))
    else:
        click.echo(
            f"{done.path}: {done.files:,} files, {done.kept:,} of them from before; "
            f"{done.rows:,} rows written, {done.bytes:,} bytes"
        )


def one_source(source: str, servers: str | None) -> None:
    """Raises UsageError unless it is either."""
    if bool(source) == bool(servers):
        raise click.UsageError("give either DIR or --bootstrap-server")


@spark.command()
@click.argument("source", required=False, default="", metavar="[DIR]")
@click.argument("target", metavar="TARGET")
@servers
@master
@memory
@options.as_json
def compact(
    source: str, target: str, servers: str | None, master: str, memory: str, as_json: bool
) -> None:
    """Write the latest value of each key as Parquet into the folder TARGET, which must be new."""
    from kraftfast.errors import InputError
    from kraftfast.spark import told
    from kraftfast.spark.convert import compact as latest

    one_source(source, servers)
    target = os.path.abspath(target)
    if os.path.exists(target):
        raise InputError(f"{target} exists already")
    reader = session(master, memory).read.format("kraftfast")
    unfinished = f"{target}.unfinished"
    with told():
        log = reader.option("bootstrap.servers", servers).load() if servers else reader.load(source)
        try:
            latest(log).write.mode("overwrite").parquet(unfinished)
        except BaseException:
            shutil.rmtree(unfinished, ignore_errors=True)
            raise
        os.rename(unfinished, target)
    keys = _rows(target)
    fields = {"path": target, "keys": keys}
    click.echo(json.dumps(fields) if as_json else f"{target}: {keys:,} keys")


def _rows(folder: str) -> int:
    """Of all Parquet files in a folder, by their footers."""
    from pyarrow import parquet

    names = [name for name in os.listdir(folder) if name.endswith(".parquet")]
    return sum(parquet.read_metadata(os.path.join(folder, name)).num_rows for name in names)
