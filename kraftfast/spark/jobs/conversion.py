"""A log as Parquet files, written by the tasks themselves; and the latest value of each key.

A task writes one file of a piece of the log under another name, flushes it, and renames it: a
second attempt replaces what a first one left, and readers of the folder see whole files only.
A conversion that was interrupted goes on where it stopped, and one of a log that has grown takes
what is new: each file says in its metadata where its piece ends.
"""

from __future__ import annotations

import json
import os
import re
import uuid
import zlib
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraftfast.errors import InputError, InvalidOption
from kraftfast.log.disk import storage_error
from kraftfast.spark.jobs.tasks import fan_out
from kraftfast.spark.reading.arrow_batches import REPLICA, chosen
from kraftfast.spark.reading.committed import Logs
from kraftfast.spark.sessions.local_session import register
from kraftfast.spark.spark_options import SparkLogOptions, local_path
from kraftfast.spark.streaming.followed import Paths, Servers
from kraftfast.spark.streaming.lineage import Offsets, lineages, marked, positions

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from kraftfast.spark.reading.remote_ranges import Range

MARK = "_kraftfast.json"
UNFINISHED_MARK = f"{MARK}.unfinished"
END: Final = b"kraftfast.end"
"""What a file says of its piece: the byte behind it, or at a quorum's servers the offset."""
UNFINISHED = re.compile(r"\..+\.parquet\.[0-9a-f]{32}")
OF_SERVERS = re.compile(r"offsets-(\d{20})\.parquet")
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
    them. The same call again writes only what is missing, of a log that has grown too.
    Raises InputError if the folder holds something else, InconsistentClusterId, ForeignDirectory if
    it is of a log that was made again, or of a replica that was, and whatever reading raises.
    """
    from pyspark.sql.datasource import InputPartition

    from kraftfast.spark.reading.sources import LogSource, LogSourceReader

    if compression not in COMPRESSIONS:
        raise InvalidOption(f"compression={compression!r}: it is one of {', '.join(COMPRESSIONS)}")
    given = {name: str(value) for name, value in options.items()}
    given |= {"path": os.path.abspath(local_path(source))} if source else {}
    made = LogSource(given)
    fields, read = made.fields(), made.read_options
    target = os.path.abspath(local_path(target))
    replicas = sources_of(read)
    settings = given | {"compression": compression}
    kept, held = _claim(target, settings, replicas)
    _write_mark(target, settings, kept, compared(kept, held, read))
    if kept != replicas:
        read = replace(read, path=kept[0])
    reader = LogSourceReader(read, chosen(fields, list(fields)))
    parts = reader.partitions()
    before = 0
    if read.servers:
        covered = _covered(target)
        parts = [InputPartition(left) for part in parts for left in uncovered(part.value, covered)]
        before = len(covered)
    register(spark)
    done = fan_out(spark, lambda part: write_file(reader, part, target, compression), parts)
    return Converted(
        target,
        before + len(done),
        before + sum(rows is None for rows, _ in done),
        sum(rows or 0 for rows, _ in done),
        sum(size for _, size in done),
    )


def sources_of(options: SparkLogOptions) -> list[str]:
    """Return the directories that a conversion reads."""
    if not options.path:
        return []
    with Logs.of(options) as logs:
        return [each.log.place.name for each in logs.bounded().values()]


def _claim(target: str, settings: dict[str, str], replicas: list[str]) -> tuple[list[str], Offsets]:
    """Make the folder, or see that it is the same conversion's; the replicas that it is of, and
    what was read of them.

    Of a quorum's directory another replica may have most by now: its segments begin elsewhere, and
    records of both would stand in the folder.
    """
    mark = os.path.join(target, MARK)
    try:
        os.makedirs(target, exist_ok=True)
        if os.path.exists(mark):
            with open(mark, encoding="utf-8") as file:
                held = json.load(file)
            kept: list[str] = held["replicas"]
            if held["settings"] != settings or kept != replicas and len(kept + replicas) != 2:
                raise InputError(f"{target} holds a conversion of something else")
            for name in filter(UNFINISHED.fullmatch, os.listdir(target)):
                os.unlink(os.path.join(target, name))
            return kept, held.get("read", {})
        if set(os.listdir(target)) - {UNFINISHED_MARK}:
            raise InputError(f"{target} is not empty, and holds no conversion")
        _write_mark(target, settings, replicas, {})
        return replicas, {}
    except (ValueError, LookupError, TypeError):
        raise InputError(f"{mark} does not parse: remove {target} to begin again") from None
    except OSError as error:
        raise storage_error("cannot write to", target, error) from None


def _write_mark(target: str, settings: dict[str, str], replicas: list[str], read: Offsets) -> None:
    unfinished = os.path.join(target, UNFINISHED_MARK)
    try:
        with open(unfinished, "w", encoding="utf-8") as file:
            json.dump({"settings": settings, "replicas": replicas, "read": read}, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(unfinished, os.path.join(target, MARK))
    except OSError as error:
        raise storage_error("cannot write to", target, error) from None


def compared(kept: list[str], held: Offsets, read: SparkLogOptions) -> Offsets:
    """Compare the logs with what a folder holds of them; return what they are by now.

    The segments of a replica that was rebuilt begin elsewhere: its records would come again.
    Raises InconsistentClusterId, ForeignDirectory.
    """
    path = kept[0] if len(kept) == 1 else read.path
    read = replace(read, path=path, fail_on_data_loss=True)
    with closing(Servers(read) if read.servers else Paths(read)) as followed:
        begin = positions(held)
        ends = followed.ends(begin)
        followed.compare(begin, lineages(held), True)
        return marked(ends, followed.lineages(ends))


def end_of(path: str) -> int:
    """Return where the piece of a file ends; -1 if the file does not say."""
    try:
        return int((pq.read_metadata(path).metadata or {}).get(END, -1))
    except (OSError, ValueError):  # ArrowInvalid is a ValueError
        return -1


def _covered(target: str) -> list[tuple[int, int]]:
    """Return which offsets of a quorum's servers a folder has, rising."""
    found = filter(None, map(OF_SERVERS.fullmatch, os.listdir(target)))
    spans = ((int(each[1]), end_of(os.path.join(target, each[0]))) for each in found)
    return sorted((first, end) for first, end in spans if end > first)


def uncovered(part: Range, covered: list[tuple[int, int]]) -> Iterator[Range]:
    """Yield what is left of a range: where it is cut depends on where the log begins and ends by
    now.

    >>> from kraftfast.spark.reading.remote_ranges import Range
    >>> found = uncovered(Range("a:1", 10, 50), [(0, 20), (30, 40)])
    >>> [(each.first_offset, each.end_offset) for each in found]
    [(20, 30), (40, 50)]
    """
    at = part.first_offset
    for first, end in covered:
        if at < first and at < part.end_offset:
            yield replace(part, first_offset=at, end_offset=min(first, part.end_offset))
        at = max(at, end)
    if at < part.end_offset:
        yield replace(part, first_offset=at)


def write_file(reader: Any, part: Any, target: str, compression: str) -> tuple[int | None, int]:
    """Write one piece as a file: (rows, bytes), or (None, 0) if it was there.

    Raises StorageError.
    """
    path = os.path.join(target, file_name(part.value, REPLICA in reader.schema.names))
    end = part.value.end if hasattr(part.value, "path") else part.value.end_offset
    if os.path.exists(path) and end_of(path) == end:
        return None, 0
    unfinished = os.path.join(target, f".{os.path.basename(path)}.{uuid.uuid4().hex}")
    rows = 0
    try:
        with open(unfinished, "wb") as file:
            with _parquet(file, reader.schema, compression) as writer:
                for group in groups(reader.read(part)):
                    writer.write_table(group, row_group_size=len(group))
                    rows += len(group)
                writer.add_key_value_metadata({END: str(end)})
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


def file_name(part: Any, several: bool = False) -> str:
    """Name a file by its first offset at a quorum's servers, by segment and byte in a directory.

    ``several``: replicas whose directories may have one name. Readers pass over files whose names
    begin with a dot or an underscore, as a log's own directory does.
    """
    if hasattr(part, "servers"):
        return f"offsets-{part.first_offset:020d}.parquet"
    segment = os.path.basename(part.path).removesuffix(".log")
    replica = re.sub(r"[^\w.-]", "_", os.path.basename(part.replica)).lstrip("._") or "log"
    if several:
        replica = f"{replica}-{zlib.crc32(os.fsencode(part.replica)):08x}"
    return f"{replica}-{segment}-{part.position:012d}.parquet"


def compact(log: DataFrame) -> DataFrame:
    """Return the latest record of each key, as Kafka's log cleaner leaves it: offset, key, value.
    Of several logs it is that of each, with the column ``replica`` first.

    A key whose latest value is null is gone (a tombstone); records without a key are left out.
    """
    from pyspark.sql import functions

    log_of = [REPLICA] if REPLICA in log.columns else []
    latest = functions.expr("max_by(value, offset) as value")
    return (
        log.where("key is not null")
        .groupBy(*log_of, "key")
        .agg(functions.expr("max(offset) as offset"), latest)
        .where("value is not null")
        .select(*log_of, "offset", "key", "value")
    )
