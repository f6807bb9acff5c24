"""A leader that finds damage in its log sends none of it, and lets another voter lead (D10, L5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraftfast.core.effects import AnswerFetch
from kraftfast.core.messages import FetchResponse
from kraftfast.errors import CorruptLog, DiskFull, ErrorCode, OutOfResources
from kraftfast.log.reading.served import Served
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.node.fetch_records import records_for
from kraftfast.node.giving_way import PAUSE_MS_MIN
from kraftfast.node.snapshots.replica_snapshots import Snapshots
from kraftfast.node.tcp.partition_leader import MAX_TIMESTAMP, PartitionLeader
from kraftfast.sim.clients.kafka_consumer import found
from kraftfast.sim.faults.rotting import files_in
from kraftfast.testing import simulated
from kraftfast.testing.simulation import SimulatedQuorum
from tests.damaging import flip
from tests.log.kit import TIMESTAMP, Home, append, fill
from tests.log.kit import batch as batch_of
from tests.node.test_disk_space import FullNode, hand_over
from tests.node.test_snapshot_parts import ID, FakeNode, FakeSource, answer, made
from tests.sim.test_simulated import Kept


class DamagedNode(FullNode):
    """A leader of three with room and a damaged batch at offset 3; ``told``: its events."""

    def __init__(self, log: Any) -> None:
        super().__init__(2, 3)
        self.log = log
        self.core.high_watermark = self.core.uncuttable_offset = log.end_offset - 1
        for voter in self.voters.values():
            voter.log_end_offset = log.end_offset - 1  # and the next batch is on its way
        self.told: list[str] = []

    def tell(self, event: str, **_fields: object) -> None:
        self.told.append(event)

    def fetch(self, served: Served, offset: int) -> AnswerFetch:
        """Have it answer a Fetch; return the answer. One that is refused is empty."""
        effect = AnswerFetch(None, FetchResponse(), offset)
        found = records_for(self, served, effect, 1)  # type: ignore[arg-type]
        assert (found is None) == (effect.response.partition_error != ErrorCode.NONE)
        return effect


@pytest.fixture
def node(tmp_path: Path) -> Iterator[DamagedNode]:
    home = Home(tmp_path / "1")
    log = home.open()
    fill(log, 6)
    flip(log.active.file.path, log.active.place_of(3)[0] + 100)
    yield DamagedNode(log)
    home.kill()


def test_damage_is_sent_once_at_most(node: DamagedNode) -> None:
    served = Served()
    errors = [node.fetch(served, 3).response.partition_error for _ in range(3)]
    assert errors == [ErrorCode.NONE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.CORRUPT_MESSAGE]
    assert node.told == ["log_damaged", "log_damaged"]
    assert node.fetch(served, 4).response.partition_error == ErrorCode.NONE


def test_another_voter_leads_by_turns_and_not_too_often(node: DamagedNode) -> None:
    served = Served()
    assert node.until(1000) == []
    for _ in range(2):
        node.fetch(served, 3)
    assert node.until(1200) == [(1100, 2)], "once for what was found once"
    node.fetch(served, 3)
    assert node.until(1000 + PAUSE_MS_MIN) == [(1100, 2)]
    node.until(1200 + PAUSE_MS_MIN)
    node.fetch(served, 3)
    assert [id for _, id in node.until(5000)] == [2, 3]


def test_one_that_is_behind_is_not_to_lead(node: DamagedNode) -> None:
    """It is the one that needs the batch, perhaps, and never gets it by leading."""
    node.voters[2].log_end_offset = 3
    served = Served()
    for _ in range(2):
        node.fetch(served, 3)
    assert node.until(1000) == [(100, 3)]


def test_a_leader_that_has_committed_nothing_yet_lets_none_lead_that_is_behind(
    node: DamagedNode,
) -> None:
    """It handed over to any voter: appends waited, and that one could not be elected."""
    node.core.high_watermark = -1
    node.voters[2].log_end_offset = 3
    served = Served()
    for _ in range(2):
        node.fetch(served, 3)
    assert node.until(1000) == [(100, 3)]


def test_only_a_leader_lets_another_lead(node: DamagedNode) -> None:
    node.core.role = "follower"
    damage: Any = node.damage
    damage.refuse(node, AnswerFetch(None, FetchResponse(), 3), CorruptLog("it is"))
    assert node.until(1000) == []


def test_a_full_disk_keeps_no_damaged_leader_in_its_place(node: DamagedNode) -> None:
    """Who needs what is damaged waited for space, though another one had all (L5)."""
    node.log.nursery.error = DiskFull("no space left")
    assert node.log.error is not None
    node.appends_held = False
    served = Served()
    for _ in range(2):
        node.fetch(served, 3)
    assert node.until(1000) == [(100, 2)]


@pytest.mark.parametrize("at", [3, 7, 12, 16, 100], ids=str)
def test_what_a_consumer_cannot_get_is_damage(node: DamagedNode, at: int) -> None:
    """Each answer to it was empty, as at the end of the log, and no event told of the damage."""
    leader = PartitionLeader(node)  # type: ignore[arg-type]
    log = node.log
    whole, sound = log.active.position, log.active.place_of(3)[0]
    flip(log.active.file.path, sound + 100)  # whole again
    flip(log.active.file.path, sound + at)
    assert len(leader.read(0, whole)) == sound, "what is sound before it"
    assert node.told == []
    with pytest.raises(CorruptLog):
        leader.read(3, 1)
    assert node.told == ["log_damaged"]
    assert node.until(1000) == [(100, 2)]


def test_a_consumer_gets_no_record_for_another(node: DamagedNode) -> None:
    """No CRC covers base offsets: the record of offset 2 was handed out for the one of 3."""
    leader = PartitionLeader(node)  # type: ignore[arg-type]
    node.core.uncuttable_offset = node.log.end_offset
    log = node.log
    flip(log.active.file.path, log.active.place_of(3)[0] + 100)  # whole again
    places = [log.active.place_of(offset)[0] for offset in range(log.end_offset)]
    flip(log.active.file.path, places[2] + 7)
    for offset, place in enumerate(places):
        if offset == 2:
            with pytest.raises(CorruptLog):
                leader.read(offset, 1)
            continue
        end = places[offset + 1] if offset + 1 < len(places) else log.active.position
        assert leader.read(offset, 1) == bytes(log.active.file.view(place, end))


@pytest.mark.parametrize("at", [7, 16, 17], ids=["offset", "magic", "CRC"])
def test_a_search_by_time_passes_no_damage_over(node: DamagedNode, at: int) -> None:
    """It answered with a later record, or with the offset that the damaged header had."""
    leader = PartitionLeader(node)  # type: ignore[arg-type]
    node.core.uncuttable_offset = node.log.end_offset
    log = node.log
    flip(log.active.file.path, log.active.place_of(3)[0] + 100)  # whole again
    node.core.epoch_start_offset = 0
    sound = found(leader.offset_at(TIMESTAMP, 7, True))
    assert sound == (ErrorCode.NONE, (0, TIMESTAMP, 1))
    flip(log.active.file.path, at)
    for timestamp in (TIMESTAMP, MAX_TIMESTAMP):
        assert found(leader.offset_at(timestamp, 7, True))[0] == ErrorCode.CORRUPT_MESSAGE
    assert node.told == ["log_damaged"] * 2
    flip(log.active.file.path, at)  # whole again
    append(log, batch_of([b"later"], timestamp=TIMESTAMP + 9), 1)
    node.core.uncuttable_offset = log.end_offset
    assert found(leader.offset_at(TIMESTAMP + 9, 7, True))[1][0] == 6
    if at == 16:  # on the way from where the index leads
        flip(log.active.file.path, log.active.place_of(5)[0] + at)
        assert found(leader.offset_at(TIMESTAMP + 9, 7, True))[0] == ErrorCode.CORRUPT_MESSAGE


def test_a_snapshot_is_checked_once_for_all_that_wait_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: a large one takes longer than a replica waits for a slice, and each asked for another
    check, behind which the next ones waited.
    """
    made(tmp_path)
    node: Any = FakeNode(tmp_path)
    waiting: list[Any] = []
    node.background.ask = lambda job, done: waiting.append((job, done))
    snapshots, source = Snapshots(node), FakeSource()
    checked: list[str] = []
    whole = SnapshotReader.check

    def check(self: SnapshotReader) -> None:
        checked.append(self.path)
        whole(self)

    monkeypatch.setattr(SnapshotReader, "check", check)
    for _ in range(4):
        snapshots.answer(answer(source, ID, 0))
    for job, done in waiting:
        done(job())
    assert len(source.answers) == 4 and all(each.data for each in source.answers)
    assert len(checked) == 1
    snapshots._sound_until_s = 0.0  # a minute later
    waiting.clear()
    snapshots.answer(answer(source, ID, 0))
    waiting[0][1](waiting[0][0]())
    assert len(checked) == 2, "L5: one that rots later was sent for ever"
    snapshots.close()


# --- a quorum -------------------------------------------------------------------------------------


def damage(quorum: SimulatedQuorum[Any], id: int, offset: int, at: int, bits: int) -> None:
    """Change bits of a byte of the batch that holds an offset, in the log of a running replica."""
    segment = quorum._process(id).log.segment_of(offset)
    file = quorum._machine(id).disk.paged_file(segment.file.path)
    for bit in range(8):
        if bits >> bit & 1:
            file.flip(segment.place_of(offset)[0] + at, bit)


def test_damage_that_is_not_committed_wedges_no_quorum() -> None:
    """L1, L6: no voter ever had all of the leader's log, so it led on and committed nothing."""
    quorum: SimulatedQuorum[Any] = simulated(seed=1)
    quorum.append_wait(b"1")
    leader = quorum.wait_leader()
    others = set(quorum.ids) - {leader}
    for id in others:
        quorum.kill(id, restart=False)
    append = quorum.append(b"2" * 100)
    quorum.advance(50)
    log = quorum._process(leader).log
    assert log.end_offset == quorum._process(leader).core.high_watermark + 1
    damage(quorum, leader, log.end_offset - 1, 70, 4)
    for id in others:
        quorum.start(id)
    quorum.wait(lambda: append.is_acknowledged)
    assert quorum.verify() >= 2


def test_a_damaged_epoch_goes_to_no_follower() -> None:
    """I2: no CRC covers it. A follower with that epoch in its log cannot follow any leader."""
    quorum: SimulatedQuorum[Any] = simulated(seed=1)
    hand_over(quorum, 1)
    quorum.append_wait(b"1")
    quorum.kill(3, restart=False)
    hand_over(quorum, 2)
    for _ in range(2):
        quorum.append_wait(b"2")
    hand_over(quorum, 1)
    quorum.append_wait(b"3")
    (_, _), (epoch, start_offset), (last_epoch, _) = quorum._process(1).log.epochs
    damage(quorum, 1, start_offset + 1, 15, epoch ^ last_epoch)
    quorum.start(3)
    quorum.wait(lambda: quorum.is_running(3))
    quorum.wait(lambda: quorum._process(3).log.end_offset > start_offset + 3)
    assert quorum._process(3).log.epochs[:3] == quorum._process(2).log.epochs[:3]


def test_a_damaged_offset_in_front_keeps_no_follower_behind() -> None:
    """L5: the batch before what it asked for seemed to hold that, and was sent for ever."""
    quorum: SimulatedQuorum[Any] = simulated(seed=1)
    leader = quorum.wait_leader()
    log = quorum._process(leader).log
    quorum.append_wait(b"1")
    while log.end_offset % 2 == 0:
        quorum.append_wait(b"1")
    quorum.advance(1000)
    behind = next(id for id in quorum.ids if id != leader)
    end_offset = log.end_offset
    assert quorum._process(behind).log.end_offset == end_offset
    quorum.kill(behind, restart=False)
    quorum.append_wait(b"2")
    damage(quorum, leader, end_offset - 1, 7, 1)
    quorum.start(behind)
    quorum.wait(lambda: quorum.is_running(behind))
    quorum.wait(lambda: quorum._process(behind).log.end_offset > end_offset)


def test_two_that_are_damaged_have_every_record_between_them() -> None:
    """L5: the one looked for a sound batch by the header of a damaged one before it, and did not
    find it, and the other one's was damaged: they let each other lead for ever.
    """
    quorum: SimulatedQuorum[Any] = simulated(seed=1)
    hand_over(quorum, 1)
    quorum.kill(3, restart=False)
    for _ in range(6):
        quorum.append_wait(b"x" * 100)
    quorum.advance(1000)
    end_offset = quorum._process(1).log.end_offset
    damage(quorum, 2, end_offset - 4, 16, 1)
    damage(quorum, 1, end_offset - 3, 16, 1)
    quorum.start(3)
    quorum.wait(lambda: quorum.is_running(3))
    quorum.wait(lambda: quorum._process(3).log.end_offset >= end_offset)


def test_a_follower_copies_behind_what_is_damaged() -> None:
    """It ended as it looked for the control records that it had copied, and so would the leader
    that had let another one lead: two with damage of their own would have ended the quorum (L5).
    """
    quorum: SimulatedQuorum[Any] = simulated(seed=1)
    hand_over(quorum, 1)
    process = quorum._process(3)
    for _ in range(5):  # the page that is appended to is written again: damage there goes
        quorum.append_wait(bytes(6000))
    quorum.advance(1000)
    segment, end_offset = process.log.active, process.log.end_offset
    position = segment.indexed_place(end_offset)[0]
    assert 0 < position + 16 < segment.position // 4096 * 4096
    quorum._machine(3).disk.paged_file(segment.file.path).flip(position + 16, 1)
    hand_over(quorum, 2)
    quorum.append_wait(b"2")
    quorum.wait(lambda: process.log.end_offset > end_offset + 1)
    assert segment.offset_at(position) < 0, "it is still damaged"
    assert quorum.is_running(3) and quorum._process(3) is process


@pytest.mark.parametrize("what", ["damaged", "sound", "no descriptors"])
def test_a_damaged_snapshot_keeps_no_follower_behind(
    what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """L5: it was refused, and fetched again from the same leader for ever.

    A sound one that is begun with again is no reason to let another lead, nor is one that cannot
    be opened for want of descriptors.
    """
    damaged = what == "damaged"
    quorum = simulated(
        1, voters=5, state_machine=Kept, snapshot_bytes=2_000, retention_bytes=0
    )  # fmt: skip
    leader = quorum.wait_leader()
    absent = [id for id in quorum.ids if id != leader][:2]
    for id in absent:
        quorum.kill(id, restart=False)
    for number in range(20):
        quorum.append_wait(bytes(60_000), keys=[b"%d" % number])
    quorum.advance(5000)
    log = quorum._process(leader).log
    assert quorum.leader() == leader and log.log_start_offset > 3
    snapshots = [
        each.file
        for each in files_in(quorum._machine(leader).disk.root)
        if each.name == f"{log.log_start_offset:020d}-{log.start_epoch:010d}.checkpoint"
    ]
    if damaged:
        snapshots[0].flip(len(snapshots[0].data) // 2, 1)
    disk = quorum._machine(leader).disk
    lacking: list[str] = []

    def open_file(path: str) -> Any:
        lacking.append(path)
        raise OutOfResources(f"cannot open {path}")

    for id in absent:
        quorum.start(id)
        quorum.wait(lambda id=id: quorum.is_running(id))
        end_offset = log.end_offset
        quorum.wait(lambda id=id: quorum._process(id).log.end_offset >= end_offset)
        if what == "no descriptors":
            monkeypatch.setattr(disk, "open_file", open_file)
    assert bool(lacking) == (what == "no descriptors")
    assert (quorum.wait_leader() == leader) != damaged
