"""The stream source: a log that grows, from a running quorum or from directories.

An offset of the stream says where the next record of each log is, and which log that is; what lies
below an end that was once handed out never changes, so that a batch that is replayed after a crash
is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from kraftfast.errors import KraftfastError, NoQuorum
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.spark.reading import remote_ranges, splits
from kraftfast.spark.reading.arrow_batches import CONTENTS, numbers
from kraftfast.spark.reading.committed import QUORUM, OneLog
from kraftfast.spark.reading.fetched import earliest_snapshot, fetched_snapshot
from kraftfast.spark.reading.split_reader import read_part
from kraftfast.spark.reading.splits import Bounds, Damaged, Piece
from kraftfast.spark.spark_options import SparkLogOptions
from kraftfast.spark.streaming.followed import Ends, Paths, Servers, check_end, check_start
from kraftfast.spark.streaming.lineage import Offsets, lineages, marked, positions
from kraftfast.types import OffsetAndEpoch


@dataclass(frozen=True, slots=True)
class Snapshotted:
    """The snapshot that stands for records which are gone."""

    replica: str
    path: str
    """"" of a quorum's servers: it is fetched."""
    id: OffsetAndEpoch
    """Where it ends."""


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is committed, or of a directory at rest what is whole, batch after batch.

    A reader lives as long as its query, in a process beside the driver; another one is made for
    each micro-batch's tasks. Nothing is freed on ``commit``: it comes late, and not for the last.
    """

    # options, schema, contents: as of a batch's reader. goal: where availableNow ends; None else.
    # _followed: where the logs are, None before it is asked for. _planned: the newest end that was
    # handed out, whose log needs no second look.

    def __init__(self, options: SparkLogOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self.contents = any(name in CONTENTS for name in schema.names)
        self.goal: Ends | None = None
        self._followed: Servers | Paths | None = None
        self._planned: Offsets = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: nothing that is open."""
        return self.__dict__ | {"_followed": None}

    # --- where the logs are and how far they go ---------------------------------------------------

    @property
    def followed(self) -> Servers | Paths:
        """The logs, with what is open of them."""
        if self._followed is None:
            self._followed = Servers(self.options) if self.options.servers else Paths(self.options)
        return self._followed

    def _ends(self, begin: Ends) -> Ends:
        """Return how far each log may be read by now."""
        found, bound = self.followed.ends(begin), self.options.end_offset
        if bound is not None:
            found = {name: min(end, bound) for name, end in found.items()}
        return found

    def initialOffset(self) -> Offsets:
        asked = self.options.start_offset
        if asked == -1:
            return self._ends({})
        starts = self.followed.starts()
        if asked is not None:
            ends = self.followed.ends({name: asked for name in starts})
            for name, start in starts.items():
                check_start(name, asked, start, self.options)
                check_end(name, asked, ends.get(name, start))
            return {name: max(asked, start) for name, start in starts.items()}
        return starts

    # --- admission --------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one limit, and keep the second: ``latestOffset`` looks at both."""
        options = self.options
        if options.records_per_trigger is not None:
            return ReadMaxRows(options.records_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = self._ends({})

    def reportLatestOffset(self) -> Offsets | None:
        """For the lag in the progress of a query; None while no quorum answers."""
        try:
            return self._ends({})
        except KraftfastError:
            return None

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """Return the end of the next micro-batch: a prefix of what there is, within the limits.

        A quorum that does not answer within ``timeout`` has nothing new: the query lives on.
        Raises InconsistentClusterId, ForeignDirectory if the log is not the one that was read.
        """
        begin, then = positions(start), lineages(start)
        try:
            ends = self._ends(begin)
            self.followed.check_names(begin)
            fresh = any(end > begin.get(name, 0) for name, end in ends.items())
            self.followed.compare(begin, then, fresh)
            if self.goal is not None:
                ends = {name: min(end, self.goal.get(name, 0)) for name, end in ends.items()}
            ends = {name: max(end, begin.get(name, 0)) for name, end in ends.items()}
            for name in begin:
                ends.setdefault(name, begin[name])  # a log that is gone for now
            ends = self._admitted(begin, ends, limit)
            if ends == begin:
                return start  # to the letter: else Spark takes it for something new
            self._planned = marked(ends, self.followed.lineages(ends))
            return self._planned
        except NoQuorum:
            return start

    def _admitted(self, begin: Ends, ends: Ends, limit: ReadLimit) -> Ends:
        """Return the smaller of both limits: Spark hands over one of them."""
        rows, size = self.options.records_per_trigger, self.options.bytes_per_trigger
        if isinstance(limit, ReadMaxRows):
            rows = min(limit.max_rows, rows or limit.max_rows)
        elif isinstance(limit, ReadMaxBytes):
            size = min(limit.max_bytes, size or limit.max_bytes)
        else:
            return ends
        if size is not None:
            ends = self._admit_bytes(begin, ends, size)
        return ends if rows is None else _admit(begin, ends, rows)

    def _admit_bytes(self, start: Ends, ends: Ends, budget: int) -> Ends:
        """Admit whole batches of directories; of a quorum what the next batch's records take."""
        if isinstance(self.followed, Servers):
            begin, end = start.get(QUORUM, 0), ends[QUORUM]
            size = self.followed.line.look(begin).bytes_per_record if begin < end else 1
            return {QUORUM: min(end, begin + max(1, int(budget / size)))}
        logs = {name: each.log for name, each in self.followed.bounded().items()}
        share = max(1, budget // max(1, len(logs)))
        found = {}
        for name, end in ends.items():
            log = logs.get(name)
            begin = max(start.get(name, 0), splits.log_start(log.place) if log else 0)
            found[name] = max(end, start.get(name, 0))
            if log is not None and begin < end:
                reached = splits.offset_after(log.place, begin, end, share, log.extents)
                found[name] = max(begin, reached)
        return found

    # --- reading ----------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        begin, ends, then = positions(start), positions(end), lineages(end)
        followed = self.followed
        if end != self._planned:  # a micro-batch that another process began
            followed.check_names(ends)
        if isinstance(followed, Servers):
            return self._of_servers(followed, begin.get(QUORUM, 0), end)
        found: list[Any] = []
        if end != self._planned:
            followed.compare({}, then, False)
        for name, stop in ends.items():
            log = followed.log_to_read(name, begin.get(name, 0), stop, then.get(name))
            first = begin[name] if name in begin else splits.log_start(log.place)
            if first < stop:
                found += self._of_log(log, first, stop)
        return [InputPartition(part) for part in found]

    def _of_servers(self, followed: Servers, start: int, end: Offsets) -> list[InputPartition]:
        stop = positions(end)[QUORUM]
        if start >= stop:
            return []
        seen = followed.line.look(start)
        if end != self._planned:  # a micro-batch that another process began
            followed.compare({QUORUM: stop}, lineages(end), True)
        begin = max(start, seen.log_start_offset)
        check_start(self.options.servers, start, begin, self.options)
        parts: list[Any] = []
        earliest = earliest_snapshot(self.options) if start < begin else None
        if earliest is not None and start < earliest.offset <= stop:
            parts.append(Snapshotted(self.options.servers, "", earliest))
            begin = max(begin, earliest.offset)
        size = seen.bytes_per_record if begin == start else None
        parts += remote_ranges.ranges(self.options, begin, stop, size)
        return [InputPartition(part) for part in parts]

    def _of_log(self, log: OneLog, start: int, end: int) -> Iterator[Any]:
        """Return pieces of one log, and the snapshot before them where the log begins later.

        Of several the one at which the log begins: behind a later one fewer records are read.
        """
        place = log.place
        first = splits.log_start(place)
        check_start(place.name, start, first, self.options)
        if start < first:
            ids = snapshot_ids(Disk(), place.log_path)
            earliest = next((each for each in ids if each.offset >= first), None)
            if earliest is not None and earliest.offset <= end:
                path = snapshot_path(place.log_path, earliest)
                yield Snapshotted(place.name, path, earliest)
                first = earliest.offset
        bounds = Bounds(max(start, first), end)
        for part in splits.pieces(place, bounds, self.options.split_bytes, end, log.extents):
            if isinstance(part, Damaged) and self.options.on_corrupt == "fail":
                raise part.error()
            if isinstance(part, Piece):
                gone = log.voided(self.options, part.first_offset, part.end_offset)
                yield replace(part, aborted=gone)
            elif self.options.on_corrupt == "report":
                yield part

    def read(self, partition: InputPartition) -> Iterator[Any]:
        part = partition.value
        if isinstance(part, Snapshotted):
            yield from self._of_snapshot(part)
        else:
            yield from read_part(part, self.options, self.schema, self.contents)

    def _of_snapshot(self, part: Snapshotted) -> Iterator[pa.RecordBatch]:
        """Yield its records, at the last offset that it stands for, of its epoch."""
        from kraftfast.spark.reading.sources import read_snapshot

        with ExitStack() as held:
            path = part.path or held.enter_context(fetched_snapshot(self.options, part.id))
            for batch in read_snapshot(path, self.options, self.schema, part.replica):
                for name, value in {"offset": part.id.offset - 1, "epoch": part.id.epoch}.items():
                    at = self.schema.get_field_index(name)
                    if at >= 0:
                        column = numbers(np.full(len(batch), value), self.schema.field(at).type)
                        batch = batch.set_column(at, self.schema.field(at), column)
                yield batch

    def commit(self, end: Offsets) -> None:
        """Do nothing: the log's retention is its own."""

    def stop(self) -> None:
        """Do nothing: nothing is open."""


def _admit(start: Ends, ends: Ends, budget: int) -> Ends:
    """Admit as many records of each log as its part of what waits amounts to; at least one in all.

    >>> _admit({"a": 0, "b": 10}, {"a": 300, "b": 110}, 100)
    {'a': 75, 'b': 35}
    """
    waiting = {name: end - start.get(name, 0) for name, end in ends.items()}
    total = sum(waiting.values())
    if total <= budget:
        return ends
    found, left = {}, budget
    for name, count in waiting.items():
        taken = min(left, -(-count * budget // total))
        left -= taken
        found[name] = start.get(name, 0) + taken
    return found
