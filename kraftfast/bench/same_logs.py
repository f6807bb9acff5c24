"""Whether every replica has the same bytes, and whether they are what was appended."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

import numpy as np

from kraftfast.bench.loads.inputs import Checker
from kraftfast.errors import KraftfastError, OffsetOutOfRange
from kraftfast.log.reading.reader import LogReader, Span
from kraftfast.record.batch import batches
from kraftfast.types import METADATA_PARTITION

CATCH_UP_TIMEOUT_S = 30.0
PAUSE_S = 0.01
SETTLE_S = 30.0
"""How long the start of a log may go on to move while it is read."""
Found = TypeVar("Found")


def while_starts_move(look: Callable[[], Found]) -> Found:
    """Return what ``look()`` returns; call it again where retention has taken what it was to read.

    Raises OffsetOutOfRange if that goes on for ``SETTLE_S``.
    """
    deadline = time.monotonic() + SETTLE_S
    while True:
        try:
            return look()
        except OffsetOutOfRange:
            if time.monotonic() >= deadline:
                raise
            time.sleep(PAUSE_S)


def log_paths(directories: Mapping[int, str], topic: str) -> dict[int, str]:
    """Return replica id -> where its segments are."""
    partition = f"{topic}-{METADATA_PARTITION}"
    return {id: os.path.join(directory, partition) for id, directory in directories.items()}


def wait_caught_up(quorum: Any, end_offset: int, timeout_s: float = CATCH_UP_TIMEOUT_S) -> str:
    """Wait until every replica knows that everything below ``end_offset`` is committed.

    Returns what is wrong if some do not within ``timeout_s``, else ``""``.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        statuses = quorum.statuses(timeout=max(0.0, deadline - time.monotonic()))
        behind = [
            id
            for id in quorum.directories
            if id not in statuses or statuses[id]["high_watermark"] < end_offset
        ]
        if not behind:
            return ""
        if time.monotonic() >= deadline:
            names = ", ".join(map(str, behind))
            return f"replica {names} did not reach offset {end_offset} within {timeout_s:.0f} s"
        time.sleep(PAUSE_S)


def compare_replicas(paths: Mapping[int, str], end_offset: int) -> tuple[int, str]:
    """Return (bytes compared, what differs or ``""``) of every replica's batches below
    ``end_offset``.

    From the offset on that all of them still have. A log that does not read is a difference.
    """
    try:
        return while_starts_move(lambda: _compare(paths, end_offset))
    except KraftfastError as error:
        return 0, str(error)


def _compare(paths: Mapping[int, str], end_offset: int) -> tuple[int, str]:
    """Do as :func:`compare_replicas`. Raises OffsetOutOfRange where a log's start has moved."""
    readers = {id: LogReader(path, verify_crc=False) for id, path in paths.items()}
    start = max(reader.log_start_offset for reader in readers.values())
    streams = {id: _Stream(reader.spans(start, end_offset)) for id, reader in readers.items()}
    first_id, compared = next(iter(streams)), 0
    while True:
        try:
            lengths = {id: stream.fill() for id, stream in streams.items()}
        except OffsetOutOfRange:
            raise
        except KraftfastError as error:
            return compared, str(error)
        if not all(lengths.values()):
            ended = [id for id, length in lengths.items() if not length]
            if len(ended) == len(lengths):
                return compared, ""
            return compared, f"the log of replica {ended[0]} ends before offset {end_offset}"
        size = min(lengths.values())
        expected = streams[first_id].take(size)
        for id, stream in streams.items():
            if id == first_id:
                continue
            found = stream.take(size)
            if not np.array_equal(expected, found):
                offset = streams[first_id].batch_of(size - int(np.argmax(expected != found)))
                return (
                    compared,
                    f"replicas {first_id} and {id} differ in the batch at offset {offset}",
                )
        compared += size


class _Stream:
    """The bytes of a log, whatever its segments are."""

    # span: at hand. left: its bytes that were not taken yet.

    def __init__(self, spans: Iterator[Span]) -> None:
        self.spans = spans
        self.span: Span | None = None
        self.left: Any = np.empty(0, dtype=np.uint8)

    def fill(self) -> int:
        """Read more if need be; return how many bytes are at hand, 0 at the end."""
        if not len(self.left):
            self.span = span = next(self.spans, None)
            if span is not None:
                size = span.end - span.position
                self.left = np.frombuffer(span.buffer, np.uint8, size, span.position)
        return len(self.left)

    def take(self, size: int) -> Any:
        taken, self.left = self.left[:size], self.left[size:]
        return taken

    def batch_of(self, back: int) -> int:
        """Return the base offset of the batch that holds the byte ``back`` bytes before these."""
        assert self.span is not None
        place = self.span.end - len(self.left) - back
        for batch in batches(self.span.buffer, self.span.position, self.span.end):
            if batch.position + batch.size > place:
                return batch.base_offset
        raise AssertionError("a span ends with a whole batch")


def compare_records(
    path: str, first_offset: int, end_offset: int, checker: Callable[[], Checker]
) -> str:
    """Return what is wrong with the records of a log, ``""`` if they are those that a new
    ``checker()`` expects.

    Every CRC is checked on the way. What the log does not keep is not missed.
    """
    try:
        return while_starts_move(lambda: _check(path, first_offset, end_offset, checker()))
    except KraftfastError as error:
        return str(error)


def _check(path: str, first_offset: int, end_offset: int, checker: Checker) -> str:
    """Do as :func:`compare_records`. Raises OffsetOutOfRange where the log's start has moved."""
    reader = LogReader(path)
    start = max(reader.log_start_offset, first_offset)
    if start > first_offset:
        checker.skip(start - first_offset)
    for columns in reader.columns(start, end_offset, keys=False):
        checker.take(columns)
    return checker.finish()


def verify(
    quorum: Any, first_offset: int, end_offset: int, checker: Callable[[], Checker]
) -> tuple[int, str]:
    """Return (bytes compared, what is wrong or ``""``): replicas against each other and the input.

    Where the log starts later than ``first_offset``, what it does not keep is not missed.
    """
    problem = wait_caught_up(quorum, end_offset)
    if problem:
        return 0, problem
    paths = log_paths(quorum.directories, quorum.description.topic)
    compared, problem = compare_replicas(paths, end_offset)
    if not problem:
        problem = compare_records(next(iter(paths.values())), first_offset, end_offset, checker)
    return compared, problem
