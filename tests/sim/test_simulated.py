"""``kraftfast.testing.simulated``: a user's state machine and program in simulated time."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import kraftfast
from kraftfast.errors import InvalidOption, NoQuorum, TimedOut, VerificationFailed
from kraftfast.log.snapshots.snapshot_reader import SnapshotReader
from kraftfast.log.snapshots.snapshot_writer import SnapshotWriter
from kraftfast.node.snapshots.replica_snapshots import DownloadFile
from kraftfast.record.batch import BatchView
from kraftfast.sim.require import Violation
from kraftfast.testing import simulated
from kraftfast.testing.simulation import SimulatedQuorum

HOUR_MS = 3_600_000


class Lately(kraftfast.StateMachine):
    """Remembers keys for a minute, by the time of the records."""

    def __init__(self) -> None:
        self.seen: dict[bytes, int] = {}
        self.leaders: list[int] = []
        self.ended = False

    def apply(self, batch: BatchView) -> None:
        for record in batch.records():
            self.seen[record.key or b""] = record.timestamp
        oldest = batch.max_timestamp - 60_000
        self.seen = {key: at for key, at in self.seen.items() if at > oldest}

    def leader_changed(self, leader_id: int, epoch: int) -> None:
        self.leaders.append(leader_id)

    def begin_shutdown(self) -> None:
        self.ended = True


class Kept(Lately):
    """The same, with snapshots."""

    restored = False

    def snapshot(self, writer: SnapshotWriter) -> None:
        for key, at in sorted(self.seen.items()):
            writer.append(b"%d" % at, key=key)

    def restore(self, reader: SnapshotReader) -> None:
        self.seen = {record.key or b"": int(record.value or b"") for record in reader.records()}
        self.restored = True


def followers(quorum: SimulatedQuorum[Any]) -> list[int]:
    return [id for id in quorum.ids if id != quorum.leader()]


def test_time_passes_as_the_test_says() -> None:
    quorum = simulated(3, state_machine=Lately)
    quorum.append_wait(b"", keys=[b"early"])
    quorum.advance(59_000)
    quorum.append_wait(b"", keys=[b"late"])
    for id in quorum.ids:
        quorum.wait(lambda id=id: sorted(quorum.machine(id).seen) == [b"early", b"late"])
    began_ms = quorum.now_ms
    quorum.advance(2_000)
    assert quorum.now_ms == began_ms + 2_000
    quorum.append_wait(b"", keys=[b"last"])
    quorum.advance(1_000)
    assert sorted(quorum.machine(quorum.wait_leader()).seen) == [b"last", b"late"]
    assert quorum.verify() == 3


@pytest.mark.parametrize("state_machine", [None, Lately])
def test_equal_seeds_are_equal_runs(state_machine: Any) -> None:
    told = []
    for seed in (5, 5, 6):
        quorum = simulated(seed, state_machine=state_machine)
        quorum.append_wait(b"a", b"b")
        quorum.kill(quorum.wait_leader(), power=True)
        quorum.advance(10_000)
        told.append((quorum.leader(), quorum.now_ms, quorum._world.digest))
    assert told[0] == told[1] != told[2]


def test_what_was_acknowledged_outlives_power_cuts() -> None:
    quorum = simulated(11, state_machine=Lately)
    for number in range(5):
        offset = quorum.append_wait(b"%d" % number, keys=[b"same"])
        leader = quorum.wait_leader()
        quorum.kill(leader, power=True)
        assert not quorum.is_running(leader)
        quorum.advance(3_000)
    assert [record.value for record in quorum.records()] == [b"0", b"1", b"2", b"3", b"4"]
    assert quorum.records()[-1].offset == offset
    assert quorum.verify() == 5
    told = [set(quorum.machine(id).leaders) for id in quorum.ids]
    assert max(map(len, told)) > 1, told


def test_without_a_majority_nothing_is_committed() -> None:
    quorum = simulated(2)
    leader = quorum.wait_leader()
    one, other = followers(quorum)
    quorum.kill(one, restart=False)
    quorum.kill(other, restart=False)
    append = quorum.append(b"waits")
    with pytest.raises(TimedOut):
        quorum.wait(lambda: append.is_acknowledged, timeout_ms=5_000)
    with pytest.raises(NoQuorum):
        append.offset  # noqa: B018
    with pytest.raises(NoQuorum, match="does not run"):
        quorum.records(one)
    assert quorum.leader() is None, f"{leader} resigned"
    quorum.start(one)
    quorum.wait(lambda: append.is_acknowledged)
    assert [record.value for record in quorum.records(quorum.wait_leader())] == [b"waits"]
    assert quorum.verify() == 1


def test_links_are_cut_one_way_and_both() -> None:
    quorum = simulated(4)
    leader = quorum.wait_leader()
    deaf, other = followers(quorum)
    with quorum.link_cut(leader, deaf, both=False):
        quorum.append_wait(b"by the other two")
        quorum.advance(10_000)
        assert quorum.records(deaf) == [] and quorum.leader() == leader
    quorum.wait(lambda: bool(quorum.records(deaf)))
    for id in (deaf, other):
        quorum.cut_link(leader, id)
    quorum.advance(10_000)
    assert quorum.leader() in (deaf, other)
    quorum.heal_link(leader, deaf)
    assert quorum.verify() == 1


def test_a_replica_goes_on_from_a_snapshot() -> None:
    quorum = simulated(8, state_machine=Kept, snapshot_bytes=2_000, retention_bytes=0)
    quorum.append_wait(b"first", keys=[b"0"])
    absent = followers(quorum)[0]
    quorum.kill(absent, restart=False)
    for number in range(1, 60):
        quorum.append_wait(bytes(20_000), keys=[b"%d" % number])
    quorum.advance(60_000)
    quorum.start(absent)
    assert quorum.verify() == 60
    machine = quorum.machine(absent)
    assert machine.restored and len(machine.seen) == 60


class Own(Exception):
    """What a user's code raises."""


@pytest.mark.parametrize("raised", [Own("here"), AssertionError("here"), InvalidOption("here")])
def test_what_a_state_machine_raises_comes_out(raised: Exception) -> None:
    class Raises(Lately):
        def apply(self, batch: BatchView) -> None:
            raise raised

    quorum = simulated(1, state_machine=Raises)
    expected = RuntimeError if isinstance(raised, InvalidOption) else type(raised)
    with pytest.raises(expected, match="here") as caught:
        quorum.append_wait(b"a")
        quorum.advance(1_000)
    assert not isinstance(caught.value, Violation)
    for call in (quorum.verify, lambda: quorum.advance(1), lambda: quorum.append_wait(b"b")):
        with pytest.raises(expected, match="here"):
            call()  # a replica has not applied a batch: nothing that follows is to be believed


def test_a_state_machine_that_depends_on_something_else_is_found() -> None:
    made: list[object] = []

    class Counts(Kept):
        def __init__(self) -> None:
            super().__init__()
            made.append(self)
            self.number = len(made)

        def apply(self, batch: BatchView) -> None:
            self.seen[b"%d" % self.number] = 0

    quorum = simulated(1, state_machine=Counts)
    quorum.append_wait(b"a")
    with pytest.raises(VerificationFailed, match="must depend on nothing else"):
        quorum.verify()


def test_what_cannot_be() -> None:
    for options in (
        {"seed": -1}, {"voters": 0}, {"durability": "none"}, {"retention_bytes": 0},
        {"state_machine": Lately, "retention_bytes": 0}, {"state_machine": object},
        {"state_machine": Kept, "snapshot_bytes": 0},
    ):  # fmt: skip
        with pytest.raises(InvalidOption):
            simulated(**options)  # type: ignore[call-overload]
    quorum = simulated()
    for call in (
        lambda: quorum.append(),
        lambda: quorum.append(b"a", keys=[]),
        lambda: quorum.wait(5),  # type: ignore[arg-type]
        lambda: quorum.append(bytes(1 << 20)),
        lambda: quorum.machine(1),
        lambda: quorum.kill(4),
        lambda: quorum.cut_link(1, 0),
        lambda: quorum.cut_link(1, 1),
        lambda: quorum.append(5),  # type: ignore[arg-type]
        lambda: quorum.append([1, 2]),  # type: ignore[arg-type]
        lambda: quorum.append(b"a", keys=["k"]),  # type: ignore[list-item]
        lambda: quorum.advance("x"),  # type: ignore[arg-type]
        lambda: quorum.advance(-1),
        lambda: quorum.advance(float("inf")),
    ):
        with pytest.raises(InvalidOption):
            call()


def test_a_package_is_needed() -> None:
    code = "import sys; sys.modules['greenlet'] = None\nfrom kraftfast.testing import simulated\n"
    done = subprocess.run(
        [sys.executable, "-c", code + "simulated()"], capture_output=True, text=True
    )
    last = done.stderr.strip().splitlines()[-1]
    assert "pip install 'kraftfast[sim]'" in last and "HostUnsupported" in last


@pytest.mark.parametrize("seconds", [2, 20])
def test_a_snapshot_that_takes_long_to_be_checked_is_had(
    seconds: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its leader heard nothing from the one voter that it needed, and resigned. When it was elected
    again the download began anew, and so on: two of three voters committed nothing (L1, L5)."""
    quorum = simulated(1, state_machine=Kept, snapshot_bytes=4_000, retention_bytes=8_000)
    late, gone = followers(quorum)
    quorum.kill(late, restart=False)
    for number in range(30):
        quorum.append_wait(bytes(1_000), keys=[b"%d" % number])
    quorum.advance(3_000)
    quorum.kill(gone, restart=False)
    take = DownloadFile.take

    def slow(self: DownloadFile, position: int, data: bytes, last: bool) -> str:
        refusal = take(self, position, data, last)
        if last:
            quorum._process(late).host.threads.sleep(seconds)
        return refusal

    monkeypatch.setattr(DownloadFile, "take", slow)
    quorum.start(late)
    append = quorum.append(b"", keys=[b"last"])
    quorum.wait(lambda: append.is_acknowledged, timeout_ms=60_000)
    assert quorum.machine(late).restored
