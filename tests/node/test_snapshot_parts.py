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
from kraftfast.errors import ErrorCode
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids, snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.snapshots.replica_snapshots import DownloadFile, Snapshots
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
