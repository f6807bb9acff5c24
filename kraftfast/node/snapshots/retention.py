"""How much of the log is kept: ``metadata.max.retention.bytes``, ``metadata.max.retention.ms``.

With a state machine the rule is Kafka's (``KafkaRaftLog.maybeClean``): while there are two
snapshots and the log with all of them is too large, or the oldest is too old, that one goes and the
log begins where the next one ends.

Without one, no snapshots are made. If a limit is given, the log is a queue that forgets: whole old
segments go as long as what is left is not below ``retention_bytes``, or are older than
``retention_ms``, never beyond what is committed and on disk here. What stands for them is a
snapshot that holds no records and says so (``tags.TRIM``): a replica that is behind it goes on from
there, and what was below is gone for it as for every other replica. Where the newest snapshot holds
the state of a machine that this replica runs without, nothing goes: the state is nowhere else.

The age is that of the youngest record by its own time or by when its file was last written, the
later of both. By record times alone, as in Kafka, a producer that sends old records loses them at
once. A time of the future, of a record or of a file, counts for nothing; what has no other time is
no older than what comes behind it. A clock is believed once it was steady for an hour, after each
start and each jump ahead, or for ``retention_ms``: what was there before is too old by then. What
is written meanwhile has the time of the clock that is not believed yet: that is no future.

A witness of Kafka's controllers keeps to Kafka's rule, with the snapshots that it fetched: it never
trims, for no controller of Kafka's could begin behind a snapshot that holds no record.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from kraftfast.core import events as ev
from kraftfast.errors import FlushFailed, InvalidOption, StorageError
from kraftfast.log.snapshots.snapshot_files import snapshot_path
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.snapshots.replica_snapshots import Snapshots, is_trim
from kraftfast.node.snapshots.state_machine_snapshots import newest_is_trim
from kraftfast.node.snapshots.steady_clock import STEADY_MS, SteadyClock
from kraftfast.node.witness import HOLDS_NOTHING
from kraftfast.types import OffsetAndEpoch, Tags
from kraftfast.wire import tags

if TYPE_CHECKING:
    from kraftfast.log.segment import Segment
    from kraftfast.node.node_config import NodeConfig
    from kraftfast.node.snapshots.replica_snapshots import Controls

LOOK_MS = 1000
"""Kafka looks every minute."""
GROWN_SEGMENTS = 2
"""A log may be so much longer than asked for, or by half, for a replica that fetches."""
HOLDS_STATE = (
    "nothing is deleted: its newest snapshot, which ends at {}, holds the state of a state machine "
    "that this replica runs without: give it that machine, or no retention limit"
)
CLOCK = (
    "nothing is deleted by age: some of the log is too old by the clock of this host, which is "
    "believed once it was steady for {:g} s from the start of this replica"
)
KAFKA_BYTES, KAFKA_MS = 100 * 1024 * 1024, 7 * 24 * 3600 * 1000


class Retention:
    """Looks at the log now and then, and has the core give up what need not be kept."""

    # snapshots: of the node. trims: there is neither a state machine nor a witness.
    # bytes_max, ms_max: limits, -1: none.
    # _next_ms: when to look. _segment: the one that was active then; a new one is a reason to look.
    # _busy: a snapshot is being written. _times: id -> timestamp of what it replaces, of those
    # that were asked for. _wall_ms: the clock of the host. _clock: the same, as far as ages are
    # counted by it. _told: why nothing goes, once that was told; _clock_told: that nothing goes by
    # age, while something is old. _states: whether the newest snapshot holds a state, if that is
    # known.

    def __init__(
        self, snapshots: Snapshots, config: NodeConfig, cleans: bool, wall_ms: Callable[[], int]
    ) -> None:
        self.snapshots, self.node = snapshots, snapshots.node
        self.trims = not cleans
        if self.node.witness and self.node.quorum_config.campaign:
            if newest_is_trim(snapshots.disk, snapshots.log_path):
                raise InvalidOption(f"it must not lead: its newest snapshot {HOLDS_NOTHING}")
        kafka = (KAFKA_BYTES, KAFKA_MS) if cleans else (-1, -1)
        self.bytes_max = kafka[0] if config.retention_bytes is None else config.retention_bytes
        self.ms_max = kafka[1] if config.retention_ms is None else config.retention_ms
        self._next_ms = 0
        self._segment: Segment | None = None
        self._busy = False
        self._times: dict[OffsetAndEpoch, int] = {}
        self._told, self._clock_told = "", False
        self._states: dict[OffsetAndEpoch, bool] = {}
        self._wall_ms, self._steady_ms = wall_ms, min(self.ms_max, STEADY_MS)
        self._clock = SteadyClock(wall_ms, self.node.host.monotonic_ns, self._steady_ms)

    def tend(self, now_ms: int) -> None:
        """Look if it is time, or if a segment was begun."""
        if self.bytes_max < 0 and self.ms_max < 0 or self._busy:
            return
        active = self.node.log.active
        if now_ms < self._next_ms and active is self._segment:
            return
        self._next_ms, self._segment = now_ms + LOOK_MS, active
        if self.ms_max >= 0:
            self._clock.unix_ms()  # it is watched while there is nothing to delete, too
        if self.trims:
            self._trim()
        else:
            self._clean()

    def _is_old(self, files: Iterable[tuple[str, int]]) -> bool:
        """Return whether the first file is older than ``ms_max``: see ``_youngest_ms``."""
        known_ms, wall_ms = self._clock.unix_ms(), self._wall_ms()
        now_ms = wall_ms if known_ms is None else known_ms
        old = now_ms - self._youngest_ms(files, max(now_ms, wall_ms)) > self.ms_max
        waits = old and known_ms is None
        if waits and not self._clock_told:
            self.node.tell("retention_waits", why=CLOCK.format(self._steady_ms / 1000))
        self._clock_told = waits
        return old and not waits

    def _youngest_ms(self, files: Iterable[tuple[str, int]], latest_ms: int) -> int:
        """Return when the first file was last written, or the time of its youngest record.

        ``files``: paths and record times, the oldest first. ``latest_ms``: what is later is of the
        future.
        """
        disk, written, times = self.snapshots.disk, -1, -1
        for path, time_ms in files:
            with suppress(StorageError):
                modified_ms = disk.modified_ms(path) if written < 0 else -1
                written = modified_ms if 0 <= modified_ms <= latest_ms else written
            times = time_ms if times < 0 <= time_ms <= latest_ms else times
            if written >= 0 and times >= 0:
                break
        # A clock that steps back leaves files of the future alone, until the next append.
        return max(written, times) if written >= 0 else latest_ms  # what has no time is not old

    # --- without a state machine ------------------------------------------------------------------

    def _trim(self) -> None:
        why = self._why_it_waits()
        if why:
            told = f"{why}; the disk is full" if self.node.log.nursery.error is not None else why
            if told != self._told:
                self.node.tell("retention_waits", why=told)
            self._told = told
            return
        self._told = ""
        found = self._surplus()
        if found is not None and found[0] in self.node.core.snapshots:  # left by an earlier run
            self.node.step(self._due(found[0]))
            return
        if found is None:
            return
        if not self.snapshots.permits(found[0]):
            self._trim_urgently(found[0].offset)
            return
        snapshot_id, timestamp = found
        controls = self.snapshots.controls_at(snapshot_id.offset)
        footer = self.snapshots.footer_at(snapshot_id.offset)
        if footer is None:
            return
        self._busy = True
        self.snapshots.background.ask(
            lambda: self._write_trim(snapshot_id, timestamp, controls, footer),
            lambda error: self._trimmed(snapshot_id, error),
        )

    def _trim_urgently(self, offset: int) -> None:
        """Give up what a snapshot allows that is there, below an offset: no more may be made while
        a replica fetches one."""
        ids = self.node.core.snapshots
        if ids and ids[-1].offset <= offset and self._is_urgent():
            self.node.step(self._due(ids[-1]))

    def _surplus(self) -> tuple[OffsetAndEpoch, int] | None:
        """Return where the log could begin, and the timestamp of what ends there."""
        log, core = self.node.log, self.node.core
        in_memory = self.node.durability == "memory"
        stored = log.end_offset if in_memory else log.flushed_end_offset
        bound = min(core.high_watermark, stored)
        left = sum(segment.position for segment in log.segments)
        found = None
        for place, (segment, following) in enumerate(itertools.pairwise(log.segments)):
            left -= segment.position
            large = 0 <= self.bytes_max <= left
            surplus = large or self.ms_max >= 0 and self._is_old_segment(log.segments, place)
            if following.base_offset > bound or not surplus:
                break
            end = OffsetAndEpoch(following.base_offset, segment.last_epoch)
            found = end, segment.max_timestamp
        return found if found is not None and found[0].offset > log.log_start_offset else None

    def _is_old_segment(self, segments: Sequence[Segment], place: int) -> bool:
        later = itertools.islice(segments, place, None)
        return self._is_old((segment.file.path, segment.max_timestamp) for segment in later)

    def _why_it_waits(self) -> str:
        """Return why nothing may go: the newest snapshot holds a state, or cannot be read."""
        for newest in self.node.core.snapshots[-1:]:
            try:
                if self._holds_state(newest):
                    return HOLDS_STATE.format(newest.offset)
            except (FileNotFoundError, StorageError) as error:
                return f"nothing is deleted: its newest snapshot cannot be read: {error}"
        return ""

    def _holds_state(self, snapshot_id: OffsetAndEpoch) -> bool:
        """Return whether a snapshot is one of a state machine. Raises StorageError, CorruptLog."""
        snapshots = self.snapshots
        if snapshot_id not in self._states:
            with open_snapshot(snapshots.disk, snapshots.log_path, snapshot_id) as reader:
                self._states = {snapshot_id: not is_trim(reader.header)}
        return self._states[snapshot_id]

    def _write_trim(
        self,
        snapshot_id: OffsetAndEpoch,
        timestamp: int,
        controls: Controls,
        footer: Tags,
    ) -> StorageError | None:
        """Write, beside the loop, the snapshot that says that all below it is gone; or why not."""
        snapshots = self.snapshots
        try:
            with SnapshotWriter(
                snapshots.disk,
                snapshots.log_path,
                snapshot_id,
                last_contained_log_timestamp=max(timestamp, 0),
                controls=controls,
                header_tags=((tags.TRIM, b""),),
            ) as writer:
                writer.freeze(footer)
        except FlushFailed:
            raise  # D9
        except StorageError as error:
            return error  # looked at again later
        return None

    def _trimmed(self, snapshot_id: OffsetAndEpoch, error: StorageError | None) -> None:
        self._busy = False
        nursery = self.node.log.nursery
        if error is None:
            self.snapshots.created(snapshot_id)
            self.node.step(self._due(snapshot_id))
        elif nursery.make_way_for(error) or nursery.give_up_spare(self.node.now_ms()):
            self._next_ms = 0  # what it writes is small, and gives up whole segments

    def _due(self, snapshot_id: OffsetAndEpoch) -> ev.RetentionDue:
        """Have the log begin there; do not wait for replicas that fetch one on a full disk, or
        where the log has grown by half while one did.

        A replica that the log has left behind then comes back to a snapshot that costs nothing.
        While it is one that a majority needs, nothing is committed, and the log does not grow (L5).
        """
        return ev.RetentionDue(snapshot_id, self._is_urgent())

    def _is_urgent(self) -> bool:
        full = self.node.log.nursery.error is not None
        return full or self.trims and self._is_grown()

    def _is_grown(self) -> bool:
        if self.bytes_max < 0:
            return False
        log = self.node.log
        room = max(self.bytes_max // 2, GROWN_SEGMENTS * log.nursery.segment_bytes)
        size = sum(segment.position for segment in log.segments)
        return bool(size - self.bytes_max > room)

    # --- with one ---------------------------------------------------------------------------------

    def _clean(self) -> None:
        """Follow Kafka's rule, a step at a time."""
        ids = self.node.core.snapshots
        if len(ids) < 2:
            return
        oldest, following = ids[:2]
        if self._is_too_large(ids) or self._is_too_old(ids):
            self.node.step(self._due(following))
            if oldest not in self.node.core.snapshots:
                self._next_ms = 0  # else it is being fetched: looked at again later

    def _is_too_large(self, ids: tuple[OffsetAndEpoch, ...]) -> bool:
        if self.bytes_max < 0:
            return False
        disk, path = self.snapshots.disk, self.snapshots.log_path
        size = sum(segment.position for segment in self.node.log.segments)
        size += sum(disk.file_bytes(snapshot_path(path, each)) for each in ids)
        return bool(size > self.bytes_max)

    def _is_too_old(self, ids: tuple[OffsetAndEpoch, ...]) -> bool:
        if self.ms_max < 0:
            return False
        self._times = {id: found for id, found in self._times.items() if id in ids}
        log_path = self.snapshots.log_path
        return self._is_old(
            (snapshot_path(log_path, each), self._time_of(each) or -1) for each in ids
        )

    def _time_of(self, snapshot_id: OffsetAndEpoch) -> int:
        """Return the timestamp in a snapshot's header; not above 0: unknown."""
        if snapshot_id not in self._times:
            found = 0
            with suppress(FileNotFoundError, StorageError):
                disk, path = self.snapshots.disk, self.snapshots.log_path
                with open_snapshot(disk, path, snapshot_id) as reader:
                    found = reader.last_contained_log_timestamp
            self._times[snapshot_id] = found
        return self._times[snapshot_id]
