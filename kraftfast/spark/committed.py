"""How far the logs of a path may be read: never beyond what is committed (D11).

* A replica that runs says it: its high watermark.
* A quorum's directory that nobody runs is read up to what a majority of its replicas holds alike,
  by epoch and offset (``log/extents.py``), or up to what one of them knows to be committed. Where
  replicas were added only the second counts, for they may be observers.
* A replica's directory by itself is read up to what it knows: its ``committed-floor``, its newest
  snapshot. The only replica of a quorum knows all that it holds.
* A log of nobody, as a copy of Kafka's, is read up to the broker's high watermark if that is
  stored beside it, else to its last whole batch.
"""

from __future__ import annotations

import contextlib
import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kraftfast.errors import CorruptLog, KraftfastError, PeerGone, StorageError
from kraftfast.log.directory import META, read_meta
from kraftfast.log.disk import Disk
from kraftfast.log.extents import (
    CLEANED,
    HIGH_WATERMARKS,
    Extent,
    LogExtents,
    kafka_checkpoint,
    majority_end,
)
from kraftfast.log.held_segment import OPEN_END
from kraftfast.log.floor import NOTHING, read_floor
from kraftfast.log.snapshot_files import snapshot_ids
from kraftfast.spark.options import LogOptions
from kraftfast.spark.places import Place, find_places, replicas_in
from kraftfast.spark.plain import need_compiled
from kraftfast.spark.transactions import Aborted, Transactions
from kraftfast.types import SOCKET_NAME, OffsetAndEpoch, uuid_text

if TYPE_CHECKING:
    from kraftfast.client.local import Watch

QUORUM = "quorum"
"""The name of a quorum's log; other logs go by the names of their directories."""
DESCRIPTION = "quorum.json"
NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class Bounded:
    """A log, and up to where it may be read."""

    log: OneLog
    end: int | None
    """None: all that is whole, judged as a start would."""

    @property
    def end_offset(self) -> int:
        """Return the end as an offset."""
        return self.log.extent().end_offset if self.end is None else self.end


class OneLog:
    """One log and what tells how far it is committed. What is open stays open until ``close``."""

    # place: where it is. extents: of its files. gaps: offsets may be missing (compacted).
    # transactions: None in a replica's log, whose leader takes none. _watch: of the replica if it
    # runs, or None. _meta: (stamp of meta.properties, cluster id, directory
    # id).

    def __init__(self, place: Place, compacted: bool | None = None) -> None:
        self.place = place
        if compacted is None:
            compacted = not place.directory and (
                kafka_checkpoint(place.log_path, CLEANED) is not None
            )
        self.gaps = compacted
        self.extents = LogExtents(place.log_path, compacted)
        self.transactions = None if place.directory else Transactions(place.log_path)
        self._watch: Watch | None = None
        self._meta: tuple[Any, str, str] | None = None

    def high_watermark(self) -> int | None:
        """Return that of the replica that runs, 0 while it knows none; None where none runs."""
        if self._watch is not None and not self._watch.alive():
            self.close()
        if self._watch is None:
            self._watch = self._open_watch()
        return None if self._watch is None else max(0, self._watch.high_watermark)

    def _open_watch(self) -> Watch | None:
        directory = self.place.directory
        if not directory or not os.path.exists(os.path.join(directory, SOCKET_NAME)):
            return None
        need_compiled(f"asking the replica in {directory} how much is committed")
        from kraftfast.client.local import Watch  # only whoever meets one that runs needs it

        try:
            return Watch(directory)
        except PeerGone:
            return None

    def stored(self) -> OffsetAndEpoch | None:
        """Return what the files of this log alone know to be committed; None: all that is whole.

        The epoch, of the record before, is -1 where it is not known. Raises CorruptLog.
        """
        place = self.place
        if not place.directory:
            known = kafka_checkpoint(place.log_path, HIGH_WATERMARKS)
            return None if known is None else OffsetAndEpoch(known, NO_EPOCH)
        if replicas_beside(os.path.dirname(place.directory)) == (1, 0):
            return None
        disk = Disk()
        bases = place.bases()
        return max(
            read_floor(disk, place.directory),
            *snapshot_ids(disk, place.log_path),
            OffsetAndEpoch(bases[0] if bases else 0, NO_EPOCH),
        )

    def end(self) -> int | None:
        """Return up to where this log may be read, by what it knows; None: all that is whole."""
        running = self.high_watermark()
        try:
            stored = self.stored()
        except CorruptLog:
            if running is None:
                raise
            stored = NOTHING
        if stored is None:
            return running
        return stored.offset if running is None else max(running, stored.offset)

    def extent(self, end_offset: int | None = None) -> Extent:
        """Return that of the log up to an offset, or up to its last whole batch.

        Of a replica that runs never beyond its high watermark: what lies there may be cut at any
        time, and what was walked over is remembered.
        """
        running = self.high_watermark()
        if running is not None:
            end_offset = running if end_offset is None else min(end_offset, running)
        return self.extents.look(end_offset)

    def whole_extent(self) -> Extent:
        """Return that of all whole batches, of a replica that runs too."""
        if self.high_watermark() is None:
            return self.extents.look()
        return LogExtents(self.place.log_path, self.gaps).look()

    def voided(self, options: LogOptions, start: int, end: int | None) -> tuple[Aborted, ...]:
        """Return what transactions voided in a range, as far as it is to be left out."""
        if options.aborted or self.transactions is None:
            return ()
        self.transactions.stable_end(start, OPEN_END)  # how each one ended may stand far behind
        return self.transactions.between(start, OPEN_END if end is None else end)

    def identity(self) -> tuple[str, str]:
        """Return (cluster id, directory id), empty for a log of nobody."""
        if not self.place.directory:
            return "", ""
        status = os.stat(os.path.join(self.place.directory, META))
        stamp = status.st_ino, status.st_mtime_ns
        if self._meta is None or self._meta[0] != stamp:
            meta = read_meta(Disk(), self.place.directory)
            self._meta = stamp, meta.cluster_id, uuid_text(meta.directory_id)
        return self._meta[1], self._meta[2]

    def close(self) -> None:
        """Let go of the replica. It may be asked again."""
        if self._watch is not None:
            self._watch.close()
            self._watch = None


def running_end(place: Place) -> int | None:
    """Return the high watermark of the replica whose log it is; None where none runs."""
    log = OneLog(place)
    try:
        return log.high_watermark()
    finally:
        log.close()


def replicas_beside(path: str) -> tuple[int, int]:
    """Return how many first voters, and how many added replicas, ``quorum.json`` names.

    (0, 0) without one that parses.
    """
    try:
        with open(os.path.join(path, DESCRIPTION), encoding="utf-8") as file:
            found = json.load(file)
        return len(found["voters"]), len(found.get("added", ()))
    except (OSError, ValueError, LookupError, TypeError):
        return 0, 0


class Logs:
    """The logs that a path names, each with its bound: asked once, or again and again.

    ``uncommitted``: where no replica runs, up to their last whole batches instead.
    ``compacted``: offsets may be missing; None: where a Kafka broker says so. ``aborted``: what
    transactions voided, or have not ended, counts too. ``start``: where reading begins.
    """

    # pattern: the path or glob. is_quorum: whether it is a quorum's directory, whose replicas hold
    # one log. _seen: the directory's stamp when it was listed. _logs: by replica or path.

    def __init__(
        self, pattern: str, uncommitted: bool = False, compacted: bool | None = None,
        aborted: bool = True, start: int = 0,
    ) -> None:  # fmt: skip
        self.pattern, self.uncommitted, self.compacted = pattern, uncommitted, compacted
        self.aborted, self.start = aborted, start
        self.is_quorum = os.path.isdir(pattern) and bool(replicas_in(pattern))
        self._seen: tuple[int, int] | None = None
        self._logs: dict[Place, OneLog] = {}

    def each(self) -> list[OneLog]:
        """Return every log, of a quorum's directory every replica's. Raises InputError."""
        seen = None
        if self.is_quorum:
            with contextlib.suppress(OSError):
                status = os.stat(self.pattern)
                seen = status.st_ino, status.st_mtime_ns
        if seen is None or seen != self._seen:
            places = find_places(self.pattern)
            for place in [place for place in self._logs if place not in places]:
                self._logs.pop(place).close()
            self._logs = {
                place: self._logs.get(place) or OneLog(place, self.compacted) for place in places
            }
            self._seen = seen
        return list(self._logs.values())

    def bounded(self) -> dict[str, Bounded]:
        """Return the logs and up to where each may be read: of a quorum, the one to be read."""
        logs = self.each()
        if self.is_quorum:
            return {QUORUM: self._of_quorum(logs)}
        return {log.place.name: Bounded(log, self._end_of(log)) for log in logs}

    def _end_of(self, log: OneLog) -> int | None:
        end = None if self.uncommitted and log.high_watermark() is None else log.end()
        if self.aborted or log.transactions is None:
            return end
        stable = log.transactions.stable_end(self.start, OPEN_END if end is None else end)
        return end if stable == OPEN_END else stable

    @classmethod
    def of(cls, options: LogOptions, start: int = 0) -> Logs:
        """Return those of a path's options."""
        return cls(options.path, options.uncommitted, options.compacted, options.aborted, start)

    def _of_quorum(self, logs: list[OneLog]) -> Bounded:
        if self.uncommitted and all(log.high_watermark() is None for log in logs):
            log, _ = max(_extents(logs), key=lambda each: each[1].end_offset)
            return Bounded(log, None)
        if len(logs) == 1 and logs[0].stored() is None:
            return Bounded(logs[0], logs[0].end())
        voters, added = replicas_beside(self.pattern)
        return quorum_end(logs, max(len(logs), voters + added), added == 0)

    def holders(self, end: int, epoch: int) -> list[OneLog]:
        """Return the replicas whose logs hold the record before ``end``, of that epoch.

        Those that run come first. ``epoch`` -1: of any.
        """
        found = []
        for log in self.each():
            with contextlib.suppress(StorageError, OSError):
                mine = log.extent(end).epoch_at(end - 1)
                if mine >= 0 and epoch in (-1, mine):
                    found.append(log)
        return sorted(found, key=lambda log: log.high_watermark() is None)

    def close(self) -> None:
        """Let go of every replica."""
        for log in self._logs.values():
            log.close()
        self._logs, self._seen = {}, None

    def __enter__(self) -> Logs:
        return self

    def __exit__(self, *_exc: object) -> None:
        self.close()

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: nothing that is open."""
        return self.__dict__ | {"_logs": {}, "_seen": None}


def quorum_end(logs: list[OneLog], voters: int, all_vote: bool = True) -> Bounded:
    """Return up to where a quorum's log is committed, and a replica that holds all of that.

    Unless ``all_vote`` some may be observers: what they hold alike is no majority's, and only what
    a replica knows to be committed counts.
    """
    running = _running(logs)
    best, chosen = max(running, key=lambda each: each[0], default=(-1, logs[0]))
    if len(running) > voters // 2 and best > 0:
        return Bounded(chosen, best)  # their word is enough, and costs no look at a file
    known = _most_stored(logs)
    if known.offset > best:
        best, chosen = known.offset, _holder(logs, known)
    # Nobody leads, so that nobody cuts a log meanwhile.
    if all_vote and len(running) <= voters // 2:
        extents = _extents(logs)
        agreed, index = majority_end([extent for _, extent in extents], voters)
        if agreed > best and len(_running(logs)) <= voters // 2:
            best, chosen = agreed, extents[index][0]
    return Bounded(chosen, best)


def _running(logs: list[OneLog]) -> list[tuple[int, OneLog]]:
    """Return (high watermark, log) of the replicas that run."""
    return [(mark, log) for log in logs if (mark := log.high_watermark()) is not None]


def _extents(logs: list[OneLog]) -> list[tuple[OneLog, Extent]]:
    """Return the extents of those that can be read. Raises the last fault where none can."""
    found, problem = [], None
    for log in logs:
        try:
            found.append((log, log.whole_extent()))
        except KraftfastError as error:
            problem = error
    if problem is not None and not found:
        raise problem
    return found


def _most_stored(logs: list[OneLog]) -> OffsetAndEpoch:
    """Return the highest end that the files of a replica know to be committed."""
    found = [NOTHING]
    for log in logs:
        with contextlib.suppress(CorruptLog):  # what it does not know, another one may
            found.append(log.stored() or NOTHING)
    return max(found)


def _holder(logs: list[OneLog], known: OffsetAndEpoch) -> OneLog:
    """Return a log that holds all below a committed end, or else one that reaches farthest."""
    extents = _extents(logs)
    for log, extent in extents:
        if extent.end_offset >= known.offset and known.epoch == extent.epoch_at(known.offset - 1):
            return log
    return max(extents, key=lambda each: each[1].end_offset)[0]


def left_out(bounded: Bounded) -> str:
    """Return what a warning says of whole batches that a bound leaves out; "" if there are none."""
    if bounded.end is None or bounded.log.high_watermark() is not None:
        return ""
    count = bounded.log.extent().end_offset - bounded.end
    if count <= 0:
        return ""
    why = "nothing tells that they were committed; includeUncommitted=true reads them too"
    transactions = bounded.log.transactions
    if transactions is not None and bounded.end in transactions.open.values():
        why = "a transaction has not ended there; isolationLevel=read_uncommitted reads them too"
    return (
        f"{bounded.log.place.name}: {count:,} records from offset {bounded.end} on are left out, "
        f"for {why}"
    )

