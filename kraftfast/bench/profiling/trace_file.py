"""Writes a commit timeline as a Perfetto trace (https://perfetto.dev): protobuf, any size.

A process is a process track, a stage a track below it, a commit a flow whose id is the base offset
of its batch.
"""

from __future__ import annotations

import heapq
import os
import time
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from kraftfast.bench.profiling.timeline import FOLLOWED, IN_ORDER, Mark, Timeline, TimelineSlice
from kraftfast.bench.targets import check_replaceable
from kraftfast.errors import HostUnsupported, InputError, StorageError

PACKETS_AT_ONCE = 4096
SEQUENCE = 1
MAGIC = b"\n"
"""How each trace begins: the tag of its first packet."""
INT64_MAX = 2**63 - 1


def protobuf() -> Any:
    """Return Perfetto's messages. Raises HostUnsupported where they are not installed."""
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2
    except ImportError:
        raise HostUnsupported(
            "a timeline needs perfetto's messages: pip install 'kraftfast[profile]'"
        ) from None
    return perfetto_trace_pb2


def check_target(path: Path) -> None:
    """Raise InputError if no file can be made there, before anything is recorded."""
    if path.is_dir():
        raise InputError(f"cannot write {path}: it is a directory")
    check_replaceable(path, MAGIC, "a trace")
    try:
        fresh = _fresh(path)
        fresh.touch()
        fresh.unlink()
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from None


def _fresh(path: Path) -> Path:
    """Return where a trace is written before it takes its name."""
    return path.with_name(f"{path.name}.{os.getpid()}.new")


def write(made: Timeline, path: Path) -> int:
    """Write a trace, whole or not at all; return how many packets it has. Raises StorageError."""
    check_target(path)  # again: what is there may have changed meanwhile
    fresh = _fresh(path)
    try:
        with open(fresh, "wb") as file:
            count = _Writer(protobuf(), file).write(made)
        os.replace(fresh, path)
        return count
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from None
    finally:
        fresh.unlink(missing_ok=True)


class _Writer:
    """One trace. Tracks get their numbers as they are described."""

    # pb: Perfetto's messages. file: where they go. trace: what is not written yet.

    def __init__(self, pb: Any, file: IO[bytes]) -> None:
        self.pb, self.file, self.trace = pb, file, pb.Trace()
        self.event = pb.TrackEvent
        self.count = self.tracks = 0

    def write(self, made: Timeline) -> int:
        self._clock()
        for process in made.recording.processes:
            track = self._process(process.name, process.pid)
            slices, marks = defaultdict(list), []
            for each in made.slices:
                if each.process == process.name:
                    slices[each.stage].append(each)
            for mark in made.marks:
                if mark.process == process.name:
                    marks.append(mark)
            for rank, stage in enumerate(IN_ORDER):
                for lane in lanes(slices[stage]):
                    self._lane(self._track(stage, track, rank), lane)
            self._ends(track, slices)
            self._marks(track, marks, process.role, made.recording.began_ns)
        self._put_out()
        return self.count

    def _packet(self) -> Any:
        if len(self.trace.packet) >= PACKETS_AT_ONCE:
            self._put_out()
        self.count += 1
        packet = self.trace.packet.add()
        packet.trusted_packet_sequence_id = SEQUENCE
        packet.timestamp_clock_id = self.pb.BUILTIN_CLOCK_MONOTONIC
        return packet

    def _put_out(self) -> None:
        self.file.write(self.trace.SerializeToString())
        self.trace = self.pb.Trace()  # Clear() keeps the memory

    def _clock(self) -> None:
        """Say that all times are of CLOCK_MONOTONIC, and what that is in the others."""
        packet = self._packet()
        packet.sequence_flags = packet.SEQ_INCREMENTAL_STATE_CLEARED
        snapshot = packet.clock_snapshot
        snapshot.primary_trace_clock = self.pb.BUILTIN_CLOCK_MONOTONIC
        for id, clock in (
            (self.pb.BUILTIN_CLOCK_MONOTONIC, time.CLOCK_MONOTONIC),
            (self.pb.BUILTIN_CLOCK_BOOTTIME, time.CLOCK_BOOTTIME),
            (self.pb.BUILTIN_CLOCK_REALTIME, time.CLOCK_REALTIME),
        ):
            snapshot.clocks.add(clock_id=id, timestamp=time.clock_gettime_ns(clock))

    def _process(self, name: str, pid: int) -> int:
        descriptor = self._descriptor()
        descriptor.process.pid, descriptor.process.process_name = pid, name
        return int(descriptor.uuid)

    def _descriptor(self) -> Any:
        self.tracks += 1
        descriptor = self._packet().track_descriptor
        descriptor.uuid = self.tracks
        return descriptor

    def _track(self, name: str, parent: int, rank: int = 0) -> int:
        descriptor = self._descriptor()
        descriptor.parent_uuid, descriptor.name = parent, name
        descriptor.sibling_order_rank = rank
        return int(descriptor.uuid)

    def _lane(self, track: int, lane: Iterable[TimelineSlice]) -> None:
        for each in lane:
            if each.began_ns == each.ended_ns:
                self._begin(track, each, self.event.TYPE_INSTANT)
                continue
            self._begin(track, each, self.event.TYPE_SLICE_BEGIN)
            packet = self._packet()
            packet.timestamp = each.ended_ns
            packet.track_event.type = self.event.TYPE_SLICE_END
            packet.track_event.track_uuid = track

    def _begin(self, track: int, each: TimelineSlice, kind: int) -> None:
        packet = self._packet()
        packet.timestamp = each.began_ns
        event = packet.track_event
        event.type, event.track_uuid = kind, track
        event.name = "fdatasync" if each.stage == "flush" else each.stage
        if each.stage in FOLLOWED:
            event.flow_ids.extend(each.bases)
        self._note(event, "offset", each.offset)
        self._note(event, "records", each.records)
        if each.peer:
            self._note(event, "replica", each.peer)

    def _note(self, event: Any, name: str, value: int) -> None:
        event.debug_annotations.add(name=name, int_value=value)

    def _ends(self, parent: int, slices: dict[str, list[TimelineSlice]]) -> None:
        """Mark the moments at which commits were answered and resolved: flows pass there."""
        for rank, (stage, name) in enumerate((("commit", "committed"), ("resolve", "resolved"))):
            if not slices[stage]:
                continue
            track = self._track(name, parent, len(IN_ORDER) + rank)
            for each in slices[stage]:
                packet = self._packet()
                packet.timestamp = each.ended_ns
                event = packet.track_event
                event.type, event.track_uuid = self.event.TYPE_INSTANT, track
                event.name = name
                event.flow_ids.extend(each.bases)
                self._note(event, "offset", each.offset)
                self._note(event, "records", each.records)

    def _marks(self, parent: int, marks: list[Mark], role: str, began_ns: int) -> None:
        roles = self._track("role and epoch", parent, len(IN_ORDER) + 2)
        if role:
            self._instant(roles, began_ns, f"{role} when the recording began")
        for mark in marks:
            if mark.kind != "high_watermark":
                self._instant(roles, mark.ns, f"{mark.kind}: {mark.text}")
        watermarks = [mark for mark in marks if mark.kind == "high_watermark"]
        if watermarks:
            descriptor = self._descriptor()
            descriptor.parent_uuid, descriptor.name = parent, "high watermark"
            descriptor.counter.SetInParent()
            track = int(descriptor.uuid)
            for mark in watermarks:
                packet = self._packet()
                packet.timestamp = mark.ns
                packet.track_event.type = self.event.TYPE_COUNTER
                packet.track_event.track_uuid = track
                packet.track_event.counter_value = min(mark.value, INT64_MAX)

    def _instant(self, track: int, ns: int, name: str) -> None:
        packet = self._packet()
        packet.timestamp = ns
        packet.track_event.type = self.event.TYPE_INSTANT
        packet.track_event.track_uuid, packet.track_event.name = track, name


def lanes(slices: list[TimelineSlice]) -> Iterator[list[TimelineSlice]]:
    """Yield slices that do not overlap, lane by lane: those of one track must be nested."""
    found: list[list[TimelineSlice]] = []
    free: list[tuple[int, int]] = []  # (end of its last slice, number of the lane)
    for each in sorted(slices, key=lambda each: (each.began_ns, each.ended_ns)):
        if free and free[0][0] <= each.began_ns:
            _, number = heapq.heappop(free)
        else:
            number = len(found)
            found.append([])
        found[number].append(each)
        heapq.heappush(free, (each.ended_ns, number))
    yield from found
