"""When a state machine's snapshot is made, and by which replica first."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import events as ev
from kraftfast.errors import (
    Closed,
    CorruptLog,
    DiskFull,
    FlushFailed,
    InvalidOption,
    OffsetOutOfRange,
    StorageError,
)
from kraftfast.log.disk import Disk
from kraftfast.log.snapshots.snapshot_files import snapshot_ids
from kraftfast.log.snapshots.snapshot_reader import open_snapshot
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.local_host import LocalHost
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.node.snapshots.state_machine_snapshots import Making
from kraftfast.node.threads.applier import Applier
from kraftfast.node.threads.held import Calls
from kraftfast.types import OffsetAndEpoch
from tests.node.test_snapshot_parts import ID, FakeNode, made
from tests.node.test_state_machine import Whole


def making_node(tmp_path: Path, allowed: list[bool], id: int = 1) -> Any:
    node: Any = FakeNode(tmp_path)
    node.config = SimpleNamespace(
        node_id=id, snapshot_bytes=1000, snapshot_interval_ms=60_000, fetch_timeout_ms=2000
    )
    log = SimpleNamespace(producers=SimpleNamespace(freeze=lambda *_: b""), segments=[])
    node.log = log
    history = SimpleNamespace(version_at=lambda _end: 0)
    node.core = SimpleNamespace(
        may_create_snapshot=lambda _id: allowed.pop(0), snapshots=(ID, OffsetAndEpoch(20, 3)),
        history=history, role="follower", voters=SimpleNamespace(ids=(1, 2, 3)),
    )  # fmt: skip
    node.snapshots = Snapshots(node)
    return node


def test_a_snapshot_is_made_when_it_is_due(tmp_path: Path) -> None:
    allowed = [False, True, True]
    node = making_node(tmp_path, allowed)
    making = Making(node)
    applier = SimpleNamespace(machine=Whole(), ending=False, calls=Calls())

    def apply(end: int, size: int) -> None:
        batch = SimpleNamespace(size=size, last_offset=end - 1, leader_epoch=3, max_timestamp=7)
        making.applied(applier, batch)

    apply(9, 999)
    assert allowed == [False, True, True], "not due"
    apply(10, 1)
    assert node.events == [] and making.not_before_s > node.host.threads.s, "not now: later"
    making.not_before_s = 0.0
    making.look(applier)
    assert node.events == [ev.SnapshotCreated(ID)] and snapshot_ids(Disk(), str(tmp_path)) == [ID]
    node.host.threads.s += 3600
    making.look(applier)
    assert len(node.events) == 1, "nothing new was applied"
    apply(20, 1)
    node.host.threads.s += 3600
    making.look(applier)
    assert node.events[-1] == ev.SnapshotCreated(OffsetAndEpoch(20, 3)), "by time"


def test_snapshots_go_by_turns(tmp_path: Path) -> None:
    """Each voter makes its first one later than those before it, and the next ones as late."""
    bytes_due = []
    for id in (1, 2, 3, 7):
        making = Making(making_node(tmp_path, [], id))
        bytes_due.append(making.bytes_max - making.bytes)
    assert bytes_due == [1000, 1333, 1666, 1000], "7 is an observer"
    made(tmp_path)
    assert Making(making_node(tmp_path, [], 3)).bytes == 0, "its turn is that of its snapshot"


def test_a_leader_hands_over_before_a_snapshot_that_takes_long(tmp_path: Path) -> None:
    node = making_node(tmp_path, [True])
    making = Making(node)
    applier = SimpleNamespace(machine=Whole(), ending=False, calls=Calls())
    node.core.role, making.took_ns = "leader", 500_000_000
    making.last, making.bytes = (10, 3, 7), 1000
    for attempt in (1, 2, 3):
        making.not_before_s = 0.0
        making.look(applier)
        assert [type(each) for each in node.events] == [ev.TransferRequested] * attempt
    making.not_before_s = 0.0
    making.look(applier)  # nobody takes over
    assert node.events[-1] == ev.SnapshotCreated(ID) and making.took_ns < 500_000_000
    node.events[0].source.reply(None)

    node = making_node(tmp_path, [True])
    making = Making(node)
    making.took_ns, making.last, making.bytes = 500_000_000, (20, 3, 7), 1000
    making.look(applier)
    assert node.events == [ev.SnapshotCreated(OffsetAndEpoch(20, 3))], "a follower makes it at once"


def test_a_machine_that_passes_over_a_full_disk_makes_no_snapshot(tmp_path: Path) -> None:
    """Found by a reviewer: the snapshot was damaged, and the log was deleted behind it."""

    class PassesOver(Whole):
        def snapshot(self, writer: Any) -> None:
            def fills(_data: Any) -> None:
                del writer._file.write
                raise DiskFull("no space left")

            writer._file.write = fills
            with suppress(StorageError):
                writer.append(bytes(300_000))

    node = making_node(tmp_path, [True])
    making = Making(node)
    applier = SimpleNamespace(machine=PassesOver(), ending=False, calls=Calls())
    batch = SimpleNamespace(size=2000, last_offset=9, leader_epoch=3, max_timestamp=7)
    asked: list[object] = []
    node.log.nursery = SimpleNamespace(make_way_for=asked.append)
    making.applied(applier, batch)
    assert node.events == [] and not snapshot_ids(Disk(), str(tmp_path))
    assert making.not_before_s > node.host.threads.s, "again later"
    assert isinstance(asked[0], DiskFull), "and there may be room for it then"


@pytest.mark.parametrize("read", [0, 1, 2])
def test_a_machine_may_close_its_reader(tmp_path: Path, read: int) -> None:
    """Found by a reviewer: the replica read what was left of it, and ended, at each start."""

    class Closes(Whole):
        def restore(self, reader: Any) -> None:
            with reader, reader.lent():
                self.taken = [record.value for record, _ in zip(reader.records(), range(read))]

    with SnapshotWriter(Disk(), str(tmp_path), ID, last_contained_log_timestamp=0) as writer:
        writer.extend([b"a", b"b"])
        writer.freeze()
    making, machine = Making(making_node(tmp_path, [])), Closes()
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        making.restore(SimpleNamespace(machine=machine, calls=Calls()), reader)  # type: ignore
        assert machine.taken == [b"a", b"b"][:read] and reader.position == reader.size
    with pytest.raises(Closed):
        list(reader.records())


def test_a_writer_that_is_kept_takes_nothing_behind_the_footer(tmp_path: Path) -> None:
    """Found by a reviewer: a thread of a state machine appended while the file was flushed."""
    refused = []

    class Keeps(Whole):
        def snapshot(self, writer: Any) -> None:
            sync = writer._file.sync

            def late() -> None:
                with pytest.raises(Closed):
                    writer.extend([bytes(200_000)] * 3)
                refused.append(writer)
                sync()

            writer._file.sync = late
            writer.append(b"state")

    node = making_node(tmp_path, [True])
    making = Making(node)
    applier = SimpleNamespace(machine=Keeps(), ending=False, calls=Calls())
    batch = SimpleNamespace(size=2000, last_offset=9, leader_epoch=3, max_timestamp=7)
    making.applied(applier, batch)
    assert refused and node.events == [ev.SnapshotCreated(ID)]
    with open_snapshot(Disk(), str(tmp_path), ID) as reader:
        assert reader.check() == 1


def test_a_machine_that_freezes_its_snapshot_is_refused(tmp_path: Path) -> None:
    """I24: the footer would lack the producers; nothing has a name then."""

    class Freezes(Whole):
        def snapshot(self, writer: Any) -> None:
            writer.freeze()

    node = making_node(tmp_path, [True])
    making = Making(node)
    applier = SimpleNamespace(machine=Freezes(), ending=False, calls=Calls())
    batch = SimpleNamespace(size=2000, last_offset=9, leader_epoch=3, max_timestamp=7)
    with pytest.raises(InvalidOption, match="StateMachine.snapshot"):
        making.applied(applier, batch)
    assert not list(tmp_path.glob("*.checkpoint*"))


OF_ANOTHER_LOG = [
    FlushFailed("of another log"),
    DiskFull("of another log"),
    CorruptLog("of another log", "there", 0, 0),
    OffsetOutOfRange("of another log", 0),
]


@pytest.mark.parametrize("raised", OF_ANOTHER_LOG)
def test_what_a_machine_raises_as_it_writes_is_not_of_this_disk(
    tmp_path: Path, raised: Exception
) -> None:
    """D9: its replica stayed down, or no snapshot was ever made, for a disk that is sound."""

    class Raises(Whole):
        def snapshot(self, writer: Any) -> None:
            writer.append(b"a part")
            raise raised

    applier = SimpleNamespace(machine=Raises(), ending=False, calls=Calls())
    batch = SimpleNamespace(size=2000, last_offset=9, leader_epoch=3, max_timestamp=7)
    with pytest.raises(RuntimeError, match="the state machine raised .*of another log"):
        Making(making_node(tmp_path, [True])).applied(applier, batch)
    assert not list(tmp_path.glob("*.checkpoint*"))


def test_what_a_writer_raises_in_a_machine_is_of_this_disk(tmp_path: Path) -> None:
    """D9: a machine that lets it pass, as most do, hides no flush that failed."""

    class Writes(Whole):
        def snapshot(self, writer: Any) -> None:
            def fails(_data: Any) -> None:
                raise FlushFailed("of this disk")

            writer._file.write = fails
            writer.append(bytes(300_000))

    applier = SimpleNamespace(machine=Writes(), ending=False, calls=Calls())
    batch = SimpleNamespace(size=2000, last_offset=9, leader_epoch=3, max_timestamp=7)
    with pytest.raises(FlushFailed, match="of this disk"):
        Making(making_node(tmp_path, [True])).applied(applier, batch)


@pytest.mark.parametrize("raised", OF_ANOTHER_LOG)
def test_what_a_machine_raises_as_it_reads_is_not_of_this_disk(
    tmp_path: Path, raised: Exception
) -> None:
    """D9: the replica stayed down for a disk that is sound."""

    class Raises(Whole):
        def restore(self, reader: Any) -> None:
            raise raised

    with pytest.raises(RuntimeError, match="the state machine raised .*of another log"):
        restore(tmp_path, Raises())


@pytest.mark.parametrize("raised", [CorruptLog("is damaged", "there", 0, 0), StorageError("EIO")])
def test_what_a_reader_raises_in_a_machine_is_of_this_disk(
    tmp_path: Path, raised: StorageError
) -> None:
    """D9: damage of a snapshot, and a disk that cannot be read."""

    class Reads(Whole):
        def restore(self, reader: Any) -> None:
            def read_at(_position: int, _size: int) -> bytes:
                if isinstance(raised, CorruptLog):
                    return b""
                raise raised

            reader._file = SimpleNamespace(read_at=read_at, close=lambda: None)
            reader._held, reader._at, reader._file_position = b"", 0, 0
            list(reader.records())

    with pytest.raises(type(raised), match="it is shorter than it was|EIO"):
        restore(tmp_path, Reads())


def test_a_file_that_a_machine_misses_is_not_the_snapshot(tmp_path: Path) -> None:
    """It was taken for a snapshot that a newer one replaced: restored again, a thousand times."""
    calls: list[int] = []

    class Misses(Whole):
        def restore(self, reader: Any) -> None:
            calls.append(1)
            raise FileNotFoundError("of its own")

    made(tmp_path)
    making = Making(making_node(tmp_path, []))
    applier = Applier(Misses(), LocalHost(), str(tmp_path), pytest.fail, making)
    with pytest.raises(FileNotFoundError, match="of its own"):
        applier._restore()
    assert len(calls) == 1


def restore(path: Path, machine: Whole) -> None:
    """Have a machine take a snapshot of one record over."""
    with SnapshotWriter(Disk(), str(path), ID, last_contained_log_timestamp=0) as writer:
        writer.append(b"a")
        writer.freeze()
    applier: Any = SimpleNamespace(machine=machine, calls=Calls())
    with open_snapshot(Disk(), str(path), ID) as reader:
        Making(making_node(path, [])).restore(applier, reader)
