"""The batch sources: ``kraftfast``, ``kraftfast-batches``, ``kraftfast-snapshot``.

A reader is planned in a process beside the driver, and each of its partitions is read by a task.
"""

from __future__ import annotations

import glob
import os
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, cast

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.types import StructType

from kraftfast.errors import CorruptBatch, InputError, InvalidOption, OffsetOutOfRange
from kraftfast.log.disk import Disk
from kraftfast.log.reading.reader import corrupt_log
from kraftfast.log.reading.verify import open_file
from kraftfast.log.snapshots.snapshot_files import SUFFIX as SNAPSHOT_SUFFIX
from kraftfast.log.snapshots.snapshot_files import id_of, snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.record.rows import decode_rows
from kraftfast.record.shapes import FAULT_TEXTS, Fault
from kraftfast.spark.reading import remote_ranges, splits
from kraftfast.spark.reading.arrow_batches import (
    BATCH_FIELDS,
    CONTENTS,
    asked_for,
    ddl,
    row_batch,
    row_fields,
)
from kraftfast.spark.reading.catalog import makes_a_table, recalled, table_schema
from kraftfast.spark.reading.committed import Bounded, Logs, left_out, running_end
from kraftfast.spark.reading.locations import find_places, holds_several
from kraftfast.spark.reading.split_reader import read_headers, read_part
from kraftfast.spark.reading.splits import OPEN_END, Bounds, Damaged, Piece, header_pieces
from kraftfast.spark.sessions.forked import settle
from kraftfast.spark.spark_options import (
    BATCH_BYTES,
    BATCHES_OPTIONS,
    LOG_OPTIONS,
    SNAPSHOT_OPTIONS,
    Given,
    SparkLogOptions,
)
from kraftfast.spark.streaming.followed import check_end

Tasks = list[InputPartition]


class LogSource(DataSource):
    """``format("kraftfast")``: a row a record, read, followed, or appended."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        Given(options, LOG_OPTIONS, self.name())  # a name that is not known is refused at once

    @property
    def read_options(self) -> SparkLogOptions:
        """Raises InvalidOption."""
        return SparkLogOptions.of(self.options, LOG_OPTIONS, self.name())

    @classmethod
    def name(cls) -> str:
        return "kraftfast"

    def fields(self) -> dict[str, pa.DataType]:
        """Return name and type of every column, as the options have them."""
        options = self.read_options
        several = bool(options.path) and holds_several(options.path)
        return row_fields(options.contents, several, options.on_corrupt == "report")

    def schema(self) -> StructType | str:
        if makes_a_table(self.options):
            return table_schema(self.fields(), self.options)
        return ddl(self.fields())

    def _recall(self, schema: StructType) -> None:
        """Recall the options of a table by its schema: Spark hands over nothing else here."""
        self.options = recalled(self.options, schema)

    def reader(self, schema: StructType) -> DataSourceReader:
        self._recall(schema)
        kind = PushingLogReader if self.read_options.push_filters else LogSourceReader
        return kind(self.read_options, asked_for(self.fields(), schema))

    def streamReader(self, schema: StructType) -> Any:
        from kraftfast.spark.streaming.stream import StreamReader

        self._recall(schema)
        return StreamReader(self.read_options, asked_for(self.fields(), schema))

    def writer(self, schema: StructType, overwrite: bool) -> Any:
        from kraftfast.spark.writing.sink import BatchWriter, SinkOptions

        self._recall(schema)
        return BatchWriter(SinkOptions.of(self.options, self.name()), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> Any:
        from kraftfast.spark.writing.sink import SinkOptions, StreamWriter

        self._recall(schema)
        return StreamWriter(SinkOptions.of(self.options, self.name()), schema, overwrite)


class LogSourceReader(DataSourceReader):
    """Reads the records of one log or of several."""

    # options: what is asked for. schema: of the batches handed out. bounds: what filters leave.

    def __init__(self, options: SparkLogOptions, schema: pa.Schema) -> None:
        if options.start_offset == -1:
            raise InvalidOption("startOffset=latest is a stream's: a batch begins at an offset")
        self.options, self.schema = options, schema
        self.contents = any(name in CONTENTS for name in schema.names)
        end = OPEN_END if options.end_offset is None else options.end_offset
        self.bounds = Bounds(options.start_offset or 0, end)

    def partitions(self) -> Tasks:
        options, bounds = self.options, self.bounds
        if options.servers:
            committed = remote_ranges.committed_end(options)
            end = min(bounds.end_offset, committed)
            start = remote_ranges.log_start(options, options.start_offset or 0)
            self._check_start(start, options.servers)
            start = max(start, bounds.start_offset)
            check_end(options.servers, options.start_offset or 0, committed)
            return [InputPartition(part) for part in remote_ranges.ranges(options, start, end)]
        found: Tasks = []
        with Logs.of(options, bounds.start_offset) as logs:
            for bounded in logs.bounded().values():
                text = left_out(bounded)
                if text:
                    warnings.warn(text, RuntimeWarning, stacklevel=2)
                found += map(InputPartition, self._of_log(bounded))
        return found

    def _of_log(self, bounded: Bounded) -> Iterator[Piece | Damaged]:
        options, place = self.options, bounded.log.place
        self._check_start(splits.log_start(place), place.name)
        if options.start_offset:
            check_end(place.name, options.start_offset, bounded.end_offset)
        extents = bounded.log.extents
        for piece in splits.pieces(place, self.bounds, options.split_bytes, bounded.end, extents):
            if isinstance(piece, Damaged) and options.on_corrupt == "fail":
                raise piece.error()
            if isinstance(piece, Piece):
                gone = bounded.log.voided(options, piece.first_offset, piece.end_offset)
                yield replace(piece, aborted=gone)
            elif options.on_corrupt == "report":
                yield piece

    def _check_start(self, start: int, where: str) -> None:
        """Check that an offset that was asked for by name is there."""
        asked = self.options.start_offset
        if asked is not None and asked < start and self.options.fail_on_data_loss:
            text = f"{where} starts at offset {start}, beyond offset {asked}"
            raise OffsetOutOfRange(text, start)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        settle()
        yield from read_part(partition.value, self.options, self.schema, self.contents)


class PushingLogReader(LogSourceReader):
    """The same, asked to leave out what a query's filters do not want.

    Spark (4.2.1, 4.3.0) keeps what a filter left for later queries of the same data frame, also
    those without it: they would miss records. So this must be asked for.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """Offsets are cut exactly here; epochs and timestamps by whole batches, and by Spark."""
        for each in filters:
            if not self._take(each):
                yield each

    def _take(self, each: Filter) -> bool:
        """Narrow the bounds; whether nothing is left for Spark to do."""
        name = getattr(each, "attribute", ("",))[0]
        value = getattr(each, "value", None)
        low, high = _interval(each)
        if low is None and high is None:
            return False
        if name == "offset" and isinstance(value, int):
            self.bounds = replace(
                self.bounds,
                start_offset=max(self.bounds.start_offset, low or 0),
                end_offset=min(self.bounds.end_offset, OPEN_END if high is None else high),
            )
            return self.options.on_corrupt != "report"
        if name == "epoch" and isinstance(value, int):
            self.bounds = replace(
                self.bounds,
                epoch_min=max(self.bounds.epoch_min, -1 if low is None else low),
                epoch_max=min(self.bounds.epoch_max, 2**31 - 1 if high is None else high - 1),
            )
        elif name == "timestamp" and low is not None and _is_aware(value):
            least = int(cast(datetime, value).timestamp() * 1000) - 1
            self.bounds = replace(self.bounds, timestamp_min=max(self.bounds.timestamp_min, least))
        return False


def _is_aware(value: object) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None


def _interval(each: Filter) -> tuple[Any, Any]:
    """Return (least, exclusive end) that a comparison leaves of whole numbers; None: unbounded."""
    value = getattr(each, "value", None)
    if not isinstance(value, int) or isinstance(value, bool):
        low = value if isinstance(each, GreaterThan | GreaterThanOrEqual | EqualTo) else None
        return (low, None)
    if isinstance(each, EqualTo):
        return value, value + 1
    if isinstance(each, GreaterThan):
        return value + 1, None
    if isinstance(each, GreaterThanOrEqual):
        return value, None
    if isinstance(each, LessThan):
        return None, value
    if isinstance(each, LessThanOrEqual):
        return None, value + 1
    return None, None


# --- headers --------------------------------------------------------------------------------------


class BatchesSource(DataSource):
    """``spark.read.format("kraftfast-batches")``: a row a batch header, and what is no batch."""

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.read_options = SparkLogOptions.of(options, BATCHES_OPTIONS, self.name())

    @classmethod
    def name(cls) -> str:
        return "kraftfast-batches"

    def schema(self) -> str:
        return ddl(BATCH_FIELDS)

    def reader(self, schema: StructType) -> DataSourceReader:
        return BatchesReader(self.read_options, asked_for(BATCH_FIELDS, schema))


class BatchesReader(DataSourceReader):
    """Reads headers, every CRC computed again; of all replicas that a path names."""

    def __init__(self, options: SparkLogOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema

    def partitions(self) -> Tasks:
        return [
            InputPartition(piece)
            for place in find_places(self.options.path)
            for piece in header_pieces(place, self.options.split_bytes, running_end(place))
        ]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        settle()
        if partition.value is None:
            return
        for batch in read_headers(partition.value, self.options.verify_crc):
            yield batch.select(self.schema.names)


# --- snapshots ------------------------------------------------------------------------------------


class SnapshotSource(DataSource):
    """``spark.read.format("kraftfast-snapshot")``: a row a record of a snapshot.

    ``path``: a ``.checkpoint`` file, or directories of replicas, whose newest is read.
    """

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        self.read_options = SparkLogOptions.of(options, SNAPSHOT_OPTIONS, self.name())

    @classmethod
    def name(cls) -> str:
        return "kraftfast-snapshot"

    def fields(self) -> dict[str, pa.DataType]:
        """``replica`` is the path of the snapshot."""
        return row_fields(self.read_options.contents, True, False)

    def schema(self) -> str:
        return ddl(self.fields())

    def reader(self, schema: StructType) -> DataSourceReader:
        return SnapshotsReader(self.read_options, asked_for(self.fields(), schema))


class SnapshotsReader(DataSourceReader):
    """Reads snapshots, a task each: their framing is checked from end to end first."""

    def __init__(self, options: SparkLogOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema

    def partitions(self) -> Tasks:
        return [InputPartition(path) for path in find_snapshots(self.options.path)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        if partition.value is not None:
            yield from read_snapshot(partition.value, self.options, self.schema)


def find_snapshots(pattern: str) -> list[str]:
    """Return paths of snapshots. Raises InputError where there is none."""
    paths = [pattern] if os.path.exists(pattern) else sorted(glob.glob(pattern))
    found = [os.path.abspath(path) for path in paths if path.endswith(SNAPSHOT_SUFFIX)]
    for place in [] if found else find_places(pattern):
        ids = [each for each in snapshot_ids(Disk(), place.log_path) if each.offset]
        if ids:
            found.append(snapshot_path(place.log_path, ids[-1]))
    if not found:
        raise InputError(f"{pattern} holds no snapshot")
    return found


def read_snapshot(
    path: str, options: SparkLogOptions, schema: pa.Schema, replica: str = ""
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a snapshot; offsets are its own, from 0.

    Raises CorruptLog, InputError for one that a newer one has taken the place of.
    """
    file = open_file(path)
    try:
        with SnapshotReader(Disk(), path, id_of(path)) as reader:
            reader.check()
    except FileNotFoundError:
        raise InputError(f"{path} does not exist") from None
    position = 0
    contents = any(name in CONTENTS for name in schema.names)
    while position < file.size:
        data, whole = file.whole(position, file.size)
        at = 0
        while at < whole:
            try:
                rows = decode_rows(
                    data, at, whole, records_max=options.batch_rows, bytes_max=BATCH_BYTES,
                    contents=contents, control=options.control,
                )  # fmt: skip
            except CorruptBatch as error:  # sound when it was checked
                raise corrupt_log(path, position + error.position, 0, error.reason) from None
            at = rows.position
            if len(rows):
                yield row_batch(rows, schema, replica or path)
        if not whole:
            raise corrupt_log(path, position, 0, FAULT_TEXTS[Fault.INCOMPLETE])
        position += whole


settle()  # every worker of a source loads this

SOURCES = (LogSource, BatchesSource, SnapshotSource)
