"""A log as Parquet files, written by the tasks themselves; and the latest value of each key.

A task writes one file of a piece of the log under another name, flushes it, and renames it: a
second attempt replaces what a first one left, and whoever reads the folder sees whole files only.
A conversion that was interrupted goes on where it stopped.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraftfast.errors import InputError, InvalidOption
from kraftfast.log.disk import storage_error
from kraftfast.spark.session import register
from kraftfast.spark.tasks import fan_out

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MARK = "_kraftfast.json"
COMPRESSIONS = ("zstd", "snappy", "none")
GROUP_BYTES = 8 * 1024 * 1024  # Spark reads groups of 64 MB a quarter slower; profiles/README.md
RISING: Final = ("offset", "timestamp", "sequence")
"""Columns whose neighbours differ by little: kept as differences."""
UNLIKE: Final = ("value",)
"""Columns whose values are mostly all different: no dictionary is begun for them."""
SEARCHED: Final = ("offset", "epoch", "timestamp")
"""Columns whose least and greatest value each row group tells."""


@dataclass(frozen=True, slots=True)
class Converted:
    """What a conversion wrote. ``kept``: files that an earlier one had finished."""

    path: str
    files: int
    kept: int
    rows: int
    bytes: int


def convert(
    spark: SparkSession, source: str, target: str, *, compression: str = "zstd", **options: Any
) -> Converted:
    """Write a log as Parquet into a folder, a file a piece, named by where the piece begins.

    ``options``: of the source ``kraftfast``; with ``source`` empty, ``bootstrap.servers`` among
    them. The same call again writes only what is missing.
    Raises InputError if the folder holds something else, and whatever reading raises.
    """
    from kraftfast.spark.sources import LogReader, LogSource
    from kraftfast.spark.tables import chosen

    if compression not in COMPRESSIONS:
        raise InvalidOption(f"compression={compression!r}: it is one of {', '.join(COMPRESSIONS)}")
    given = {name: str(value) for name, value in options.items()}
    given |= {"path": os.path.abspath(source)} if source else {}
    made = LogSource(given)
    fields = made.fields()
    reader = LogReader(made.read_options, chosen(fields, list(fields)))
    parts = reader.partitions()
    target = os.path.abspath(target)
    _claim(target, given | {"compression": compression})
    register(spark)
    done = fan_out(spark, lambda part: write_file(reader, part, target, compression), parts)
    return Converted(
        target,
        len(done),
        sum(rows is None for rows, _ in done),
        sum(rows or 0 for rows, _ in done),
        sum(size for _, size in done),
    )


def _claim(target: str, settings: dict[str, str]) -> None:
    """Make the folder, or see that it is the same conversion's."""
    mark = os.path.join(target, MARK)
    try:
        os.makedirs(target, exist_ok=True)
        if os.path.exists(mark):
            with open(mark, encoding="utf-8") as file:
                if json.load(file) != settings:
                    raise InputError(f"{target} holds a conversion of something else")
        elif os.listdir(target):
            raise InputError(f"{target} is not empty, and holds no conversion")
        else:
            with open(mark, "w", encoding="utf-8") as file:
                json.dump(settings, file)
    except ValueError:
        raise InputError(f"{mark} does not parse: remove {target} to begin again") from None
    except OSError as error:
        raise storage_error("cannot write to", target, error) from None


def write_file(reader: Any, part: Any, target: str, compression: str) -> tuple[int | None, int]:
    """One piece as a file: (rows, bytes), or (None, 0) if it was there. Raises StorageError."""
    path = os.path.join(target, file_name(part.value))
    if os.path.exists(path):
        return None, 0
    unfinished = os.path.join(target, f".{os.path.basename(path)}.{uuid.uuid4().hex}")
    rows = 0
    try:
        with open(unfinished, "wb") as file:
            with _parquet(file, reader.schema, compression) as writer:
                for group in groups(reader.read(part)):
                    writer.write_table(group, row_group_size=len(group))
                    rows += len(group)
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        os.replace(unfinished, path)
    except OSError as error:
        raise storage_error("cannot write", path, error) from None
    finally:
        if os.path.exists(unfinished):
            os.unlink(unfinished)
    return rows, size


def _parquet(file: Any, schema: pa.Schema, compression: str) -> pq.ParquetWriter:
    rising = [name for name in RISING if name in schema.names]
    return pq.ParquetWriter(
        file,
        schema,
        compression=compression,
        use_dictionary=[name for name in schema.names if name not in RISING + UNLIKE],
        column_encoding=dict.fromkeys(rising, "DELTA_BINARY_PACKED"),
        write_statistics=[name for name in SEARCHED if name in schema.names],
    )


def groups(batches: Iterator[pa.RecordBatch], size: int = GROUP_BYTES) -> Iterator[pa.Table]:
    """Record batches in row groups of about ``size`` bytes: a reader skips and reads by those."""
    held: list[pa.RecordBatch] = []
    held_bytes = 0
    for batch in batches:
        held.append(batch)
        held_bytes += batch.nbytes
        if held_bytes >= size:
            yield pa.Table.from_batches(held)
            held, held_bytes = [], 0
    if held:
        yield pa.Table.from_batches(held)


def file_name(part: Any) -> str:
    """By its first offset at a quorum's servers, by segment and byte in a directory."""
    if hasattr(part, "servers"):
        return f"offsets-{part.first_offset:020d}.parquet"
    segment = os.path.basename(part.path).removesuffix(".log")
    replica = os.path.basename(part.replica)
    return f"{replica}-{segment}-{part.position:012d}.parquet"


def compact(log: DataFrame) -> DataFrame:
    """The latest record of each key, as Kafka's log cleaner leaves it: offset, key, value.

    A key whose latest value is null is gone (a tombstone); records without a key are left out.
    """
    from pyspark.sql import functions

    latest = functions.expr("max_by(value, offset) as value")
    return (
        log.where("key is not null")
        .groupBy("key")
        .agg(functions.expr("max(offset) as offset"), latest)
        .where("value is not null")
        .select("offset", "key", "value")
    )
