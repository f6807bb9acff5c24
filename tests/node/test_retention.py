"""How much of the log is kept: by size, by age, with a state machine and without one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import events as ev
from kraftfast.errors import DiskFull, FlushFailed, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.local_host import LocalHost
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.node.snapshots.retention import KAFKA_BYTES, KAFKA_MS, Retention
from kraftfast.node.snapshots.steady_clock import STEADY_MS, SteadyClock
from kraftfast.types import OffsetAndEpoch
from tests.node.test_snapshot_parts import FakeNode, made

DAY_MS = 24 * 3600 * 1000


def segment(base: int, end: int, position: int, stamp: int, path: Path) -> Any:
    path.write_bytes(b"")
    return SimpleNamespace(
        base_offset=base,
        end_offset=end,
        position=position,
        max_timestamp=stamp,
        last_epoch=base,
        file=SimpleNamespace(path=str(path)),
    )


def written(path: Path | str, age_ms: int) -> None:
    """Have a file be written that long ago."""
    at = time.time() - age_ms / 1000
    os.utime(path, (at, at))


def retention(
    tmp_path: Path,
    makes: bool,
    wall_ms: Callable[[], int] = LocalHost.wall_ms,
    ran_ms: int = STEADY_MS,
    **limits: Any,
) -> tuple[Any, Retention]:
    """A node that runs since ``ran_ms``, and its retention."""
    node: Any = FakeNode(tmp_path)
    node.ran_ms = 0
    node.host.monotonic_ns = lambda: time.monotonic_ns() + node.ran_ms * 1_000_000
    ends = [(0, 10, 100, 1), (10, 20, 100, 2), (20, 30, 100, 3), (30, 35, 50, 4)]
    segments = [segment(*each, tmp_path / str(each[0])) for each in ends]
    for each in segments:
        written(each.file.path, 1 << 30)
    node.log = SimpleNamespace(
        segments=segments, active=segments[-1], log_start_offset=0, end_offset=35,
        flushed_end_offset=35, producers=SimpleNamespace(freeze=lambda *_: b""),
        nursery=SimpleNamespace(
            error=None, segment_bytes=1000, give_up_spare=lambda _: False, make_way_for=lambda _: 0
        ),
    )  # fmt: skip
    history = SimpleNamespace(version_at=lambda _end: 0)
    node.core = SimpleNamespace(
        high_watermark=35, snapshots=(), may_create_snapshot=lambda _id: True, history=history
    )
    config = SimpleNamespace(**{"retention_bytes": None, "retention_ms": None} | limits)
    kept = Retention(Snapshots(node), config, makes, wall_ms)
    node.ran_ms = ran_ms
    return node, kept


@pytest.mark.parametrize(
    "bytes_max, known, stored, start",
    [
        (350, 35, 35, None),  # not one more than enough
        (251, 35, 35, None),
        (250, 35, 35, 10),
        (149, 35, 35, 20),
        (0, 35, 35, 30),  # the active segment stays
        (0, 29, 35, 20),  # what is not committed too
        (0, 35, 19, 10),  # and what is not on disk here
        (0, -1, 35, None),
    ],
)
def test_whole_segments_are_given_up_beyond_the_limit(
    tmp_path: Path, bytes_max: int, known: int, stored: int, start: int | None
) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=bytes_max)
    node.core.high_watermark, node.log.flushed_end_offset = known, stored
    kept.tend(0)
    due = [event.snapshot_id for event in node.events if isinstance(event, ev.RetentionDue)]
    assert due == ([] if start is None else [OffsetAndEpoch(start, start - 10)])


@pytest.mark.parametrize("bytes_max, urgent", [(60, True), (150, False)])
def test_a_log_that_outgrew_its_limit_waits_for_no_replica(
    tmp_path: Path, bytes_max: int, urgent: bool
) -> None:
    """350 bytes: 200 more than the limit are kept for one that fetches a snapshot, no more."""
    node, kept = retention(tmp_path, False, retention_bytes=bytes_max)
    node.log.nursery.segment_bytes = 100
    kept.tend(0)
    due = [event.urgent for event in node.events if isinstance(event, ev.RetentionDue)]
    assert due == [urgent]


@pytest.mark.parametrize("bytes_max, due", [(60, True), (150, False)])
def test_a_log_that_outgrew_its_limit_needs_no_new_snapshot(
    tmp_path: Path, bytes_max: int, due: bool
) -> None:
    """While a replica fetches one, no more are made than three."""
    node, kept = retention(tmp_path, False, retention_bytes=bytes_max)
    node.log.nursery.segment_bytes = 100
    node.core.may_create_snapshot = lambda _id: False
    node.core.snapshots = (OffsetAndEpoch(5, 0), OffsetAndEpoch(10, 0))
    made(tmp_path, OffsetAndEpoch(10, 0), trim=True)
    kept.tend(0)
    assert node.events == ([ev.RetentionDue(OffsetAndEpoch(10, 0), True)] if due else [])


def test_a_full_disk_needs_no_new_snapshot(tmp_path: Path) -> None:
    """Nothing waits for who fetches one, also where three keep another one from being made."""
    node, kept = retention(tmp_path, False, retention_bytes=150)
    node.core.may_create_snapshot = lambda _id: False
    node.core.snapshots = (OffsetAndEpoch(5, 0), OffsetAndEpoch(10, 0))
    made(tmp_path, OffsetAndEpoch(10, 0), trim=True)
    node.log.nursery.error = DiskFull("no space left")
    kept.tend(0)
    assert node.events == [ev.RetentionDue(OffsetAndEpoch(10, 0), True)]


def test_by_age_and_not_before_it_is_time(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, retention_ms=1000)
    now = time.time_ns() // 1_000_000
    for each, age in zip(node.log.segments, (5000, 4000, 10, 0)):
        each.max_timestamp = now - age
    kept.tend(0)
    assert node.events[-1] == ev.RetentionDue(OffsetAndEpoch(20, 10))
    count = len(node.events)
    kept.tend(500)
    assert len(node.events) == count, "it looks once a second"
    node.log.active = segment(35, 35, 0, -1, tmp_path / "35")
    kept.tend(501)
    assert len(node.events) > count, "or when a segment was begun"


@pytest.mark.parametrize(
    "ages, start",
    [
        ((None, None, None, 0), None),
        ((None, 4000, 10, 0), 20),
        ((None, 10, 5000, 0), None),
        ((5000, None, 10, 0), 10),
        ((5000, None, None, None), 30),  # as old as their files
        ((-5000, None, None, 10), None),  # a time of the future counts for nothing
        ((-5000, 5000, 10, 0), 20),
    ],
)
def test_records_without_a_time_are_not_older_than_those_behind_them(
    tmp_path: Path, ages: tuple[int | None, ...], start: int | None
) -> None:
    """Their segments were given up as soon as another one was begun, whatever the limit."""
    node, kept = retention(tmp_path, False, retention_ms=1000)
    now = time.time_ns() // 1_000_000
    for each, age in zip(node.log.segments, ages):
        each.max_timestamp = -1 if age is None else now - age
    kept.tend(0)
    due = [event.snapshot_id for event in node.events if isinstance(event, ev.RetentionDue)]
    assert due == ([] if start is None else [OffsetAndEpoch(start, start - 10)])


@pytest.mark.parametrize("makes", [False, True])
def test_old_records_that_are_stored_now_are_kept(tmp_path: Path, makes: bool) -> None:
    """A producer that sent those of last month lost them within a second, acknowledged."""
    node, kept = retention(tmp_path, makes, retention_bytes=-1, retention_ms=60_000)
    ids = (OffsetAndEpoch(10, 0), OffsetAndEpoch(20, 10)) if makes else ()
    node.core.snapshots = ids
    for each in ids:
        made(tmp_path, each, 1)
    for each in node.log.segments:
        written(each.file.path, 0)
    kept.tend(0)
    assert node.events == []
    for path in (
        *(each.file.path for each in node.log.segments),
        *(snapshot_path(str(tmp_path), id) for id in ids),
    ):
        written(path, 61_000)
    kept.tend(2000)
    assert [type(each) for each in node.events][-1:] == [ev.RetentionDue]


def test_a_clock_that_jumps_deletes_nothing(tmp_path: Path) -> None:
    now = [time.time_ns() // 1_000_000]
    node, kept = retention(tmp_path, False, lambda: now[0], retention_ms=60_000)
    for each in node.log.segments:
        written(each.file.path, 1000)
    kept.tend(0)
    now[0] += 8 * DAY_MS
    kept.tend(2000)
    assert node.events == []


def test_old_records_that_are_stored_after_a_clock_jumped_are_kept(tmp_path: Path) -> None:
    """Their files were taken for such of the future: those of last month went, acknowledged."""
    now = [time.time_ns() // 1_000_000]
    node, kept = retention(tmp_path, False, lambda: now[0], retention_ms=60_000)
    for jump_ms in (0, 2 * STEADY_MS):
        now[0] += jump_ms
        for each in node.log.segments:
            written(each.file.path, 1000 - jump_ms)
        kept.tend(jump_ms)
    assert node.events == []


@pytest.mark.parametrize("makes", [False, True])
def test_a_clock_that_is_wrong_at_a_start_deletes_nothing(tmp_path: Path, makes: bool) -> None:
    """All replicas of a host that jumped ahead, and were started again, deleted together."""
    limits = {"retention_bytes": -1, "retention_ms": 7 * DAY_MS}
    node, kept = retention(tmp_path, makes, lambda: LocalHost.wall_ms() + 10 * DAY_MS, 0, **limits)
    node.core.snapshots = ids = (OffsetAndEpoch(10, 0), OffsetAndEpoch(20, 10)) if makes else ()
    for each in ids:
        made(tmp_path, each, 1)
    for now_ms, ran_ms in ((0, 0), (2000, STEADY_MS - 60_000)):
        node.ran_ms = ran_ms
        kept.tend(now_ms)
    assert node.events == [] and len(node.lines) == 1 and "for 3600 s" in node.lines[0]
    node.ran_ms = STEADY_MS
    kept.tend(4000)
    assert [type(each) for each in node.events][-1:] == [ev.RetentionDue], "it is believed then"


def test_that_nothing_goes_by_age_is_told_again_after_nothing_was_old(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, ran_ms=0, retention_ms=7 * DAY_MS)
    told = []
    for look, days in enumerate((8, 8, 0, 8)):
        written(node.log.segments[0].file.path, days * DAY_MS)
        kept.tend(2000 * look)
        told.append(len(node.lines))
    assert node.events == [] and told == [1, 1, 1, 2]
    assert "nothing is deleted by age: " in node.lines[0]


def test_nothing_is_told_of_the_age_of_what_goes_by_size(tmp_path: Path) -> None:
    """Or it would be told at each look, as what stands behind it is not old."""
    limits = {"retention_bytes": 250, "retention_ms": 7 * DAY_MS}
    node, kept = retention(tmp_path, False, ran_ms=0, **limits)
    for each in node.log.segments[1:]:
        written(each.file.path, 0)
    for now_ms in (0, 2000):
        kept.tend(now_ms)
    assert ev.RetentionDue(OffsetAndEpoch(10, 0)) in node.events and node.lines == []


def test_a_clock_is_watched_while_there_is_one_segment(tmp_path: Path) -> None:
    """One that was wrong at the start and an hour later was believed, though right in between."""
    now = [time.time_ns() // 1_000_000 + 10 * DAY_MS]
    node, kept = retention(tmp_path, False, lambda: now[0], 0, retention_ms=7 * DAY_MS)
    segments, node.log.segments = node.log.segments, node.log.segments[:1]
    for each in segments:
        written(each.file.path, 0)
    for ran_ms, jump_ms in ((1000, -10 * DAY_MS), (STEADY_MS, 10 * DAY_MS)):
        node.ran_ms = ran_ms
        now[0] += jump_ms
        kept.tend(ran_ms)
        node.log.segments = segments
    assert node.events == []


def test_a_limit_of_size_waits_for_no_clock(tmp_path: Path) -> None:
    limits = {"retention_bytes": 150, "retention_ms": 7 * DAY_MS}
    node, kept = retention(tmp_path, False, ran_ms=0, **limits)
    kept.tend(0)
    assert node.events[-1] == ev.RetentionDue(OffsetAndEpoch(20, 10))


def test_a_replica_that_ran_for_all_of_a_short_limit_believes_its_clock(tmp_path: Path) -> None:
    """What was there as it was started is too old by then, whatever the time is."""
    node, kept = retention(tmp_path, False, ran_ms=1000, retention_ms=1000)
    kept.tend(0)
    assert node.events[-1] == ev.RetentionDue(OffsetAndEpoch(30, 20))


def steady_clock() -> Callable[[int, int], int | None]:
    """A clock that was made at monotonic time 0 as the wall clock was at 5000."""
    shown = [0, 5_000]
    clock = SteadyClock(lambda: shown[1], lambda: shown[0] * 1_000_000, STEADY_MS)

    def at(monotonic_ms: int, wall_ms: int) -> int | None:
        shown[:] = monotonic_ms, wall_ms
        return clock.unix_ms()

    return at


def test_a_clock_that_stays_where_it_jumped_is_believed() -> None:
    """A host that boots before it knows the time must not keep its log for ever."""
    at, hour = steady_clock(), STEADY_MS
    assert at(0, 5_000) is None and at(1_000, 7_000) is None, "it may be wrong at the start"
    assert at(hour, hour + 6_000) == hour + 5_000, "it was so far ahead all the time"
    assert at(hour + 1, hour + 65_001) == hour + 65_001, "it is set right"
    assert at(hour + 2_000, DAY_MS) == hour + 67_000
    assert at(2 * hour + 1_000, DAY_MS + hour - 1_000) == 2 * hour + 66_000
    assert at(2 * hour + 2_000, DAY_MS + hour) == DAY_MS + hour
    assert at(2 * hour + 3_000, 4_000) == 4_000, "back at once"
    assert at(2 * hour + 4_000, DAY_MS) == 5_000, "it jumps again"
    assert at(3 * hour, hour) == hour, "it was steady only where it is now"


def test_a_clock_that_was_right_meanwhile_is_not_believed_where_it_jumped() -> None:
    at, hour = steady_clock(), STEADY_MS
    at(1_000, DAY_MS)
    assert at(hour, hour + DAY_MS) == hour + 5_000


def test_a_machine_that_sleeps_does_not_fall_behind() -> None:
    """Its monotonic clock stands still meanwhile: each waking up began the hour anew."""
    at, monotonic_ms, wall_ms = steady_clock(), 0, 5_000
    for _ in range(24 * 20):
        for _ in range(50):
            monotonic_ms, wall_ms = monotonic_ms + 60_000, wall_ms + 60_000
            known_ms = at(monotonic_ms, wall_ms)
        wall_ms += 600_000
    assert known_ms is not None and wall_ms - known_ms < 3 * 600_000


def test_nothing_goes_where_all_files_are_of_the_future(tmp_path: Path) -> None:
    """The clock was ahead as all was written, and steps back: old records went at once."""
    node, kept = retention(tmp_path, False, retention_ms=60_000)
    for each in node.log.segments:
        written(each.file.path, -2 * STEADY_MS)
    kept.tend(0)
    assert node.events == []


def test_a_file_of_the_future_is_no_younger_than_those_behind_it(tmp_path: Path) -> None:
    """Nothing went until that time had come."""
    node, kept = retention(tmp_path, False, retention_ms=60_000)
    for each, age in zip(node.log.segments, (-(1 << 30), 70_000, 10, 0)):
        each.max_timestamp = -1
        written(each.file.path, age)
    kept.tend(0)
    due = [event.snapshot_id for event in node.events if isinstance(event, ev.RetentionDue)]
    assert due == [OffsetAndEpoch(20, 10)]


def test_a_state_that_a_leader_sent_is_not_trimmed(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=0)
    made(tmp_path, OffsetAndEpoch(10, 0), 5)
    node.core.snapshots = (OffsetAndEpoch(10, 0),)
    for now_ms in (0, 2000):
        kept.tend(now_ms)
    assert node.events == [] and [each.split()[0] for each in node.lines] == ["retention_waits"]
    assert "nothing is deleted: " in node.lines[0]
    node.log.nursery.error = DiskFull("no space left")
    kept.tend(4000)
    assert node.events == [] and "the disk is full" in node.lines[1]


def test_nothing_goes_while_the_newest_snapshot_cannot_be_read(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=0)
    node.core.snapshots = (OffsetAndEpoch(10, 0),)
    for now_ms in (0, 2000):
        kept.tend(now_ms)
    assert node.events == [] and "cannot be read" in node.lines[0] and len(node.lines) == 1


def test_one_that_an_earlier_run_left_is_not_made_again(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=0)
    made(tmp_path, OffsetAndEpoch(30, 20), trim=True)
    node.core.snapshots = (OffsetAndEpoch(30, 20),)
    kept.tend(0)
    assert node.events == [ev.RetentionDue(OffsetAndEpoch(30, 20))]
    assert snapshot_ids(Disk(), str(tmp_path)) == [OffsetAndEpoch(30, 20)]


def test_nothing_goes_without_a_limit(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False)
    kept.tend(0)
    assert node.events == [] and (kept.bytes_max, kept.ms_max) == (-1, -1)
    _, kept = retention(tmp_path, True)
    assert (kept.bytes_max, kept.ms_max) == (KAFKA_BYTES, KAFKA_MS)


@pytest.mark.parametrize("limits", [{"retention_bytes": 400}, {"retention_ms": 1000}])
def test_with_a_machine_it_is_kafkas_rule(tmp_path: Path, limits: dict[str, int]) -> None:
    """The oldest of two snapshots goes, the newest never does."""
    now = time.time_ns() // 1_000_000
    ids = (OffsetAndEpoch(10, 0), OffsetAndEpoch(20, 10))
    node, kept = retention(tmp_path, True, **{"retention_bytes": -1, "retention_ms": -1} | limits)
    for each in ids:
        made(tmp_path, each, now - 5000)
        written(snapshot_path(str(tmp_path), each), 5000)
    node.core.snapshots = ids[1:]
    kept.tend(0)
    assert node.events == []
    node.core.snapshots = ids
    kept.tend(2000)
    assert node.events == [ev.RetentionDue(ids[1])]
    kept.tend(2001)
    assert len(node.events) == 1, "it is being fetched: not asked again at once"
    node.log.nursery.error = DiskFull("no space left")
    kept.tend(4000)
    assert node.events[1:] == [ev.RetentionDue(ids[1], urgent=True)]
    fresh, kept = retention(tmp_path, True, retention_bytes=1 << 20, retention_ms=60_000)
    fresh.core.snapshots = ids
    kept.tend(0)
    assert fresh.events == []


@pytest.mark.parametrize(
    "ages, due",
    [
        ((5000, 10), True),
        ((None, 5000), True),
        ((None, 10), False),
        ((None, None), True),  # as old as its file
        ((None, None, 5000), True),
    ],
)
def test_a_snapshot_without_a_time_is_not_older_than_those_behind_it(
    tmp_path: Path, ages: tuple[int | None, ...], due: bool
) -> None:
    """Its last record has none, say: the log was given up as soon as the next one was made."""
    node, kept = retention(tmp_path, True, retention_bytes=-1, retention_ms=1000)
    now = time.time_ns() // 1_000_000
    ids = tuple(OffsetAndEpoch(10 * number, number) for number in range(1, len(ages) + 1))
    for each, age in zip(ids, ages):
        made(tmp_path, each, 0 if age is None else now - age)
        written(snapshot_path(str(tmp_path), each), 1 << 30)
    node.core.snapshots = ids
    kept.tend(0)
    assert node.events == ([ev.RetentionDue(ids[1])] if due else [])


def test_a_snapshot_that_cannot_be_read_is_not_old(tmp_path: Path) -> None:
    """As in Kafka's readSnapshotTimestamp()."""
    node, kept = retention(tmp_path, True, retention_bytes=-1, retention_ms=1000)
    node.core.snapshots = ids = (OffsetAndEpoch(10, 0), OffsetAndEpoch(20, 10))
    Path(snapshot_path(str(tmp_path), ids[0])).write_bytes(b"damaged")
    made(tmp_path, ids[1], time.time_ns() // 1_000_000)
    kept.tend(0)
    assert node.events == []


@pytest.mark.parametrize("fault", [DiskFull("no space"), FlushFailed("of a snapshot")])
def test_a_trim_that_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fault: StorageError
) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=0)

    def fail(*_: object) -> None:
        raise fault

    monkeypatch.setattr(SnapshotWriter, "freeze", fail)
    if isinstance(fault, FlushFailed):
        with pytest.raises(FlushFailed):  # D9
            kept.tend(0)
    else:
        kept.tend(0)
        monkeypatch.undo()
        assert node.events == [] and snapshot_ids(Disk(), str(tmp_path)) == []
        kept.tend(2000)
        assert node.events[-1] == ev.RetentionDue(OffsetAndEpoch(30, 20))
