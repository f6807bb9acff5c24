"""The sink: rows become records of a quorum, each once, whatever is tried again.

``staged``, the default, is right for any plan: tasks stage their rows, and the driver's commit
appends them under one name for the job (``staging``). ``direct`` is for plans whose tasks have the
same rows in the same order each time: every task appends under a name that is the same in each of
its attempts, and in each replay of its micro-batch. One that takes a name over learns how many
records of it are committed, compares its first rows with them, and goes on behind (``appending``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from kraftfast.errors import InvalidOption
from kraftfast.spark.streaming.direct_notes import finished_end, note_finished
from kraftfast.spark.writing.appending import RowsAppended, append_rows
from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.direct_tasks import note_rows, noted_rows, rows_of
from kraftfast.spark.writing.outgoing import check_schema
from kraftfast.spark.writing.staging import (
    Job,
    Staged,
    claim,
    forget,
    publish,
    stage,
)

__all__ = ["RowsAppended", "BatchWriter", "SinkOptions", "StreamWriter", "append_rows", "task_name"]

QUERY_ID, BATCH_ID = "sql.streaming.queryId", "streaming.sql.batchId"


def task_name(base: str, partition: int) -> str:
    """Return the producer's name of a task, the same in every attempt.

    >>> task_name("6ba7b810", 3)
    '6ba7b810-3'
    """
    return f"{base}-{partition}"


def staged_of(messages: list[Any]) -> list[Staged]:
    """Return those of the tasks that Spark took."""
    return [each for each in messages if isinstance(each, Staged)]


class BatchWriter(DataSourceArrowWriter):
    """Appends a data frame. Its name is made once and shipped to all tasks with this object."""

    # job: of this data frame. since: where the log ended before; of direct writing only, as noted:
    # the rows of its tasks when it ran before.

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        check_schema(schema, overwrite)
        if options.never_run and not options.name:
            raise InvalidOption("neverRun is of the job that producerName names")
        options.check_place()
        self.options = options
        kind, name = ("named", options.name) if options.name else ("once", uuid.uuid4().hex)
        direct_once = options.mode == "direct" and kind == "once"
        root = "" if direct_once else options.staging_root(False)
        self.job = Job(root, kind, f"spark-{kind}-{name}")
        self.noted: list[int] | None = None
        if kind == "named":
            claim(self.job, options.mode)
            if options.mode == "direct":
                self.noted = noted_rows(self.job, options)
        self.since = -1
        if direct_once or (options.mode == "direct" and options.never_run):
            self.since = options.committed_end()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        if self.options.mode == "staged":
            return stage(self.job, iterator)
        context = TaskContext.get()
        partition = 0 if context is None else context.partitionId()
        name = task_name(self.job.name, partition)
        wanted = rows_of(self.noted, partition)
        return append_rows(self.options, name, iterator, self.since, wanted)

    def commit(self, messages: list[Any]) -> None:
        """Append what was staged. What was written directly is committed already."""
        staged = staged_of(messages)
        if staged:
            publish(self.options, staged)
        elif self.job.kind == "named" and self.options.mode == "direct":
            note_rows(self.job, self.options, self.noted, messages)

    def abort(self, messages: list[Any]) -> None:
        """Remove what was staged. What was appended stays: a job with its name goes on there."""
        forget(self.job, staged_of(messages))


@dataclass(frozen=True)
class Written(WriterCommitMessage):
    """Of a task that wrote directly."""

    job: Job
    done: RowsAppended


class StreamWriter(DataSourceStreamArrowWriter):
    """Appends micro-batches: a query goes by its id, and a replay by the number of its batch."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        check_schema(schema, overwrite)
        options.check_place()
        self.options = options
        self.root = options.staging_root(True)

    def job_of(self, query: str, batch: int) -> Job:
        """Return the job of a query; a query keeps its id with its checkpoint."""
        name = f"{self.options.name}-{query}" if self.options.name else f"spark-query-{query}"
        return Job(self.root, "query", name, batch)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "a stream is written by tasks"
        query, batch = context.getLocalProperty(QUERY_ID), context.getLocalProperty(BATCH_ID)
        if query is None or batch is None:
            raise InvalidOption("this Spark does not tell its tasks of query and batch")
        job = self.job_of(query, int(batch))
        claim(job, self.options.mode)
        if self.options.mode == "staged":
            return stage(job, iterator)
        name = task_name(f"{job.name}-{batch}", context.partitionId())
        since = finished_end(job, self.options)
        return Written(job, append_rows(self.options, name, iterator, since))

    def commit(self, messages: list[Any], batchId: int) -> None:
        """Append what was staged; of what was written directly, note where the log ends."""
        staged = staged_of(messages)
        if staged:
            publish(self.options, staged)
        for each in messages[:1]:
            if isinstance(each, Written):
                note_finished(each.job, self.options)

    def abort(self, messages: list[Any], batchId: int) -> None:
        """Do nothing: the batch comes again, and goes on behind what was appended."""
        staged = staged_of(messages)
        if staged:
            forget(staged[0].job, staged)
