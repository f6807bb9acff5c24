"""The sink: rows become records of a quorum, each once, whatever is tried again.

Every task appends under a name that is the same in each of its attempts, and in each replay of its
micro-batch. Whoever takes a name over first learns how many records of it are committed, skips so
many rows, and goes on; the attempt before can append nothing any more. For that the rows of a task
must be the same rows in the same order whenever it is run.
"""

from __future__ import annotations

import itertools
import os
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import BinaryType, StringType, StructType

from kraftfast import limits
from kraftfast.errors import InputError, InvalidOption, NotFormatted, UnknownOutcome
from kraftfast.log.directory import META, read_meta
from kraftfast.log.disk import Disk
from kraftfast.spark.options import SINK_BATCH_BYTES, SINK_OPTIONS, TIMEOUT_S, Given
from kraftfast.spark.places import replicas_in
from kraftfast.spark.plain import need_compiled
from kraftfast.types import METADATA_TOPIC

if TYPE_CHECKING:
    from kraftfast.client.producer import Producer

WINDOW_BATCHES = limits.PRODUCER_BATCHES
FIELDS = {"value": "", "key": "", "headers": "array<struct<key:string,value:binary>>"}
QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where records go. Either ``path``, a quorum's directory on this host, or ``servers``."""

    path: str
    servers: str
    topic: str
    timeout: float
    batch_bytes: int
    name: str
    """First part of every task's producer name; unique to the job."""

    @classmethod
    def of(cls, options: Any, source: str) -> SinkOptions:
        """Raises InvalidOption."""
        given = Given(options, SINK_OPTIONS, source)
        path, servers = given.text("path"), given.text("bootstrap.servers")
        if bool(path) == bool(servers):
            raise InvalidOption(f"{source} writes to either a path or bootstrap.servers")
        return cls(
            path=path,
            servers=servers,
            topic=given.text("topic", METADATA_TOPIC),
            timeout=given.seconds("timeout", TIMEOUT_S),
            batch_bytes=given.number("batchBytes", SINK_BATCH_BYTES, 1024, 4 << 20),
            name=given.text("producerName"),
        )

    def check_place(self) -> None:
        """Before any task starts. Raises NotFormatted for what is no quorum's directory."""
        if self.path:
            replica_directories(self.path)

    def producer(self, name: str) -> Producer:
        """An idempotent producer of this name. Raises NoQuorum, NotCompiled."""
        need_compiled("writing")
        from kraftfast.client.connect import connect
        from kraftfast.client.local import LocalConnector
        from kraftfast.client.producer import Producer

        if self.servers:
            quorum = connect(self.servers, self.topic, timeout=self.timeout)
            return quorum.producer(
                batch_bytes=self.batch_bytes, window=WINDOW_BATCHES, timeout=self.timeout, name=name
            )
        places = replica_directories(self.path)
        connector = LocalConnector(places, self.batch_bytes, WINDOW_BATCHES)
        return Producer(connector, self.timeout, 0, True, name)


def replica_directories(path: str) -> dict[int, str]:
    """Replica id -> directory, of a quorum or of one replica. Raises NotFormatted."""
    single = os.path.exists(os.path.join(path, META))
    places = [path] if single else (replicas_in(path) if os.path.isdir(path) else [])
    if not places:
        raise NotFormatted(f"{path} is no quorum's directory")
    return {read_meta(Disk(), place).node_id: os.path.abspath(place) for place in places}


def check_schema(schema: StructType, overwrite: bool) -> None:
    """Columns ``value`` and, if there are any, ``key`` and ``headers``. Raises InvalidOption."""
    if overwrite:
        raise InvalidOption("a log is only appended to: use mode('append')")
    kinds = {each.name: each.dataType for each in schema.fields}
    if "value" not in kinds:
        raise InvalidOption(
            f"a column named value is wanted, binary or string; there are {', '.join(kinds)}"
        )
    for name, kind in kinds.items():
        if name not in FIELDS:
            raise InvalidOption(
                f"the sink takes the columns {', '.join(FIELDS)}, not {name}: select those"
            )
        wanted = FIELDS[name]
        if wanted and kind.simpleString() != wanted:
            raise InvalidOption(f"column {name} is {kind.simpleString()}; {wanted} is wanted")
        if not wanted and not isinstance(kind, BinaryType | StringType):
            raise InvalidOption(f"column {name} is {kind.simpleString()}: cast it to binary")


@dataclass(frozen=True)
class Appended(WriterCommitMessage):
    """What a task saw committed. ``rows``: all of its rows; ``resumed``: those of attempts before.

    ``first_offset`` and ``end_offset``: of what this attempt appended; -1 if that was nothing.
    """

    rows: int
    resumed: int
    first_offset: int
    end_offset: int


def append_rows(options: SinkOptions, name: str, batches: Iterator[pa.RecordBatch]) -> Appended:
    """Append what is not committed yet under this name; returns once all of it is.

    Raises NoQuorum, UnknownOutcome, RecordTooLarge, RecordsRefused, ProducerFenced.
    """
    first = next((batch for batch in batches if len(batch)), None)
    if first is None:
        return Appended(0, 0, -1, -1)  # a name for nothing would only push another out
    with options.producer(name) as producer:
        resumed, rows = producer.last_sequence() + 1, 0
        for batch in itertools.chain([first], batches):
            skip = min(len(batch), max(0, resumed - rows))
            rows += len(batch)
            if skip < len(batch):
                _append(producer, batch.slice(skip), options.timeout)
        if rows < resumed:
            raise UnknownOutcome(
                f"{resumed} records of {name} are committed, and the task has {rows} rows: its "
                "input is not what it was (order and partitioning must be the same each time)"
            )
        begin, end = _settle(producer, options.timeout)
        return Appended(rows, resumed, begin, end)


def _headers(pairs: list[dict[str, Any] | None] | None) -> list[tuple[str, bytes | None]]:
    """As a producer takes them. Raises InputError for one without a key, which Kafka has not."""
    if any(each is None or each["key"] is None for each in pairs or ()):
        raise InputError("a header whose key is null cannot be appended: leave it out")
    return [(each["key"], each["value"]) for each in pairs or () if each is not None]


def _append(producer: Producer, batch: pa.RecordBatch, timeout: float) -> None:
    values = _binary(batch.column("value"))
    if batch.schema.names == ["value"]:
        producer.append_many_nowait(values, timeout=timeout)
        return
    count = len(batch)
    names = batch.schema.names
    keys = _binary(batch.column("key")).to_pylist() if "key" in names else [None] * count
    headers = batch.column("headers").to_pylist() if "headers" in names else [None] * count
    if not any(headers) and keys.count(None) == count:
        producer.append_many_nowait(values, timeout=timeout)
        return
    for value, key, pairs in zip(values.to_pylist(), keys, headers):
        producer.append(
            value,
            key=key,
            headers=_headers(pairs),
            timeout=timeout,
        )


def _binary(column: pa.Array) -> pa.Array:
    return column if pa.types.is_binary(column.type) else column.cast(pa.binary())


def _settle(producer: Producer, timeout: float) -> tuple[int, int]:
    """Wait for all; (first offset, end offset). Raises the failure of the first that has one."""
    ledger = producer.ledger
    deadline = time.monotonic() + timeout
    while ledger.resolved < ledger.next_ticket:
        before = ledger.resolved
        try:
            producer.flush(timeout=max(0.1, deadline - time.monotonic()))
        except UnknownOutcome:
            if ledger.resolved == before:  # no progress in all that time
                raise
            deadline = time.monotonic() + timeout
    first = end = -1
    for start, stop, offset, failure in ledger.runs(0, ledger.next_ticket):
        if failure is not None:
            raise failure
        first = offset if first < 0 else first
        end = offset + stop - start
    return first, end


def task_name(base: str, partition: int) -> str:
    """The producer's name of a task, the same in every attempt.

    >>> task_name("6ba7b810", 3)
    '6ba7b810-3'
    """
    return f"{base}-{partition}"


class BatchWriter(DataSourceArrowWriter):
    """Appends a data frame. Its name is made once and shipped to all tasks with this object."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        check_schema(schema, overwrite)
        options.check_place()
        self.options = options
        self.base = options.name or f"spark-{uuid.uuid4().hex}"

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        return append_rows(self.options, task_name(self.base, partition), iterator)

    def commit(self, messages: list[Any]) -> None:
        """Committed is what the quorum has committed: nothing is left to do."""

    def abort(self, messages: list[Any]) -> None:
        """What was appended stays: a job with the same ``producerName`` goes on behind it."""


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches: named by query and batch, so that a replay appends what is missing."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        check_schema(schema, overwrite)
        options.check_place()
        self.options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvalidOption("this Spark does not tell its tasks of query and batch")
        base = f"{self.options.name or query}-{batch}"
        return append_rows(self.options, task_name(base, context.partitionId()), iterator)

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Nothing is left to do."""

    def abort(self, messages: list[Any], batchId: int) -> None:
        """The batch comes again, and goes on behind what was appended."""
