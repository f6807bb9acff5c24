"""How far the logs of a path may be read: never beyond what is committed (D11).

* A replica that runs says it: its high watermark.
* A quorum's directory that no process runs is read up to what one of its replicas knows to be
  committed, or up to what no leader to come can lack, by the voter sets in the logs (``certain``).
  The processes may have been killed before they flushed, so that is done first.
* A replica's directory by itself is read up to what it knows: its ``committed-floor``, its newest
  snapshot. The only voter of a quorum knows all that it holds, once that is on disk.
* A log without replica, as a copy of Kafka's, is read up to the broker's high watermark if that is
  stored beside it, else to its last whole batch.
"""

from __future__ import annotations

import contextlib
import os
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from kraftfast.errors import (
    CorruptBatch,
    CorruptLog,
    ForeignDirectory,
    KraftfastError,
    PeerGone,
    StorageError,
)
from kraftfast.log.disk import Disk
from kraftfast.log.reading.copied_file import OPEN_END
from kraftfast.log.reading.extents import (
    CLEANED,
    HIGH_WATERMARKS,
    Extent,
    LogExtents,
    kafka_checkpoint,
)
from kraftfast.log.reading.reader import LogReader
from kraftfast.log.small_files.committed_floor import NOTHING, read_floor
from kraftfast.log.small_files.directory import META, MetaProperties, read_meta
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.spark.reading.certain import HeldRecords, SetAt, certain_end
from kraftfast.spark.reading.locations import Place, find_places, replicas_in
from kraftfast.spark.reading.transactions import Aborted, Transactions
from kraftfast.spark.reading.uncompiled import need_compiled
from kraftfast.spark.reading.voter_sets import (
    described_voters,
    sets_in_force,
    snapshot_epoch,
    static_voters,
    stored_epoch,
)
from kraftfast.spark.spark_options import SparkLogOptions
from kraftfast.types import SOCKET_NAME, OffsetAndEpoch, ReplicaKey, uuid_text

if TYPE_CHECKING:
    from kraftfast.client.watch import Watch

QUORUM = "quorum"
"""The name of a quorum's log; other logs go by the names of their directories."""
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
    # runs, or None. _meta: (stamp of meta.properties, what it says). _sets: (offset, stamps of the
    # segments, the voter sets from there on).

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
        self._meta: tuple[Any, MetaProperties] | None = None
        self._sets: tuple[int, Any, tuple[SetAt, ...]] | None = None

    def high_watermark(self) -> int | None:
        """Return that of the replica that runs, 0 while it knows none; None where none runs."""
        if self._watch is not None and not (self._watch.alive() and self._is_of_place(self._watch)):
            self.close()
        if self._watch is None:
            self._watch = self._open_watch()
        return None if self._watch is None else max(0, self._watch.high_watermark)

    def _is_of_place(self, watch: Watch) -> bool:
        """Return whether the files are still those of the replica that is asked (D11)."""
        with contextlib.suppress(OSError, StorageError):
            return uuid_text(self.meta().directory_id) == watch.directory_id
        return False

    def _open_watch(self) -> Watch | None:
        directory = self.place.directory
        if not directory or not os.path.exists(os.path.join(directory, SOCKET_NAME)):
            return None
        need_compiled(f"asking the replica in {directory} how much is committed")
        from kraftfast.client.watch import Watch  # only a reader of one that runs needs it

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
            told = kafka_checkpoint(place.log_path, HIGH_WATERMARKS)
            return None if told is None else OffsetAndEpoch(told, NO_EPOCH)
        known = self.known()
        if self.votes_alone(known):
            with contextlib.suppress(StorageError, OSError):
                self.extents.put_on_disk()  # D11: a power cut would take what is not
                return None
        return known

    def known(self) -> OffsetAndEpoch:
        """Return the highest end that a replica's files say is committed. Raises CorruptLog."""
        disk, bases = Disk(), self.place.bases()
        return max(
            read_floor(disk, self.place.directory),
            *snapshot_ids(disk, self.place.log_path),
            OffsetAndEpoch(bases[0] if bases else 0, NO_EPOCH),
        )

    def voter_sets(self, offset: int) -> tuple[SetAt, ...]:
        """Return the voter set in force at ``offset``, and all later ones in a replica's log.

        Empty where neither the log nor ``quorum-state`` names voters. Raises StorageError.
        """
        log_path = self.place.log_path
        stamps = [os.stat(path) for _, path in LogReader(log_path).segments()]
        stamp = [(each.st_ino, each.st_size, each.st_mtime_ns) for each in stamps]
        if self._sets is None or self._sets[:2] != (offset, stamp):
            try:
                found = tuple(sets_in_force(log_path, offset))
            except CorruptBatch as error:
                raise CorruptLog(f"{log_path}: a record of voters is damaged: {error}") from None
            self._sets = offset, stamp, found
        static = None if self._sets[2] else static_voters(log_path)
        return self._sets[2] if static is None else ((-1, static),)

    def votes_alone(self, known: OffsetAndEpoch) -> bool:
        """Return whether no voter set but one of this replica alone may be in force."""
        sets = [voters for _, voters in self.voter_sets(known.offset)]
        if not sets:
            described = described_voters(os.path.dirname(self.place.directory))
            sets = [] if described is None else [described]
        return bool(sets) and all(each.is_only_voter(self.key()) for each in sets)

    def end(self) -> int | None:
        """Return up to where this log may be read, by what it knows; None: all that is whole."""
        running = self.high_watermark()
        if running is None or not self.place.directory:
            stored = self.stored()
            return None if stored is None else stored.offset
        with contextlib.suppress(CorruptLog):
            return max(running, self.known().offset)
        return running

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

    def voided(self, options: SparkLogOptions, start: int, end: int | None) -> tuple[Aborted, ...]:
        """Return what transactions voided in a range, as far as it is to be left out."""
        if options.aborted or self.transactions is None:
            return ()
        self.transactions.stable_end(start, OPEN_END)  # how each one ended may stand far behind
        return self.transactions.between(start, OPEN_END if end is None else end)

    def meta(self) -> MetaProperties:
        """Return whose log it is, of a replica's. Raises NotFormatted, ForeignDirectory."""
        status = os.stat(os.path.join(self.place.directory, META))
        stamp = status.st_ino, status.st_mtime_ns
        if self._meta is None or self._meta[0] != stamp:
            self._meta = stamp, read_meta(Disk(), self.place.directory)
        return self._meta[1]

    def key(self) -> ReplicaKey:
        """Return the replica as voter sets name it."""
        return ReplicaKey(self.meta().node_id, self.meta().directory_id)

    def identity(self) -> tuple[str, str]:
        """Return (cluster id, directory id), empty for a log without a replica."""
        if not self.place.directory:
            return "", ""
        return self.meta().cluster_id, uuid_text(self.meta().directory_id)

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
    def of(cls, options: SparkLogOptions, start: int = 0) -> Logs:
        """Return those of a path's options."""
        return cls(options.path, options.uncommitted, options.compacted, options.aborted, start)

    def _of_quorum(self, logs: list[OneLog]) -> Bounded:
        if self.uncommitted and all(log.high_watermark() is None for log in logs):
            log, _ = max(_extents(logs), key=lambda each: each[1].end_offset)
            return Bounded(log, None)
        _check_cluster(logs)
        return quorum_end(logs)

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


def _check_cluster(logs: list[OneLog]) -> None:
    """Raise ForeignDirectory for replicas of more than one cluster."""
    clusters = {log.meta().cluster_id: log.place.name for log in logs}
    if len(clusters) > 1:
        raise ForeignDirectory(
            f"{' and '.join(sorted(clusters.values()))} are of different clusters "
            f"({', '.join(sorted(clusters))}): name one of them, or move the others away"
        )


def quorum_end(logs: list[OneLog]) -> Bounded:
    """Return up to where a quorum's log is committed, and a replica that holds all of that."""
    if len(logs) == 1:
        return Bounded(logs[0], logs[0].end())
    running = _running(logs)
    best, chosen = max(running, key=lambda each: each[0], default=(-1, logs[0]))
    if len(running) > len(logs) // 2 and best > 0:
        return Bounded(chosen, best)  # their word is enough, and costs no look at a file
    known = _most_known(logs)
    bounded = Bounded(chosen, best)
    if known.offset > best:
        best, bounded = known.offset, _of_holder(logs, known)
    held = _held(logs, known)
    if _may_lead(held, running):
        return bounded
    certain = certain_end([each for _, each in held], known)
    # No replica leads, so that none cuts its log meanwhile.
    if certain.end.offset > best and not _may_lead(held, _running(logs)):
        log, of_log = held[certain.index]
        bounded = Bounded(log, certain.end.offset)
        whole = certain.end.offset >= of_log.extent.end_offset
        if not running and whole and log.votes_alone(known):
            return Bounded(log, None)
    return bounded


def _may_lead(held: list[tuple[OneLog, HeldRecords]], running: list[tuple[int, OneLog]]) -> bool:
    """Return whether those that run may be a majority of some voter set, so that one may lead."""
    keys = [each.key for log, each in held if any(log is other for _, other in running)]
    sets = [voters for _, each in held for _, voters in each.sets]
    return any(sum(map(each.is_voter, keys)) >= each.majority for each in sets)


def _held(logs: list[OneLog], known: OffsetAndEpoch) -> list[tuple[OneLog, HeldRecords]]:
    """Return what the directories hold on disk, of those that can be read and flushed.

    Where no log names voters, ``quorum.json`` beside them does.
    """
    found = []
    for log, extent in _extents(logs):
        with contextlib.suppress(StorageError, OSError):
            sets = [each for each in log.voter_sets(known.offset) if each[0] < extent.end_offset]
            path = log.place.log_path
            epochs = stored_epoch(path, extent), snapshot_epoch(path)
            log.extents.put_on_disk()  # D11: a power cut would take what is not
            found.append((log, HeldRecords(log.key(), extent, epochs[0], tuple(sets), epochs[1])))
    if not any(each.sets for _, each in found):
        described = described_voters(os.path.dirname(logs[0].place.directory))
        if described is not None:
            found = [(log, replace(each, sets=((-1, described),))) for log, each in found]
    return found


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


def _most_known(logs: list[OneLog]) -> OffsetAndEpoch:
    """Return the highest end that the files of a replica know to be committed."""
    found = [NOTHING]
    for log in logs:
        with contextlib.suppress(CorruptLog):  # what it does not know, another one may
            found.append(log.known())
    return max(found)


def _of_holder(logs: list[OneLog], known: OffsetAndEpoch) -> Bounded:
    """Return a log that holds all below a committed end, as far as there is any, or begins there.

    Else one as far as its own files know it to be committed: another one's tail may be a dead
    leader's.
    """
    extents = _extents(logs)
    for log, extent in extents:
        if extent.end_offset >= known.offset and known.epoch == extent.epoch_at(known.offset - 1):
            return Bounded(log, known.offset)
    for log, extent in extents:
        if extent.start_offset >= known.offset:
            return Bounded(log, known.offset)
    found = [(_most_known([log]).offset, extent.end_offset, log) for log, extent in extents]
    own, _, log = max(found, key=lambda each: (min(each[:2]), *each[:2]))
    return Bounded(log, own)


def left_out(bounded: Bounded) -> str:
    """Return what a warning says of whole batches that a bound leaves out; "" if there are none."""
    if bounded.end is None or bounded.log.high_watermark() is not None:
        return ""
    count = bounded.log.extent().end_offset - bounded.end
    if count <= 0:
        return ""
    why = "they are not known to be committed; includeUncommitted=true reads them too"
    transactions = bounded.log.transactions
    if transactions is not None and bounded.end in transactions.open.values():
        why = "a transaction has not ended there; isolationLevel=read_uncommitted reads them too"
    return (
        f"{bounded.log.place.name}: {count:,} records from offset {bounded.end} on are left out, "
        f"for {why}"
    )
