"""Reading from the servers of a running quorum: ranges of offsets, below its high watermark."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pyarrow as pa

from kraftfast.errors import CorruptBatch, InputError, NoQuorum, OffsetOutOfRange
from kraftfast.record.rows import decode_rows
from kraftfast.spark.reading.arrow_batches import row_batch
from kraftfast.spark.reading.uncompiled import need_compiled
from kraftfast.spark.spark_options import BATCH_BYTES, SparkLogOptions

if TYPE_CHECKING:
    from kraftfast.client.consumer.consumer import RecordStream
    from kraftfast.client.remote_quorum import RemoteQuorum

RANGES_MAX = 1024
WAIT_S = 0.2


@dataclass(frozen=True, slots=True)
class Range:
    """Records of a quorum's log, from an offset on, below another."""

    servers: str
    first_offset: int
    end_offset: int


def open_quorum(options: SparkLogOptions) -> RemoteQuorum:
    """Raises NoQuorum if there is no leader within the time given."""
    return open_servers(options.servers, options.topic, options.timeout)


def open_servers(servers: str, topic: str, timeout: float) -> RemoteQuorum:
    """Raises NoQuorum if there is no leader within ``timeout`` seconds, NotCompiled."""
    need_compiled("reading from servers")
    from kraftfast.client.remote_quorum import RemoteQuorum  # only reads from servers need a client
    from kraftfast.connected import connect

    quorum = connect(servers.split(","), topic, timeout=timeout)
    assert isinstance(quorum, RemoteQuorum), "options name servers, no directory"
    return quorum


def committed_end(options: SparkLogOptions) -> int:
    """Return the high watermark, by the leader's word. Raises NoQuorum."""
    return max(0, open_quorum(options).describe(timeout=options.timeout).high_watermark)


def log_start(options: SparkLogOptions, offset: int = 0) -> int:
    """Return where the log starts, or ``offset`` if that is later. Raises NoQuorum."""
    with open_quorum(options).consumer(offset, timeout=options.timeout) as consumer:
        try:
            consumer.wait(WAIT_S)
        except OffsetOutOfRange as error:
            return max(offset, error.log_start_offset)
    return offset


def bytes_per_record(options: SparkLogOptions, offset: int) -> float:
    """Return the bytes a record of the batch that holds an offset: splits and limits rest on it."""
    with open_quorum(options).consumer(offset, timeout=options.timeout) as consumer:
        for batch in consumer.batches():
            return float(max(1.0, batch.size / max(1, batch.record_count)))
    return 1.0


def ranges(
    options: SparkLogOptions, start: int, end: int, size: float | None = None
) -> list[Range]:
    """Return ranges of about ``split_bytes`` each. ``size``: bytes a record, if that is known."""
    if start >= end:
        return []
    records = int(options.split_bytes / (size or bytes_per_record(options, start)))
    records = max(1, records, -(-(end - start) // RANGES_MAX))
    return [Range(options.servers, at, min(at + records, end)) for at in range(start, end, records)]


def read_range(
    part: Range, options: SparkLogOptions, schema: pa.Schema, contents: bool
) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range. Every CRC is checked on arrival.

    A quorum that goes away is waited for, ``timeout`` seconds without progress at most. Raises
    NoQuorum, OffsetOutOfRange, CorruptBatch.
    """
    if part.first_offset >= part.end_offset:
        return
    quorum = open_quorum(options)
    with quorum.consumer(part.first_offset, timeout=options.timeout) as consumer:
        held: list[bytes] = []
        size = 0
        for data, last in _until(consumer, part.end_offset, options.timeout, options.aborted):
            held.append(data)
            size += len(data)
            if size >= BATCH_BYTES or last:
                yield from _rows(b"".join(held), part, options, schema, contents)
                held, size = [], 0


def _until(
    consumer: RecordStream, end_offset: int, timeout: float, aborted: bool
) -> Iterator[tuple[bytes, bool]]:
    """Yield (a batch, whether it is the last one below ``end_offset``)."""
    deadline = time.monotonic() + timeout
    while True:
        for batch in consumer.batches():
            deadline = time.monotonic() + timeout
            if batch.is_transactional and not aborted:
                raise InputError(
                    f"the batch at offset {batch.base_offset} belongs to a transaction, and how it "
                    "ended is not asked of servers: set isolationLevel to read_uncommitted, or "
                    "read the partition's directory"
                )
            last = batch.end_offset >= end_offset
            yield bytes(batch.data), last
            if last:
                return
        if time.monotonic() >= deadline:
            raise NoQuorum(
                f"offset {consumer.position} was committed, and no leader hands it out within "
                f"{timeout:g} s"
            )
        consumer.wait(WAIT_S)


def _rows(
    data: bytes, part: Range, options: SparkLogOptions, schema: pa.Schema, contents: bool
) -> Iterator[pa.RecordBatch]:
    position = 0
    while position < len(data):
        try:
            rows = decode_rows(
                data, position, first_offset=part.first_offset, end_offset=part.end_offset,
                records_max=options.batch_rows, bytes_max=BATCH_BYTES, contents=contents,
                control=options.control, verify_crc=False,
            )  # fmt: skip
        except CorruptBatch as error:
            raise CorruptBatch(
                f"what {part.servers} sends between offsets {part.first_offset} and "
                f"{part.end_offset} does not decode: {error.reason}"
            ) from None
        if rows.position == position:
            return  # what is left lies beyond the range
        position = rows.position
        if len(rows):
            yield row_batch(rows, schema, part.servers)
