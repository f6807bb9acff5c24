"""The stream source: a log that grows, from a running quorum or from directories.

An offset of the stream says where the next record of each log is; what lies below an end that was
once handed out never changes, so that a batch that is replayed after a crash is the same batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
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

from kraftfast.errors import KraftfastError, NoQuorum, OffsetOutOfRange
from kraftfast.log.disk import Disk
from kraftfast.log.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.spark import remote, survey
from kraftfast.spark.committed import QUORUM, Bounded, Logs, OneLog
from kraftfast.spark.fetched import fetched_snapshot, newest_snapshot
from kraftfast.spark.options import LogOptions
from kraftfast.spark.pieces import damage_row, read_rows
from kraftfast.spark.places import find_places
from kraftfast.spark.survey import Bounds, Damage, Piece
from kraftfast.spark.tables import CONTENTS, numbers
from kraftfast.types import OffsetAndEpoch

Offsets = dict[str, int]


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
    # logs: of the path; what is open there stays open between triggers.

    def __init__(self, options: LogOptions, schema: pa.Schema) -> None:
        self.options, self.schema = options, schema
        self.contents = any(name in CONTENTS for name in schema.names)
        self.goal: Offsets | None = None
        self.logs: Logs | None = None

    # --- where the logs are and how far they go ---------------------------------------------------

    def _bounded(self) -> dict[str, Bounded]:
        """By name. Of a quorum's directory the replica to be read, for all hold one log."""
        if self.logs is None:
            options = self.options
            self.logs = Logs(options.path, options.uncommitted, options.compacted)
        return self.logs.bounded()

    def _ends(self) -> Offsets:
        """How far each log may be read by now."""
        bound = self.options.end_offset
        if self.options.servers:
            found = {QUORUM: remote.committed_end(self.options)}
        else:
            found = {name: each.end_offset for name, each in self._bounded().items()}
        if bound is not None:
            found = {name: min(end, bound) for name, end in found.items()}
        return found

    def _starts(self) -> Offsets:
        """Where each log starts by now."""
        if self.options.servers:
            return {QUORUM: remote.log_start(self.options)}
        return {name: survey.log_start(each.log.place) for name, each in self._bounded().items()}

    def initialOffset(self) -> Offsets:
        asked = self.options.start_offset
        if asked == -1:
            return self._ends()
        starts = self._starts()
        if asked is not None:
            for name, start in starts.items():
                self._check(name, asked, start)
            return {name: max(asked, start) for name, start in starts.items()}
        return starts

    def _check(self, name: str, offset: int, start: int) -> None:
        if offset < start and self.options.fail_on_data_loss:
            text = (
                f"{name} starts at offset {start} by now, and offset {offset} is to be read: set "
                "failOnDataLoss to false to go on with its snapshot, or where it starts"
            )
            raise OffsetOutOfRange(text, start)

    # --- admission --------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        options = self.options
        if options.records_per_trigger is not None:
            return ReadMaxRows(options.records_per_trigger)
        if options.bytes_per_trigger is not None:
            return ReadMaxBytes(options.bytes_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        self.goal = self._ends()

    def reportLatestOffset(self) -> Offsets | None:
        """For the lag in the progress of a query; None while no quorum answers."""
        try:
            return self._ends()
        except KraftfastError:
            return None

    def latestOffset(self, start: Offsets, limit: ReadLimit) -> Offsets:
        """The end of the next micro-batch: a prefix of what there is, within the limit.

        A quorum that does not answer within ``timeout`` has nothing new: the query lives on.
        """
        try:
            ends = self._ends()
        except NoQuorum:
            return start
        if self.goal is not None:
            ends = {name: min(end, self.goal.get(name, 0)) for name, end in ends.items()}
        ends = {name: max(end, start.get(name, 0)) for name, end in ends.items()}
        for name in start:
            ends.setdefault(name, start[name])  # a log that is gone for now
        if isinstance(limit, ReadMaxRows):
            return _admit(start, ends, limit.max_rows)
        if isinstance(limit, ReadMaxBytes):
            return self._admit_bytes(start, ends, limit.max_bytes)
        return ends

    def _admit_bytes(self, start: Offsets, ends: Offsets, budget: int) -> Offsets:
        """Of directories by whole batches; of a quorum by what the next batch's records take."""
        if self.options.servers:
            begin, end = start.get(QUORUM, 0), ends[QUORUM]
            if begin >= end:
                return ends
            size = remote.bytes_per_record(self.options, begin)
            return {QUORUM: min(end, begin + max(1, int(budget / size)))}
        places = {name: each.log for name, each in self._bounded().items()}
        share = max(1, budget // max(1, len(places)))
        found = {}
        for name, end in ends.items():
            log = places.get(name)
            begin = max(start.get(name, 0), survey.log_start(log.place) if log else 0)
            found[name] = max(end, start.get(name, 0))
            if log is not None and begin < end:
                reached = survey.offset_after(log.place, begin, end, share, log.extents)
                found[name] = max(begin, reached)
        return found

    # --- reading ----------------------------------------------------------------------------------

    def partitions(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        if self.options.servers:
            return self._of_servers(start.get(QUORUM, 0), end[QUORUM])
        found: list[Any] = []
        places = {name: each.log for name, each in self._bounded().items()}
        for name, stop in end.items():
            log = places[name] if name in places else OneLog(find_places(name)[0])
            begin = start[name] if name in start else survey.log_start(log.place)
            if begin < stop:
                found += self._of_log(log, begin, stop)
        return [InputPartition(part) for part in found]

    def _of_servers(self, start: int, end: int) -> list[InputPartition]:
        if start >= end:
            return []
        begin = remote.log_start(self.options, start)
        self._check(self.options.servers, start, begin)
        parts: list[Any] = []
        newest = newest_snapshot(self.options) if start < begin else None
        if newest is not None and start < newest.offset <= end:
            parts.append(Snapshotted(self.options.servers, "", newest))
            begin = max(begin, newest.offset)
        parts += remote.ranges(self.options, begin, end)
        return [InputPartition(part) for part in parts]

    def _of_log(self, log: OneLog, start: int, end: int) -> Iterator[Any]:
        """Pieces of one log; the snapshot before them where the log begins later."""
        place = log.place
        first = survey.log_start(place)
        self._check(place.name, start, first)
        if start < first:
            newer = [each for each in snapshot_ids(Disk(), place.log_path) if each.offset > start]
            if newer and newer[-1].offset <= end:
                path = snapshot_path(place.log_path, newer[-1])
                yield Snapshotted(place.name, path, newer[-1])
                first = newer[-1].offset
        bounds = Bounds(max(start, first), end)
        for part in survey.pieces(place, bounds, self.options.split_bytes, end, log.extents):
            if isinstance(part, Damage) and self.options.on_corrupt == "fail":
                raise part.error()
            if not isinstance(part, Damage) or self.options.on_corrupt == "report":
                yield part

    def read(self, partition: InputPartition) -> Iterator[Any]:
        part = partition.value
        if isinstance(part, Piece):
            yield from read_rows(part, self.options, self.schema, self.contents)
        elif isinstance(part, remote.Range):
            yield from remote.read_range(part, self.options, self.schema, self.contents)
        elif isinstance(part, Damage):
            yield damage_row(part, self.schema)
        elif isinstance(part, Snapshotted):
            yield from self._of_snapshot(part)

    def _of_snapshot(self, part: Snapshotted) -> Iterator[pa.RecordBatch]:
        """Its records, at the last offset that it stands for, of its epoch."""
        from kraftfast.spark.sources import read_snapshot

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
        """Nothing to free: the log's retention is its own."""

    def stop(self) -> None:
        """Nothing is open."""


def _admit(start: Offsets, ends: Offsets, budget: int) -> Offsets:
    """As many records of each log as its part of what waits amounts to; at least one in all.

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
