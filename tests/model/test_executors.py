"""What the executor acts on in scenarios and in the search does what a replica's node does.

``Host`` has values, which are copied and compared, ``Node`` files and threads. Both get the same
effects; the core must be told the same, in the same order, and the logs be the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from copy import copy
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftfast.core import effects as fx
from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.core.roles import Role
from kraftfast.errors import ErrorCode
from kraftfast.link.stats import Stats
from kraftfast.log.disk import Disk
from kraftfast.log.log import Log
from kraftfast.log.reading.served import Served
from kraftfast.log.small_files import quorum_state
from kraftfast.log.snapshots.newest_snapshot import clip
from kraftfast.log.snapshots.snapshot_files import snapshot_path
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.node import Node
from kraftfast.node.node_config import NodeConfig, VoterConfig
from kraftfast.node.storage.local_layout import format_quorum
from kraftfast.node.storage.own_directory import state_path
from kraftfast.node.tcp.session import SessionRequest
from kraftfast.node.translation.fetched_bytes import FetchedBytes
from kraftfast.types import (
    ZERO_UUID,
    ElectionState,
    KRaftVersion,
    LeaderChange,
    OffsetAndEpoch,
    ReplicaKey,
)
from kraftfast.wire.fetch import PartitionFetched
from tests.core.disk import RECORD_BYTES, Message, splits_batch
from tests.core.world import World
from tests.log.kit import batch_of_size
from tests.model import test_stand_ins as stand_ins
from tests.model.test_stand_ins import voters_of
from tests.node.inside import SMALL
from tests.node.test_snapshot_parts import AtOnce

LOTS = 1 << 20
CONTROLS = KRaftVersion(1), voters_of(3)
Effects = tuple[fx.Effect, fx.Effect]
"""What the host gets, and what the node: the same, but for records and bytes in them."""


class Scripted:
    """Instead of a core: notes what it is told, and wants what the test says."""

    log_start_offset = -1  # the host compares no history then

    def __init__(self, both: Both) -> None:
        self._both = both
        self.told: list[ev.Event] = []
        self.wanted: list[list[fx.Effect]] = []  # by the next steps

    @property
    def end_offset(self) -> int:
        return len(self._both.records)

    def step(self, event: ev.Event, _now_ms: int = 0) -> list[fx.Effect]:
        self.told.append(event)
        return self.wanted.pop(0) if self.wanted else []

    def check_invariants(self) -> None:
        """There is none."""


class Carrier(Node):
    """A node without its core."""

    script: Scripted

    def _decide(self, event: ev.Event) -> list[fx.Effect]:
        return self.script.step(event)


class Queued:
    """Producers, to a node: what they want appended."""

    batches = 0

    def goes_first(self) -> bool:
        return True

    def drain(self, log: Log, epoch: int, _bytes_max: int) -> None:
        for _ in range(self.batches):
            data = batch_of_size(RECORD_BYTES, base_offset=log.end_offset, epoch=epoch)
            assert log.append(data, epoch)
        self.batches = 0

    def refuse_appends(self, _error: int, _leader_id: int) -> None:
        self.batches = 0

    def left_leadership(self, _leader_id: int) -> None:
        """Their answers are not looked at here."""


class Fetched(FetchedBytes):
    """Records on their way into a node's log, which may have no room for them."""

    def __init__(self, both: Both, data: bytes) -> None:
        super().__init__(PartitionFetched(records=data))
        self._host = both.host

    def copy_records(self, log: Log, epoch: int, stats: Stats) -> tuple[bool, bool]:
        return (False, False) if self._host.no_room else super().copy_records(log, epoch, stats)


class Asker:
    """Who asked, for both: what it is answered."""

    peer_id, correlation, session, slice_bytes_max = 2, 7, None, LOTS

    def __init__(self) -> None:
        self.answers: list[Any] = []

    def reply(self, answer: Any, records: bytes | None = None) -> bool:
        self.answers.append(answer)
        self.records = len(records or b"") // RECORD_BYTES
        return True

    def answer_fetch(self, *words: Any) -> None:
        SessionRequest.answer_fetch(self, *words)  # type: ignore[arg-type]


class Kept(World):
    """What leaves the host is kept; its snapshots have the size of those of the node."""

    def __init__(self) -> None:
        super().__init__(1)
        self.out: list[Message] = []
        self.sizes: dict[OffsetAndEpoch, int] = {}

    def send(self, message: Message) -> None:
        self.out.append(message)

    def snapshot_bytes(self, snapshot_id: OffsetAndEpoch) -> int:
        return self.sizes[snapshot_id]


class Both(stand_ins.Both):
    """A host and a node; what the one does, the other does."""

    def __init__(self, path: Path, chance: Random) -> None:
        self.chance, self.epoch, self.batches = chance, 1, 0
        self.world, self.queued = Kept(), Queued()
        self.host = self.world.hosts[1]
        self.mine, self.theirs = Scripted(self), Scripted(self)
        self.host.replica = self.mine  # type: ignore[assignment]
        format_quorum(str(path), 1)
        voters = [VoterConfig(1, "127.0.0.1", 9)]
        self.node: Any = Carrier(
            NodeConfig(node_id=1, directory=str(path / "1"), voters=voters, idle="block", **SMALL)
        )
        self.node.script, self.log = self.theirs, self.node.log
        self.node.attach(None, self.queued)
        self.node.snapshots.background = AtOnce()

    # --- one step -----------------------------------------------------------------------------

    def carry_out(self, *steps: list[Effects]) -> None:
        """Let both cores want this, one step after the other."""
        self.mine.wanted = [[mine for mine, _ in step] for step in steps]
        self.theirs.wanted = [[theirs for _, theirs in step] for step in steps]
        self.host.step(ev.Tick())
        self.node.step(ev.Tick())
        self.node.flush_inline()
        assert not self.mine.wanted and not self.theirs.wanted
        self.compare()

    def compare(self) -> None:
        """What the cores were told, and what stands in the logs."""
        mine, theirs = ([told(each) for each in script.told] for script in (self.mine, self.theirs))
        assert mine == theirs
        self.mine.told, self.theirs.told = [], []
        log, disk, path = self.log, self.host.disk, state_path(self.node.directory)
        assert stored(path) == disk.quorum_state
        assert log.log_start_offset == disk.start
        assert log.end_offset == len(disk.records)
        assert log.flushed_end_offset == disk.flushed
        assert log.truncations == disk.truncations
        assert self.host.queued == self.queued.batches
        epochs = clip(log.epochs, disk.start, log.end_offset)  # as a start hands them to a core
        assert [tuple(each) for each in epochs] == list(disk.trail().entries)
        self.epoch = max(self.epoch, log.last_epoch)

    # --- effects ------------------------------------------------------------------------------

    def persist(self) -> Effects:
        """Make an effect that persists; version 0 of the file has no directory id of the vote."""
        version = self.chance.choice((0, 1))
        voted = self.chance.choice((None, ReplicaKey(2, b"v" * 16 if version else ZERO_UUID)))
        leader_id, marks = self.chance.randrange(-1, 3), (self.chance.random() < 0.5,) * 2
        return (fx.PersistQuorumState(self.epoch, leader_id, voted, version, *marks),) * 2

    def control(self) -> Effects:
        """The first records of an epoch."""
        self.epoch += 1
        records: Any = (LeaderChange.of(1, (1,), (1,)),)
        more: Any = self.chance.choice(((), CONTROLS))
        return (fx.AppendControl(self.epoch, records + more),) * 2

    def drain(self, count: int = 2) -> Effects:
        """What producers have queued."""
        self.host.queued = self.queued.batches = count
        return (fx.DrainAppends(self.epoch, LOTS),) * 2

    def refuse(self) -> Effects:
        self.host.queued = self.queued.batches = 1
        return (fx.RefuseAppends(ErrorCode.NOT_LEADER_OR_FOLLOWER, 2),) * 2

    def copied(self) -> Effects:
        """Batches that came from a leader: not all fit, or check."""
        answer, data, epoch_max = self.fetched()
        if data and self.chance.random() < 0.2:
            self.host.reject_next = True
            data = data[:70] + bytes([data[70] ^ 1]) + data[71:]
        at = len(self.records)
        theirs: Any = Fetched(self, data)
        return fx.WriteFetched(answer, epoch_max, at), fx.WriteFetched(theirs, epoch_max, at)

    def cut(self) -> Effects:
        ends = [end for end in range(len(self.records)) if not splits_batch(self.records, end)]
        return (fx.Truncate(self.chance.choice(ends[-4:]), self.host.disk.truncations + 1),) * 2

    def flush(self, inline: bool = True) -> Effects:
        return (fx.Flush(len(self.records), inline),) * 2

    def role(self) -> Effects:
        return (fx.RoleChanged(Role.FOLLOWER, self.epoch, 2),) * 2

    # --- snapshots ----------------------------------------------------------------------------

    def snapshot(self, path: str, end_offset: int, epoch: int) -> tuple[OffsetAndEpoch, bytes]:
        """Write one into this folder; its bytes."""
        snapshot_id = OffsetAndEpoch(end_offset, epoch)
        with SnapshotWriter(
            Disk(), path, snapshot_id, last_contained_log_timestamp=0, controls=CONTROLS
        ) as writer:
            writer.extend(b"state %d" % i for i in range(50))
            writer.freeze()
        data = Path(snapshot_path(path, snapshot_id)).read_bytes()
        self.world.sizes[snapshot_id] = len(data)
        return snapshot_id, data

    def slice(self, snapshot_id: OffsetAndEpoch, data: bytes, start: int, end: int) -> Effects:
        """Bytes of a snapshot that came with an answer."""
        piece, last = data[start:end], end == len(data)
        body = msg.FetchSnapshotResponse(records_bytes=len(piece))
        mine = Message(2, 1, 7, body, False, snapshot=CONTROLS)
        fields = SimpleNamespace(unaligned_records=piece)
        theirs: Any = SimpleNamespace(topics=[SimpleNamespace(partitions=[fields])])
        return (
            fx.WriteSlice(mine, snapshot_id, start, last),
            fx.WriteSlice(theirs, snapshot_id, start, last),
        )


def stored(path: str) -> ElectionState | None:
    """What a file ``quorum-state`` says."""
    return quorum_state.decode(Disk().read_file(path), path) if Path(path).exists() else None


def told(event: ev.Event) -> ev.Event:
    """What the core is told, but for how many bytes it was: records have another size here."""
    if isinstance(event, ev.Appended | ev.FetchedWritten):
        event.bytes = min(event.bytes, 1)
    return event


@pytest.fixture(params=[0])
def both(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Both]:
    made = Both(tmp_path, Random(request.param))
    yield made
    made.node.close()


@pytest.mark.parametrize("both", range(8), indirect=True)
def test_the_log_and_quorum_state(both: Both) -> None:
    for _ in range(60):
        kinds = [both.persist, both.control, both.drain, both.drain, both.refuse, both.role]
        kinds += [both.copied] * 4 + [both.flush] * 2 + [both.cut] * bool(both.records)
        both.carry_out([both.chance.choice(kinds)()])
    assert both.batches > 8


def test_what_effects_lead_to_is_told_in_order(both: Both) -> None:
    """All effects of a step, then their events; what those lead to comes behind them."""
    control, nothing, drain = both.control(), both.drain(0), both.drain(3)
    both.carry_out([control, drain], [nothing])
    assert len(both.records) > 3


def test_a_flush_is_of_what_stood_when_it_began(both: Both) -> None:
    both.carry_out([both.drain(3)], [both.flush(inline=False)])
    both.carry_out([both.drain(2)])
    assert both.host.disk.flushed == 0
    both.host.finish_flush()
    both.node.wait_for_flush()
    both.node.run_events()
    both.compare()
    assert both.host.disk.flushed == 3 < len(both.records)


@pytest.mark.parametrize("role_ends", [False, True])
def test_a_copy_waits_for_room(both: Both, role_ends: bool) -> None:
    """And goes with its role."""
    both.host.no_room = True
    both.carry_out([both.copied()])
    assert both.node.stalled is not None and both.host.stalled is not None
    if role_ends:
        both.carry_out([both.role()])
        assert both.node.stalled is None
    both.host.room_again()
    if not role_ends:
        both.node.go_on_with_waiting()
    both.compare()


AFTER = [(fx.Persisted(1), False), (fx.Persisted(2), True), (fx.FlushedTo(2), False),
         (fx.FlushedTo(3), True), (None, False)]  # fmt: skip


@pytest.mark.parametrize(("after", "refused"), AFTER, ids=str)
def test_what_an_answer_relies_on_is_asserted(both: Both, after: Any, refused: bool) -> None:
    """D3, D5."""
    both.carry_out([both.persist(), both.drain(2)], [both.flush()])
    both.carry_out([both.drain(1)])
    asker = Asker()
    reply = fx.Reply(asker, msg.VoteResponse(), after)  # type: ignore[arg-type]
    for executor, script in ((both.host, both.mine), (both.node, both.theirs)):
        script.wanted = [[reply]]
        with pytest.raises(AssertionError) if refused else nullcontext():
            executor.step(ev.Tick())
    assert len(asker.answers) == len(both.world.out) == (not refused)


@pytest.mark.parametrize("offset", [-1, 0, 3, 5])
@pytest.mark.parametrize("bytes_max", [1, 250, LOTS])
@pytest.mark.parametrize("end", [-1, 6])
def test_an_answer_has_the_same_records(both: Both, offset: int, bytes_max: int, end: int) -> None:
    """One at least, as many as fit, and none beyond where it must not read (I20)."""
    both.carry_out([both.drain(8)])
    asker: Any = Asker()
    asker.session = SimpleNamespace(served=Served(), door=SimpleNamespace(node=both.node))
    both.carry_out([(fx.AnswerFetch(asker, msg.FetchResponse(), offset, bytes_max, end),) * 2])
    (sent,) = both.world.out
    assert len(sent.records) == asker.records == (0 if offset < 0 else asker.records or -1)


def test_a_snapshot_comes_in_slices_and_is_installed(both: Both, tmp_path: Path) -> None:
    both.carry_out([both.drain(3)], [both.flush()])
    snapshot_id, data = both.snapshot(str(tmp_path), 5, 1)
    both.carry_out([both.slice(snapshot_id, data, 0, 100)])
    both.carry_out([both.slice(snapshot_id, data, 100, len(data))])
    both.carry_out([(fx.InstallSnapshot(snapshot_id, 1),) * 2])
    both.carry_out([both.drain(2)], [both.flush()])
    assert both.host.disk.start == 5 and len(both.records) == 7


@pytest.mark.parametrize("flushed", [False, True])
@pytest.mark.parametrize("end", [1, 3, 5])
def test_a_log_begins_at_a_snapshot(both: Both, end: int, flushed: bool) -> None:
    """With durability=memory, before it is flushed, too."""
    both.carry_out([both.drain(4)], [both.control()], [both.flush()] * flushed)
    snapshot_id, _ = both.snapshot(both.node.directory.log_path, end, both.epoch)
    both.host.disk.snapshots[snapshot_id] = CONTROLS
    both.carry_out([(fx.DeleteBefore(end),) * 2])
    assert both.host.disk.start == end


def test_a_slice_is_sent(both: Both) -> None:
    both.carry_out([both.drain(3)], [both.flush()])
    snapshot_id, data = both.snapshot(both.node.directory.log_path, 2, 1)
    both.host.disk.snapshots[snapshot_id] = CONTROLS
    asker: Any = Asker()
    for position in (0, len(data) - 5, len(data), len(data) + 5):
        response = msg.FetchSnapshotResponse(snapshot_id=snapshot_id, position=position)
        mine = fx.AnswerSlice(asker, response, snapshot_id, position, 10)
        theirs = fx.AnswerSlice(asker, copy(response), snapshot_id, position, 10)
        both.carry_out([(mine, theirs)])
        sent, answer = both.world.out.pop(), asker.answers.pop()
        assert max(sent.body.records_bytes, 0) == len(answer.data)
        sent.body.records_bytes = 0
        assert sent.body == answer.response
