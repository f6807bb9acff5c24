"""What the nemesis, the clients and the oracles of names, consumers, rot and load do: each planted.

A fault that never strikes and an oracle that never reports show nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from msgspec.structs import replace

from kraftfast.core.messages import AddRaftVoterRequest, RemoveRaftVoterRequest
from kraftfast.errors import DiskFull, ErrorCode, FlushFailed, StorageError
from kraftfast.log.small_files import quorum_state
from kraftfast.node.tcp.partition_leader import PartitionLeader
from kraftfast.sim.clients.kafka_consumer import KafkaConsumer
from kraftfast.sim.clients.named import NamedProducer
from kraftfast.sim.faults.rotting import KINDS, LOSABLE, files_in
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.operators.operator import Order
from kraftfast.sim.oracles.producer_oracle import check_epochs
from kraftfast.sim.require import Violation
from kraftfast.types import NO_OFFSET
from tests.log.mutate import ROOT, patched
from tests.sim.kit import Home, Quorum
from tests.sim.mended import all_patches
from tests.sim.steps import NEVER_ENDS, begun, shortened, with_snapshots

# --- names ----------------------------------------------------------------------------------------


@pytest.fixture
def named() -> Iterator[tuple[Quorum, NamedProducer]]:
    """A quorum whose only producer has a name, and has appended under it."""
    quorum = Quorum(3, producers=0, named=1, transport="ring")
    (producer,) = quorum.world.producers
    assert isinstance(producer, NamedProducer)
    quorum.start()
    quorum.wait(lambda: producer.acknowledged >= 5)
    return quorum, producer


def test_a_name_goes_on_behind_its_last_record(named: tuple[Quorum, NamedProducer]) -> None:
    quorum, producer = named
    for _ in range(3):
        producer.restart()
        quorum.wait(lambda: producer.granted is not None)
        before = producer.acknowledged
        quorum.wait(lambda: producer.acknowledged > before + 2)  # noqa: B023
    producer.running = False
    quorum.finish()
    assert quorum.world.counts["names taken"] >= 4


def test_a_name_that_is_told_too_little_is_seen(named: tuple[Quorum, NamedProducer]) -> None:
    _, producer = named
    assert producer.granted is not None
    producer._question = 7
    with pytest.raises(Violation, match="D22: name"):
        told = replace(producer.granted, last_sequence=producer.acknowledged - 1)
        producer._answered(7, told, 1)


@pytest.mark.parametrize("what", ["lost", "doubled", "elsewhere"])
def test_records_of_a_name_that_are_wrong_are_seen(
    named: tuple[Quorum, NamedProducer], what: str
) -> None:
    _, producer = named
    count = producer.acknowledged + 1
    places = {b"n%d:%d:" % (producer.id, each): 10 + each for each in range(count)}
    assert producer.check(places) == count
    if what == "lost":
        del places[b"n%d:%d:" % (producer.id, count - 1)]
    elif what == "doubled":
        places[b"n%d:%d:" % (producer.id, 0)] = 10 + count
    else:
        assert producer.granted is not None
        producer.grants.append(replace(producer.granted, last_sequence=2, last_offset=11))
    with pytest.raises(Violation, match="I23:|D22:"):
        producer.check(places)


# --- consumers ------------------------------------------------------------------------------------


def far(self: PartitionLeader, *words: Any) -> Any:
    return ErrorCode.OFFSET_OUT_OF_RANGE, None


PLANTED: dict[str, Any] = {
    "high_watermark": property(lambda self: self.log_end_offset + 5),
    "last_stable_offset": property(lambda self: 0),
    "end_offset_for_epoch": lambda self, epoch: (epoch, 1),
    "check_position": far,
    "log_start_offset": property(lambda self: NO_OFFSET),
}
"""What a leader could tell a consumer wrong."""


def test_a_consumer_reads_what_is_committed() -> None:
    quorum = Quorum(5, consumers=1)
    begun(quorum)
    (consumer,) = quorum.world.consumers
    quorum.wait(lambda: consumer.position > 20)


@pytest.mark.parametrize("name", PLANTED)
def test_a_consumer_that_is_told_wrong_is_seen(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum(5)
    leader = begun(quorum)
    consumer = KafkaConsumer(quorum.world)
    while consumer.position < 5:
        consumer.ask(leader)
    monkeypatch.setattr(PartitionLeader, name, PLANTED[name])
    with pytest.raises(Violation, match="I20:"):
        consumer.ask(leader)


# --- catching up under load -----------------------------------------------------------------------


def test_who_does_not_catch_up_under_load_is_seen() -> None:
    settings = dict(snapshot_bytes=2_000, retention_bytes=0)
    quorum = with_snapshots(2, observers=1, latecomer=True, load_ms=600, **settings)
    quorum.start()
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > 10)
    last = quorum.world.machines[-1]
    quorum.world.nemesis._heal = lambda machine: None  # type: ignore[method-assign]
    last.disk_factor = NEVER_ENDS
    with pytest.raises(Violation, match="L6:"):
        quorum.finish()


def test_a_latecomer_catches_up_under_load() -> None:
    settings = dict(state_bytes=40_000, snapshot_bytes=2_000, retention_bytes=0)
    quorum = with_snapshots(4, observers=1, latecomer=True, load_ms=20_000, **settings)
    quorum.start()
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > 20)
    assert quorum.world.machines[-1].process is None
    quorum.finish()
    assert quorum.world.counts["caught up under load"] == 1
    assert quorum.world.counts["snapshots installed"] >= 1


def test_a_full_disk_at_an_install_costs_nothing() -> None:
    settings = dict(state_bytes=6_000, snapshot_bytes=2_000, retention_bytes=0)
    quorum = with_snapshots(4, observers=1, latecomer=True, **settings)
    quorum.start()
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > 20)
    quorum.world.nemesis._await_last_slice(1 << 60)
    quorum.restart(quorum.ids[-1])
    quorum.wait(lambda: quorum.world.counts["disks full at an install"] > 0)
    quorum.world.run(500)
    quorum.finish()


# --- disks ----------------------------------------------------------------------------------------


def test_a_crash_waits_for_the_call_that_it_is_aimed_at() -> None:
    home = Home()
    home.disk.crash_at(1, "quorum-state")
    for _ in range(3):
        home.disk.replace_file("/replica/other", b"x")
    home.disk.log = []
    with pytest.raises(Crash):
        home.disk.replace_file("/replica/quorum-state", b"x")
    assert len(home.disk.log) == 2
    with pytest.raises(Crash):  # nothing follows, whatever its name
        home.disk.replace_file("/replica/other", b"x")


def aged(**settings: Any) -> Quorum:
    """A quorum that has segments, snapshots, marks and a floor on its disks."""
    quorum = with_snapshots(6, observers=0, **settings)
    shortened(quorum)
    return quorum


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "phantom-tail"])
def test_a_file_that_rots_is_found_or_does_no_harm(kind: str) -> None:
    quorum = aged()
    machine = quorum.world.machine(2)
    quorum.stop(2, "shutdown")
    quorum.world.nemesis._flip_small(machine, (kind,))
    assert machine.rotten and quorum.world.counts[f"rot of {kind}"] == 1
    quorum.restart(2)
    quorum.world.run(500)
    quorum.finish()


@pytest.mark.parametrize("kind", LOSABLE)
def test_a_file_that_is_lost_is_missed_or_not_needed(kind: str) -> None:
    quorum = aged()
    machine, nemesis = quorum.world.machine(2), quorum.world.nemesis
    quorum.world.run(200)
    quorum.stop(2, "shutdown" if kind == "durable-end" else "power")
    nemesis._rottable = lambda: machine  # type: ignore[method-assign]
    while not machine.rotten:
        nemesis._lost_file()
    quorum.restart(2)
    quorum.world.run(500)
    quorum.finish()


def test_a_lost_vote_that_is_not_missed_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = aged()
    machine = quorum.world.machine(2)
    quorum.stop(2, "power")
    machine.rotten = True
    for each in files_in(machine.disk.root):
        if each.name == quorum_state.NAME:
            del each.directory.entries[each.name]
    judged = "kraftfast.node.storage.own_directory.check_quorum_state"
    monkeypatch.setattr(judged, lambda *words: None)
    quorum.restart(2)
    with pytest.raises(Violation, match="I9:"):
        quorum.world.run(3_000)


def test_a_segment_that_rots_under_its_process_reaches_nobody() -> None:
    """Its readers see damage, and its next start refuses it; the others go on."""
    quorum = Quorum(9, voters=3, consumers=1, transport="ring", references=False)
    leader = begun(quorum)
    machine, nemesis = leader.machine, quorum.world.nemesis
    nemesis._rottable = lambda: machine  # type: ignore[method-assign]
    while not machine.rotten:
        nemesis._rot_running()
    quorum.world.run(300)
    quorum.finish()
    assert machine.dead
    assert quorum.world.counts["damage found"] == 1


def test_who_tells_of_other_epochs_than_its_log_holds_is_seen() -> None:
    quorum = Quorum(1)
    leader = begun(quorum)
    shadow = quorum.world.oracle.shadow(leader.id)
    check_epochs(leader, shadow)
    entry = shadow.entries[-1]
    shadow.entries[-1] = entry._replace(batch=entry.batch._replace(epoch=99))
    with pytest.raises(Violation, match="D22:"):
        check_epochs(leader, shadow)


@pytest.mark.parametrize(
    "how",
    [
        "kill",
        pytest.param("power", marks=pytest.mark.long),
        pytest.param("rot", marks=pytest.mark.long),
    ],
)
def test_a_leader_that_was_cut_off_ends_when_it_cuts(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether it is killed then, loses power, or comes back to bytes that have changed."""
    quorum = Quorum(4, voters=3, transport="ring", append_every_ms=4.0)
    begun(quorum)
    nemesis, counts = quorum.world.nemesis, quorum.world.counts
    end = nemesis._end_after_cut
    monkeypatch.setattr(nemesis, "_end_after_cut", lambda one, two, _: end(one, two, how))
    for _ in range(20):
        nemesis._deposed()
        quorum.world.run(4_000, lambda: bool(counts["ends after a cut"]))
        if counts["ends after a cut"]:
            break
    quorum.finish()
    assert counts["rot of the last batches"] == (how == "rot")


@pytest.mark.parametrize("error", [FlushFailed, DiskFull])
def test_a_process_that_ends_of_a_failure_that_its_disk_did_not_tell_is_seen(
    error: type[StorageError], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a reviewer: a failed fsync, or a full disk, was believed whatever the disk did."""
    quorum = Quorum(1, voters=3, transport="ring")
    leader = begun(quorum)

    def fails(_effects: Any) -> None:
        raise error("no such thing happened")

    monkeypatch.setattr(leader, "_check", fails)
    with pytest.raises(Violation, match="^L1: .* ends without need"):
        quorum.world.run(1_000)


@pytest.mark.parametrize("before", [True, False])
def test_damage_excuses_the_process_that_it_came_over(
    before: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found by a reviewer: it excused each assertion of each later process on that disk."""
    quorum = Quorum(1, voters=3, transport="ring")
    begun(quorum)
    machine = quorum.world.machine(1 + quorum.leader() % 3)
    if before:
        quorum.stop(machine.id, "power")
        machine.rotten = True
        quorum.restart(machine.id)
        quorum.wait(lambda: machine.process is not None)
    else:
        machine.rotten = True
    process = quorum.process(machine.id)

    def fails(_effects: Any) -> None:
        raise AssertionError("I18: planted")

    monkeypatch.setattr(process, "_check", fails)
    if before:
        with pytest.raises(AssertionError, match="planted"):
            quorum.world.run(1_000)
    else:
        quorum.world.run(1_000)
        assert quorum.world.counts["ended by an assertion over damage"] == 1


# --- done -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["added", "removed", "gone"])
def test_a_change_that_is_told_before_its_commit_is_seen(what: str) -> None:
    quorum = with_snapshots(1, observers=1)
    leader = begun(quorum)
    operator, key = quorum.world.operator, quorum.world.machine(4).key
    request: Any = AddRaftVoterRequest(key, (), 1_000)
    if what == "removed":
        request = RemoveRaftVoterRequest(quorum.world.machine(2).key)
    order = Order(operator, leader, request, [])
    order.gone = what == "gone"
    told = type("Told", (), {"error": ErrorCode.NONE})
    with pytest.raises(Violation, match="is gone" if what == "gone" else f"said to be {what}"):
        order.reply(told)


# --- what was mended ------------------------------------------------------------------------------


@pytest.mark.parametrize("name", all_patches())
def test_what_takes_a_mend_out_still_fits(name: str) -> None:
    assert patched(all_patches()[name].read_text(), ROOT)
