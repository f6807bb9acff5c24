"""The parts of snapshots in the node, each alone: slices, what is kept, what machines need."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as core
from kraftfast.errors import DiskFull, ErrorCode, FlushFailed, InvalidOption, StorageError
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.host import LocalHost
from kraftfast.node.snapshots.replica_snapshots import DownloadFile, Snapshots
from kraftfast.node.snapshots.retention import KAFKA_BYTES, KAFKA_MS, Retention
from kraftfast.node.translation import translate, wire_values
from kraftfast.node.translation.translate_snapshot import Slice, slice_of
from kraftfast.types import METADATA_TOPIC, METADATA_TOPIC_ID, OffsetAndEpoch, ReplicaKey
from kraftfast.wire import frame, tags
from kraftfast.wire.messages import ApiKey

ID = OffsetAndEpoch(10, 3)
PARTITION = wire_values.Partition(METADATA_TOPIC, METADATA_TOPIC_ID, "CONTROLLER")


def made(path: Path, snapshot_id: OffsetAndEpoch = ID, stamp: int = 0, trim: bool = False) -> bytes:
    """A finished snapshot; its bytes."""
    with SnapshotWriter(
        Disk(), str(path), snapshot_id, last_contained_log_timestamp=stamp,
        header_tags=((tags.TRIM, b""),) if trim else (),
    ) as writer:  # fmt: skip
        if not trim:
            writer.extend(b"state %d" % i for i in range(500))
        writer.freeze()
    return Path(snapshot_path(str(path), snapshot_id)).read_bytes()


class AtOnce:
    """Instead of the thread beside the loop."""

    def ask(self, job: Callable[[], Any], done: Callable[[Any], None]) -> None:
        done(job())

    def tell(self, call: Callable[[], None]) -> None:
        call()


class FakeThreads:
    s, event = 1000.0, threading.Event

    def monotonic(self) -> float:
        return self.s


class FakeNode:
    """What ``Snapshots`` and ``Retention`` see of a node."""

    def __init__(self, path: Path) -> None:
        self.disk, self.background, self.applier = Disk(), AtOnce(), None
        self.host = SimpleNamespace(threads=FakeThreads(), monotonic_ns=time.monotonic_ns)
        options = SimpleNamespace(records="any")
        self.directory = SimpleNamespace(log_path=str(path), options=options)
        self.on_role: list[Any] = []
        self.events: list[Any] = []
        self.lines: list[str] = []
        self.ms = 0
        self.durability, self.witness = "majority", False
        self.log: Any = SimpleNamespace(nursery=SimpleNamespace(make_way_for=lambda error: False))

    def now_ms(self) -> int:
        return self.ms

    def step(self, event: Any) -> None:
        self.events.append(event)

    queue = step

    def run_events(self) -> None:
        pass

    def tell(self, event: str, **fields: Any) -> None:
        self.lines.append(f"{event} {fields}")


class FakeSource:
    """Somebody who asks: answers fail while ``full``; over a session that may be stuck."""

    slice_bytes_max = 1000

    def __init__(self, session: Any = None) -> None:
        self.answers: list[Slice] = []
        self.full = False
        self.session = session

    def reply(self, answer: Slice) -> bool:
        if not self.full:
            self.answers.append(answer)
        return not self.full


def answer(source: FakeSource, snapshot_id: OffsetAndEpoch, position: int) -> fx.AnswerSlice:
    response = core.FetchSnapshotResponse(snapshot_id=snapshot_id, position=position)
    return fx.AnswerSlice(source, response, snapshot_id, position, 1 << 20)


# --- on the wire ----------------------------------------------------------------------------------


def test_recorded_frames_go_through_the_core(golden: Path) -> None:
    """Kafka's requests and answers become the core's, and the same again."""
    seen = []
    for path in sorted((golden / "frames" / "59-FetchSnapshot").glob("*.bin")):
        data = path.read_bytes()[4:]
        version = int(path.name[1])
        if "request" in path.name:
            _, message = frame.decode_request(data)
            partition = PARTITION._replace(topic=message.topics[0].name)
            request = translate.REQUEST_FROM_WIRE[ApiKey.FETCH_SNAPSHOT](message, partition)
            assert request.ours and request.partition_known and request.epoch > 0
            assert translate.request_to_wire(request, partition) == message
            seen.append(request.position)
            continue
        _, message = frame.decode_response(ApiKey.FETCH_SNAPSHOT, version, data)
        found = translate.response_from_wire(ApiKey.FETCH_SNAPSHOT, message, PARTITION)
        if message.error_code:
            assert found.error is ErrorCode(message.error_code)
            continue
        assert 0 < found.records_bytes <= found.size and found.snapshot_id.offset > 0
        again = translate.response_to_wire(
            ApiKey.FETCH_SNAPSHOT, Slice(found, slice_of(message)), PARTITION, version
        )
        assert again.topics == message.topics
    assert len(seen) > 5 and max(seen) > 0


def test_what_is_not_ours_is_said_to_the_core() -> None:
    kind = type(
        translate.request_to_wire(core.FetchSnapshotRequest(1, ReplicaKey(1), ID, 0), PARTITION)
    )
    none = translate.REQUEST_FROM_WIRE[ApiKey.FETCH_SNAPSHOT](kind(topics=[]), PARTITION)
    assert not none.partition_known
    message = translate.request_to_wire(
        core.FetchSnapshotRequest(1, ReplicaKey(1), ID, 0), PARTITION
    )
    message.topics[0].name = "another"
    other = translate.REQUEST_FROM_WIRE[ApiKey.FETCH_SNAPSHOT](message, PARTITION)
    assert other.partition_known and not other.ours
    refusal = core.FetchSnapshotResponse(partition_error=ErrorCode.SNAPSHOT_NOT_FOUND)
    wire = translate.response_to_wire(ApiKey.FETCH_SNAPSHOT, refusal, PARTITION, 1)
    back = translate.response_from_wire(ApiKey.FETCH_SNAPSHOT, wire, PARTITION)
    assert back.partition_error is ErrorCode.SNAPSHOT_NOT_FOUND and slice_of(wire) == b""


# --- slices out -----------------------------------------------------------------------------------


def test_a_snapshot_leaves_in_slices(tmp_path: Path) -> None:
    data = made(tmp_path)
    node = FakeNode(tmp_path)
    snapshots, source = Snapshots(node), FakeSource()
    while sum(len(each.data) for each in source.answers) < len(data):
        snapshots.answer(answer(source, ID, sum(len(each.data) for each in source.answers)))
    assert b"".join(each.data for each in source.answers) == data
    assert {each.response.size for each in source.answers} == {len(data)}
    assert node.events == [ev.SliceAnswered()] * len(source.answers)
    snapshots.answer(answer(source, ID, len(data)))
    assert source.answers[-1].response.partition_error is ErrorCode.POSITION_OUT_OF_RANGE
    snapshots.answer(answer(source, OffsetAndEpoch(9, 3), 0))
    assert source.answers[-1].response.partition_error is ErrorCode.SNAPSHOT_NOT_FOUND
    assert source.answers[-1].data == b"" and len(node.events) == len(source.answers)
    snapshots.close()


def test_one_that_cannot_be_read_is_not_there(tmp_path: Path) -> None:
    Path(snapshot_path(str(tmp_path), ID)).mkdir()  # which opens, and does not read
    node = FakeNode(tmp_path)
    snapshots, source = Snapshots(node), FakeSource()
    snapshots.answer(answer(source, ID, 0))
    assert source.answers[-1].response.partition_error is ErrorCode.SNAPSHOT_NOT_FOUND
    snapshots.close()


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


def test_the_next_slice_waits_until_this_one_has_left(tmp_path: Path) -> None:
    made(tmp_path)
    node = FakeNode(tmp_path)
    snapshots = Snapshots(node)
    sent = False
    session = SimpleNamespace(has_sent=lambda _request: sent)
    full, stuck = FakeSource(), FakeSource(session)
    full.full = True
    snapshots.answer(answer(full, ID, 0))
    snapshots.answer(answer(stuck, ID, 0))
    for _ in range(3):
        snapshots.tend()
    assert snapshots.is_waiting and node.events == [] and len(stuck.answers) == 1
    full.full, sent = False, True
    snapshots.tend()
    assert len(full.answers) == 1 and node.events == [ev.SliceAnswered()] * 2
    full.full = True
    snapshots.answer(answer(full, ID, 0))
    node.ms += 60_000  # a ring that never has room
    snapshots.tend()
    assert not snapshots.is_waiting and len(node.events) == 3


def test_a_deleted_snapshot_takes_no_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one that was sent last stayed open: a full disk got nothing of it back."""
    made(tmp_path)
    monkeypatch.setattr("kraftfast.log.snapshots.log_start.delete_before", lambda *_: 0)
    node: Any = FakeNode(tmp_path)
    node.log, node.show = SimpleNamespace(log_start_offset=11), lambda: None
    snapshots = Snapshots(node)
    snapshots.answer(answer(FakeSource(), ID, 0))
    snapshots.delete_before(fx.DeleteBefore(11))
    links = [os.readlink(each) for each in Path("/proc/self/fd").iterdir() if each.is_symlink()]
    assert not [each for each in links if str(tmp_path) in each]


# --- slices in ------------------------------------------------------------------------------------


def message_with(data: bytes) -> Any:
    fields = SimpleNamespace(unaligned_records=memoryview(data))
    return SimpleNamespace(topics=[SimpleNamespace(partitions=[fields])])


def test_what_was_fetched_is_checked_before_it_counts(tmp_path: Path) -> None:
    data = made(tmp_path)
    place = tmp_path / "there"
    place.mkdir()
    node = FakeNode(place)
    snapshots = Snapshots(node)

    def write(position: int, part: bytes, last: bool) -> ev.SliceWritten:
        snapshots.write(fx.WriteSlice(message_with(part), ID, position, last))
        found = node.events[-1]
        assert isinstance(found, ev.SliceWritten)
        return found

    assert write(0, data[:700], False) == ev.SliceWritten(ID, 700)
    assert write(700, data[700:], True) == ev.SliceWritten(ID, len(data))
    assert snapshots.download is not None and snapshots.download.whole
    assert snapshot_ids(Disk(), str(place)) == [], "it gets its name when it is installed"
    for position, part in ((600, data[600:]), (0, data[:-1]), (0, data[:-9] + bytes(9))):
        write(0, data[:700], False)
        refused = write(position, part, True)
        assert refused.rejected and snapshots.download is None
    assert list(place.iterdir()) == [] and len(node.lines) == 3
    write(0, data[:700], False)
    node.on_role[0](fx.RoleChanged("leader", 4, 1))
    assert snapshots.download is None and list(place.iterdir()) == []


def test_a_snapshot_without_state_is_none_for_a_machine(tmp_path: Path) -> None:
    data = made(tmp_path, trim=True)
    place = tmp_path / "there"
    place.mkdir()
    for refusal in ("", "holds no state, but a state machine runs"):
        download = DownloadFile(Disk(), str(place), ID, refusal)
        assert download.take(0, data, True) == (f"it {refusal}" if refusal else "")
        assert download.whole is not bool(refusal)
        download.drop()
    assert list(place.iterdir()) == []


def test_one_that_came_too_late_is_removed(tmp_path: Path) -> None:
    made(tmp_path)
    node = FakeNode(tmp_path)
    node.core = SimpleNamespace(snapshots=())  # type: ignore[attr-defined]
    Snapshots(node).created(ID)
    assert node.events == [ev.SnapshotCreated(ID)] and snapshot_ids(Disk(), str(tmp_path)) == []


# --- what is kept ---------------------------------------------------------------------------------


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


def retention(tmp_path: Path, makes: bool, **limits: Any) -> tuple[Any, Retention]:
    node: Any = FakeNode(tmp_path)
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
    return node, Retention(Snapshots(node), config, makes, LocalHost.wall_ms)


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
    node, _ = retention(tmp_path, False, retention_ms=60_000)
    config = SimpleNamespace(retention_bytes=-1, retention_ms=60_000)
    now = [time.time_ns() // 1_000_000]
    kept = Retention(Snapshots(node), config, False, lambda: now[0])  # type: ignore[arg-type]
    for each in node.log.segments:
        written(each.file.path, 0)
    now[0] += 8 * 24 * 3600 * 1000
    kept.tend(0)
    assert node.events == []


def test_the_state_of_a_machine_is_not_trimmed(tmp_path: Path) -> None:
    """It was gone on all replicas after one start without the machine, and with a limit."""
    made(tmp_path, OffsetAndEpoch(10, 0), 5)
    with pytest.raises(InvalidOption, match="ends at 10, holds the state of a state machine"):
        retention(tmp_path, False, retention_bytes=0)
    retention(tmp_path, False)  # without a limit nothing is deleted
    retention(tmp_path, True)


def test_a_state_that_a_leader_sent_is_not_trimmed(tmp_path: Path) -> None:
    node, kept = retention(tmp_path, False, retention_bytes=0)
    made(tmp_path, OffsetAndEpoch(10, 0), 5)
    node.core.snapshots = (OffsetAndEpoch(10, 0),)
    for now_ms in (0, 2000):
        kept.tend(now_ms)
    assert node.events == [] and [each.split()[0] for each in node.lines] == ["retention_waits"]


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
