"""Appending rows under a name, each once: what is committed already is compared and skipped."""

from __future__ import annotations

import itertools
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql.datasource import WriterCommitMessage

from kraftfast.errors import InputError, KraftfastError, OffsetOutOfRange, UnknownOutcome
from kraftfast.record.rows import decode_rows
from kraftfast.spark.reading.arrow_batches import CONTENTS, ROW_FIELDS, row_batch
from kraftfast.spark.writing.destination import SinkOptions
from kraftfast.spark.writing.outgoing import first_difference, outgoing, values_of

if TYPE_CHECKING:
    from kraftfast.client.consumer.consumer import RecordStream
    from kraftfast.client.producer.init_producer_id import Standing
    from kraftfast.client.producer.producer import Producer

WAIT_S = 0.2
RECORD_SCHEMA = pa.schema([(name, ROW_FIELDS[name]) for name in CONTENTS])


@dataclass(frozen=True)
class RowsAppended(WriterCommitMessage):
    """What a task saw committed. ``rows``: all of its rows; ``resumed``: those of attempts before.

    ``first_offset`` and ``end_offset``: of what this attempt appended; -1 if that was nothing.
    """

    rows: int
    resumed: int
    first_offset: int
    end_offset: int


def append_rows(
    options: SinkOptions,
    name: str,
    batches: Iterator[pa.RecordBatch],
    since: int = -1,
    wanted: int | None = None,
) -> RowsAppended:
    """Append what is not committed yet under this name; returns once all of it is.

    ``since``: no attempt before used the name below this offset; -1 if that is not known.
    ``wanted``: how many rows there were when the job ended before; None: it did not.

    Raises NoQuorum, UnknownOutcome, RecordTooLarge, RecordsRefused, ProducerFenced; InputError if
    what is committed are other records than the first rows.
    """
    first = next((batch for batch in batches if len(batch)), None)
    if first is None:
        check_rows(name, 0, wanted, 0)
        return RowsAppended(0, 0, -1, -1)  # a name for nothing would only push another out
    with options.producer(name) as producer:
        standing, rows = producer.standing, 0
        resumed, stored = standing.records, None
        if resumed:
            stored = Stored(stored_records(options, standing, since), label_of(name))
        else:
            check_never_used(standing, name, since)
        for batch in itertools.chain([first], batches):
            records = outgoing(batch)
            skip = min(len(records), max(0, resumed - rows))
            if stored is not None and skip:
                stored.compare(records.slice(0, skip), rows)
            rows += len(records)
            check_rows(name, rows, wanted)
            if skip < len(records):
                hand_over(producer, records.slice(skip), options.timeout)
        if rows < resumed:
            raise InputError(
                f"{resumed} records of {label_of(name)} are committed, and the task has {rows} "
                f"rows: {CAUSES}"
            )
        check_rows(name, rows, wanted, rows)
        begin, end = settle_all(producer, options.timeout)
        return RowsAppended(rows, resumed, begin, end)


CAUSES = (
    "a task's rows must be the same in the same order each time (writeMode=staged takes any), and "
    "another job wants another producerName"
)


def check_rows(name: str, rows: int, wanted: int | None, least: int | None = None) -> None:
    """Check that a task has no more rows than it had, nor fewer once it has ``least`` in all.

    Raises InputError.
    """
    if wanted is None or (rows <= wanted and (least is None or least == wanted)):
        return
    raise InputError(
        f"{label_of(name)} had {wanted} rows when the job ended before, and has "
        f"{rows if least is not None else f'{rows} or more'} now: {CAUSES}"
    )


PREFIX = re.compile(r"spark-(?:named|query|once)-")


def label_of(name: str) -> str:
    """Return what the user calls a producer of ours.

    >>> label_of("spark-named-daily")
    'daily'
    """
    return PREFIX.sub("", name, count=1) if PREFIX.match(name) else name


def check_never_used(standing: Standing, name: str, since: int) -> None:
    """Check a name without records: it must be certain that it was not forgotten with some.

    ``since``: below this offset it was not used, -1 if that is not known. Raises UnknownOutcome.
    """
    if standing.names_since < 0 or standing.names_since > max(since, 0):
        way_on = "writeMode=staged takes one a job; else coalesce, or raise that setting"
        if name.startswith("spark-named-") and since < 0:
            way_on = "if no run of this job has appended anything, say so by neverRun=true"
        raise UnknownOutcome(
            f"the quorum does not know {label_of(name)}, and may have forgotten it: more names are "
            f"in use than kraftfast.producers.max. {way_on}"
        )


def hand_over(producer: Producer, records: pa.RecordBatch, timeout: float) -> None:
    """Raises RecordTooLarge, RecordsRefused, InvalidOption before anything of it is appended.

    Where one of the rows before has failed, its failure is what is raised.
    """
    try:
        producer.append_many_nowait(values_of(records), timeout=timeout)
    except KraftfastError:
        raise_first(resolved_runs(producer))
        raise


def resolved_runs(producer: Producer) -> list[tuple[int, int, int, Exception | None]]:
    """Return what became of the rows that have an outcome, as far back as that is known."""
    outcomes = producer.outcomes
    return outcomes.runs(outcomes.first_known, outcomes.resolved)


def raise_first(runs: list[tuple[int, int, int, Exception | None]]) -> None:
    """Raise the failure of the first row that has one."""
    for _, _, _, failure in runs:
        if failure is not None:
            raise failure


def committed_rows(producer: Producer) -> int:
    """Return how many rows are known to be committed."""
    runs = resolved_runs(producer)
    known = sum(stop - start for start, stop, _, failure in runs if failure is None)
    return producer.outcomes.first_known + known


def settle_all(producer: Producer, timeout: float) -> tuple[int, int]:
    """Wait for all; (first offset, end offset). Raises the failure of the first that has one."""
    outcomes = producer.outcomes
    deadline = time.monotonic() + timeout
    while outcomes.resolved < outcomes.next_ticket:
        before = outcomes.resolved
        try:
            producer.flush(timeout=max(0.1, deadline - time.monotonic()))
        except UnknownOutcome:
            if outcomes.resolved == before:  # no progress in all that time
                raise
            deadline = time.monotonic() + timeout
    first = end = -1
    runs = outcomes.runs(0, outcomes.next_ticket)
    raise_first(runs)
    for start, stop, offset, _ in runs:
        first = offset if first < 0 else first
        end = offset + stop - start
    return first, end


# --- what is committed under a name ---------------------------------------------------------------


class Stored:
    """Committed records of a name, held against the rows that are skipped for them."""

    # batches: of the records, in order. name: in what is raised. rest: of the last batch, unused.

    def __init__(self, batches: Iterator[pa.RecordBatch], name: str) -> None:
        self.batches, self.name = batches, name
        self.rest: pa.RecordBatch | None = None

    def compare(self, rows: pa.RecordBatch, number: int) -> None:
        """Hold the next rows against what is stored. ``number``: of the first one.

        Raises InputError for one that differs, UnknownOutcome for one that is gone.
        """
        done = 0
        while done < len(rows):
            if self.rest is None or not len(self.rest):
                self.rest = next(self.batches, None)
                if self.rest is None:
                    raise UnknownOutcome(
                        f"row {number + done} of {self.name} is committed, and no longer in the "
                        "log: whether this attempt has the same rows cannot be checked"
                    )
            count = min(len(rows) - done, len(self.rest))
            at = first_difference(rows.slice(done, count), self.rest.slice(0, count))
            if at >= 0:
                raise InputError(
                    f"row {number + done + at} of {self.name} is not the record that an attempt "
                    f"before stored as that row: {CAUSES}"
                )
            self.rest = self.rest.slice(count)
            done += count


def stored_records(
    options: SinkOptions, standing: Standing, since: int
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a name from its first one on, if that is in the log still; else none."""
    tried = -1
    for begin in (max(0, since), 0):
        if begin == tried:
            return
        tried, whole = begin, False
        for batch in _batches(options, begin, standing):
            whole = whole or batch.base_sequence == 0
            if not whole:
                break  # it began earlier
            data, position = bytes(batch.data), 0
            while position < len(data):
                rows = decode_rows(data, position, verify_crc=False)
                position = rows.position
                yield row_batch(rows, RECORD_SCHEMA)
        if whole:
            return


def _batches(options: SinkOptions, offset: int, standing: Standing) -> Iterator[Any]:
    """Committed batches of the name's producer from an offset on. Raises UnknownOutcome."""
    while True:
        try:
            with options.consumer(offset) as consumer:
                yield from _batches_of(consumer, standing, options.timeout)
            return
        except OffsetOutOfRange as error:
            if error.log_start_offset <= offset:
                raise
            offset = error.log_start_offset


def _batches_of(consumer: RecordStream, standing: Standing, timeout: float) -> Iterator[Any]:
    deadline = time.monotonic() + timeout
    while consumer.position <= standing.last_offset:
        for batch in consumer.batches():
            deadline = time.monotonic() + timeout
            if batch.producer_id == standing.producer_id and not batch.is_control:
                yield batch
            if consumer.position > standing.last_offset:
                return
        if time.monotonic() >= deadline:
            raise UnknownOutcome(
                f"offset {consumer.position} was committed, and no replica hands it out within "
                f"{timeout:g} s"
            )
        consumer.wait(WAIT_S)
