"""Directed histories of logs that are cut, cleaned and read: D8, I15, read barriers."""

from __future__ import annotations

from functools import partial
from typing import Any

from kraftfast.core import messages as msg
from kraftfast.errors import FlushFailed
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.sim.oracles.shadow import Shadow
from kraftfast.types import OffsetAndEpoch
from tests.sim.kit import Quorum
from tests.sim.steps import (
    BESIDE,
    NEVER_ENDS,
    accepted,
    add,
    begun,
    dynamic,
    followers,
    remove,
    shortened,
    with_snapshots,
)

# --- D8: what is cut stays cut --------------------------------------------------------------------


def what_was_cut_does_not_come_back(seed: int) -> None:
    """I14: a deposed leader cuts what nobody else has, and stops before anything follows."""
    for power in (False, True, True, True, True):
        quorum = dynamic(seed, observers=0, append_every_ms=3.0)
        old = begun(quorum)
        quorum.isolate(old.id)
        quorum.wait(lambda: quorum.leader() != old.id)  # noqa: B023
        end = quorum.highest()
        quorum.reach(end + 3, followers(quorum, old))
        cuts = quorum.world.counts["truncations"]
        quorum.heal()
        quorum.wait(lambda: quorum.world.counts["truncations"] > cuts)  # noqa: B023
        quorum.world.end(old.machine, power)
        quorum.finish()
        seed += 100


def a_cut_inside_a_batch_ends_the_link(seed: int) -> None:
    """An answer that would cut a batch in two ends its link, neither the process nor its log."""
    quorum = Quorum(seed, voters=3, producers=1, values_max=9, **(BESIDE | {"transport": "ring"}))
    world = quorum.world
    leader = begun(quorum)
    (producer,) = world.producers
    producer.running = False
    quorum.wait(world.is_settled)
    for id in followers(quorum, leader):
        world.machine(id).disk_factor = NEVER_ENDS  # so nothing more is committed
    process = quorum.process(followers(quorum, leader)[0])
    shadow = world.oracle.shadow(process.id)
    for _ in range(20):
        producer.leader_id = leader.id
        producer.append()
        world.run(5)
        if len(records_of(shadow)) > 1:
            break
    assert shadow.entries[-1].batch.base_offset >= leader.core.high_watermark
    answer = msg.FetchResponse(
        leader_id=leader.id,
        leader_epoch=leader.core.epoch,
        diverging=OffsetAndEpoch(records_of(shadow)[1], leader.core.epoch),
    )
    link, end = process.links[leader.id], process.log.end_offset
    leader.enter(leader.links[process.id].reply, answer)
    quorum.wait(lambda: process.links.get(leader.id) is not link)
    assert process.alive and link.broken and process.log.end_offset == end
    for id in followers(quorum, leader):
        quorum.stop(id, "kill")
        world.machine(id).disk_factor = 1
        quorum.restart(id)
    quorum.finish()


def records_of(shadow: Shadow) -> range:
    """The offsets of the last batch."""
    batch = shadow.entries[-1].batch
    return range(batch.base_offset, batch.end_offset)


# --- D14: what is not on disk is bounded ---------------------------------------------------------


def large_appends(seed: int, **settings: Any) -> Quorum:
    """A quorum that is handed much more than one disk takes."""
    chosen: dict[str, Any] = {
        "unflushed_bytes_max": 1 << 20,
        "unflushed_age_ms_max": 100_000,
        "segment_bytes": 1 << 22,
        "stride_bytes": 1 << 20,
        "prepare_bytes": 1 << 22,
        "value_bytes_max": 60_000,
        "append_every_ms": 2.0,
        "fetch_timeout_ms": 3_000,
    }
    return dynamic(seed, observers=0, **(chosen | settings))


def a_leader_whose_disk_stands_still_takes_no_more(seed: int) -> None:
    """Neither above so many bytes, nor after so long."""
    for chosen in ({}, {"unflushed_age_ms_max": 50, "value_bytes_max": 100}):
        quorum = large_appends(seed, flush="parallel", **chosen)
        leader = begun(quorum)
        leader.machine.disk_factor = NEVER_ENDS
        quorum.world.run(1_200)
        assert len(leader.door.queue) > 0, "producers wait"
        quorum.stop(leader.id, "kill")
        leader.machine.disk_factor = 1
        quorum.restart(leader.id)
        quorum.finish()


def a_leader_flushes_though_nobody_else_does(seed: int) -> None:
    """It waits for the disks of others first, but not for ever, and not for any amount."""
    for chosen in ({}, {"unflushed_age_ms_max": 50, "value_bytes_max": 100}):
        quorum = large_appends(seed, flush="deferred", **chosen)
        leader = begun(quorum)
        others = followers(quorum, leader)
        for id in others:
            quorum.world.machine(id).disk_factor = NEVER_ENDS
        before = leader.log.flushed_end_offset
        quorum.wait(lambda: leader.log.flushed_end_offset > before + 5)  # noqa: B023
        for id in others:
            quorum.stop(id, "kill")
            quorum.world.machine(id).disk_factor = 1
            quorum.restart(id)
        quorum.finish()


# --- D10, D20 ------------------------------------------------------------------------------------


def who_lost_what_he_acknowledged_elects_nobody_without_it(seed: int) -> None:
    """D10, I21: committed on two disks of three; one rots, the other is away."""
    quorum = Quorum(seed, voters=3, **BESIDE)
    leader = begun(quorum)
    for producer in quorum.world.producers:
        producer.running = False
    quorum.wait(quorum.world.is_settled)
    rotten, short = followers(quorum, leader)
    quorum.stop(short, "kill")
    quorum.world.producers[0].leader_id = leader.id
    quorum.world.producers[0].append()
    quorum.wait(lambda: leader.core.high_watermark > quorum.world.oracle.shadow(short).end)
    quorum.stop(leader.id, "kill")
    quorum.stop(rotten, "power")
    machine = quorum.world.machine(rotten)
    entry = quorum.world.oracle.shadow(rotten).entries[-1]
    name = segment_name(entry.segment_base) + LOG_SUFFIX
    file = machine.disk.paged_file(f"{quorum.world.log_path(machine)}/{name}")
    assert file is not None
    file.flip(entry.position + entry.batch.size - 1, 3)
    machine.rotten = True
    quorum.restart(rotten)
    quorum.restart(short)
    quorum.world.run(5_000)
    assert quorum.world.counts["phantom tails"] or machine.dead, "its damage is known"
    assert quorum.world.leader() is None
    quorum.restart(leader.id)
    quorum.finish()


def bytes_change_on_their_way(seed: int) -> None:
    """D20: in answers to Fetches, and in what producers hand over."""
    quorum = dynamic(seed, append_every_ms=3.0, value_bytes_max=2_000, references=False)
    begun(quorum)
    for producer in quorum.world.producers:
        producer.poisonous = True
    quorum.world.nemesis.corrupting = True
    rejected = quorum.world.counts
    quorum.wait(lambda: rejected["rejected copies"] >= 10)
    quorum.finish()


# --- snapshots -----------------------------------------------------------------------------------


def a_latecomer_crashes_wherever_it_can(seed: int) -> None:
    """At every system call of a start, a download, and of the log that begins anew behind it."""
    quorum = with_snapshots(
        seed, "trim" if seed == 1 else "machine", producers=1,
        append_every_ms=100.0, snapshot_bytes=2_000,  # as many calls, among few events
    )  # fmt: skip
    shortened(quorum)
    machine = quorum.world.machine(4)
    for calls in range(0, 90, 2):
        quorum.world.operator.replace_disk(machine)
        machine.disk.crash_at(calls + seed % 2)
        machine.crash_loses_power = calls % 3 > 0
        target = quorum.highest()
        quorum.wait(lambda: quorum.high_watermark(4) >= target)  # noqa: B023
    counts = quorum.world.counts
    assert counts["crashes in a call"] + counts["crashes in recovery"] >= 40
    assert counts["snapshots installed"] >= 30
    quorum.finish()


def a_voter_crashes_wherever_it_can_while_logs_are_cleaned(seed: int) -> None:
    """At every system call of appends, of snapshots made, and of segments given up."""
    quorum = with_snapshots(seed, observers=0, inline_flush_bytes_max=100_000)
    shortened(quorum)
    machine = quorum.world.machine(1 + seed)
    for calls in range(0, 80, 2):
        machine.disk.crash_at(calls + seed % 2)
        machine.crash_loses_power = calls % 3 > 0
        process = quorum.process(machine.id)
        quorum.wait(lambda: machine.process is not process)  # noqa: B023
        quorum.wait(lambda: machine.process is not None)
    assert quorum.world.counts["log starts moved"] >= 30
    quorum.finish()


def a_latecomer_catches_up_with_short_logs(seed: int) -> None:
    """L5: snapshots are made many times while one is fetched, and logs begin at the newest."""
    quorum = with_snapshots(
        seed, observers=0, snapshot_bytes=3_000, state_bytes=20_000, retention_bytes=1_000,
        fetch_snapshot_max_bytes=1_000, append_every_ms=5.0, transport="socket",
    )  # fmt: skip
    leader = shortened(quorum)
    victim, counts = followers(quorum, leader)[0], quorum.world.counts
    machine = quorum.world.machine(victim)
    quorum.world.operator.replace_disk(machine)
    quorum.wait(lambda: machine.process is not None)
    made, installed = counts["snapshots made"], counts["snapshots installed"]
    quorum.world.run(800)
    target = quorum.highest()
    assert counts["snapshots made"] > made + 10
    assert installed < counts["snapshots installed"] < installed + 5
    quorum.reach(target, [victim])
    quorum.finish()


def a_log_beside_the_snapshot_gives_way(seed: int) -> None:
    """A leader that was cut off wrote what nobody else has; meanwhile the others gave up theirs."""
    quorum = with_snapshots(seed, observers=0)
    old = begun(quorum)
    quorum.isolate(old.id)
    end = old.log.end_offset
    quorum.wait(lambda: quorum.leader() != old.id)
    assert old.log.end_offset >= end
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > end + 50)
    quorum.heal()
    quorum.reach(quorum.highest())
    assert quorum.world.counts["snapshots installed"] == 1
    quorum.finish()


def nothing_is_in_a_snapshot_that_is_not_on_disk(seed: int) -> None:
    """I15: a follower knows what is committed before its own disk has it."""
    quorum = with_snapshots(seed, observers=0, snapshot_bytes=500)
    leader = begun(quorum)
    slow = followers(quorum, leader)[0]
    quorum.world.machine(slow).disk_factor = 100
    made = quorum.world.counts["snapshots made"]
    quorum.reach(quorum.highest() + 60, [id for id in quorum.voters if id != slow])
    assert quorum.world.counts["snapshots made"] > made
    quorum.world.machine(slow).disk_factor = 1
    quorum.finish()


def starts(quorum: Quorum, id: int) -> int:
    """Where the log of a replica begins."""
    return quorum.process(id).log.log_start_offset


def who_votes_is_known_from_a_snapshot(seed: int) -> None:
    """A replaced disk learns the voters from a snapshot alone, and becomes one by that."""
    quorum = with_snapshots(seed, observers=1)
    shortened(quorum)
    accepted(quorum, lambda: add(quorum, 4))
    accepted(quorum, lambda: remove(quorum, 1))
    for id in (4, 2):
        changed = quorum.highest()  # whoever leads next has no log with the change either
        quorum.wait(lambda: min(map(partial(starts, quorum), quorum.ids)) > changed)
        quorum.world.operator.replace_disk(quorum.world.machine(id))
        quorum.reach(quorum.highest(), [id])
        core = quorum.process(id).core
        assert core.voters.ids == (2, 3, 4)
        assert core.history.latest_offset < starts(quorum, id)
        accepted(quorum, lambda: remove(quorum, id))  # noqa: B023
        accepted(quorum, lambda: add(quorum, id))  # noqa: B023
    quorum.finish()


# --- read barriers -------------------------------------------------------------------------------


def a_deposed_leader_answers_no_barrier(seed: int) -> None:
    """Its clock stands still, so it does not know; the others have acknowledged more."""
    quorum = dynamic(seed, observers=0, barrier_every_ms=3.0)
    old = begun(quorum)
    quorum.isolate(old.id)
    old.machine.clock.set_rate(0.0, quorum.world.now_us)
    quorum.wait(lambda: quorum.leader() != old.id)
    target = quorum.highest() + 3
    for producer in quorum.world.producers:
        producer.leader_id = quorum.leader()
        producer.append()
    quorum.reach(target, followers(quorum, old))
    assert old.core.role == "leader"
    questions = [quorum.world.barriers.ask(old) for _ in range(3)]
    quorum.world.run(200)
    assert all(each.offset is None for each in questions)
    old.machine.clock.set_rate(1.0, quorum.world.now_us)
    quorum.heal()
    quorum.finish()


def a_new_leader_answers_no_barrier_before_its_own_record(seed: int) -> None:
    """What is committed it has, and does not know it yet."""
    quorum = dynamic(seed, observers=0)
    old = begun(quorum)
    left = followers(quorum, old)
    quorum.reach(quorum.highest() + 5)
    quorum.stop(old.id, "kill")
    quorum.wait(lambda: quorum.world.leader() is not None)
    leader = quorum.process(quorum.leader())
    for id in left:
        quorum.world.machine(id).disk_factor = NEVER_ENDS
    question = quorum.world.barriers.ask(leader)
    quorum.world.run(300)
    assert question.offset in (None, -1) or question.offset >= question.floor
    for id in left:
        quorum.stop(id, "kill")
        quorum.world.machine(id).disk_factor = 1
        quorum.restart(id)
    quorum.restart(old.id)
    quorum.finish()


def barriers_are_answered_everywhere(seed: int) -> None:
    """At leader, follower and observer, while links come and go."""
    quorum = dynamic(seed, barrier_every_ms=2.0)
    begun(quorum)
    for round in range(12):
        quorum.world.network.reset(quorum.world.network.pairs()[round % 3])
        quorum.world.run(60)
        if round % 4 == 3:
            quorum.isolate(1 + round % 3)
            quorum.world.run(300)
            quorum.heal()
    quorum.finish()
    answered = [each for each in quorum.world.barriers.questions if each.offset not in (None, -1)]
    assert {each.process.id for each in answered} == {1, 2, 3, 4}


# --- idempotent producers ------------------------------------------------------------------------


def producers_try_again_through_failovers(seed: int) -> None:
    """I23: leaders die with batches in their logs and no answer given; each batch comes once."""
    quorum = dynamic(seed, observers=0, idempotent=3, append_every_ms=4.0)
    begun(quorum)
    for round in range(8):
        before = quorum.elections()
        quorum.world.run(150)
        leader = quorum.process(quorum.leader())
        if round % 2:
            quorum.isolate(leader.id)
        else:
            quorum.world.end(leader.machine, power=round % 4 == 0)
        quorum.wait(lambda: quorum.elections() > before)  # noqa: B023
        quorum.heal()
    quorum.finish()
    counts = quorum.world.counts
    assert counts["duplicates"] > 0 and counts["batches sent once and for all"] > 50


def who_began_at_a_snapshot_knows_the_producers(seed: int) -> None:
    """Every voter's disk is replaced; one producer was silent since before the snapshots."""
    quorum = with_snapshots(seed, observers=0, idempotent=1, retention_bytes=0)
    begun(quorum)
    silent = quorum.world.producers[0]
    silent.running = False
    quorum.wait(lambda: silent.is_idle)
    end = quorum.highest()
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > end)
    for id in quorum.voters:
        quorum.world.operator.replace_disk(quorum.world.machine(id))
        quorum.reach(quorum.highest(), [id])
        accepted(quorum, lambda: remove(quorum, id))  # noqa: B023
        accepted(quorum, lambda: add(quorum, id))  # noqa: B023
    for _ in range(3):
        silent.append()
    quorum.finish()
    assert quorum.world.counts["snapshots installed"] >= 3


def a_missing_end_behind_the_newest_snapshot_costs_no_commit(seed: int) -> None:
    """I5: a log without its end is not left for a snapshot that has less than the disk held.

    A follower flushes a batch behind its newest snapshot and ends in order before it is told that
    this is committed, so that its floor does not cover it. Then that batch is gone from its disk.
    """
    quorum = with_snapshots(seed, observers=0, producers=1, transport="ring")
    leader, world = shortened(quorum), quorum.world
    process = quorum.process(followers(quorum, leader)[0])
    producer = world.producers[0]
    producer.running = False
    quorum.wait(lambda: producer.is_idle)
    quorum.reach(end := leader.log.end_offset)
    applier = process.applier
    assert applier is not None and applier.making is not None
    quorum.wait(lambda: applier.applied == process.log.flushed_end_offset == end)
    applier.making.bytes = world.settings.snapshot_bytes
    quorum.wait(lambda: process.core.snapshots[-1].offset == end)
    leader.machine.disk_factor = NEVER_ENDS
    quorum.isolate(next(id for id in followers(quorum, leader) if id != process.id))
    producer.leader_id = leader.id
    producer.append()
    quorum.wait(lambda: process.log.flushed_end_offset > end)
    assert process.core.high_watermark == end
    entry = world.oracle.shadow(process.id).entries[-1]
    quorum.stop(process.id, "shutdown")
    leader.machine.disk_factor = 1
    quorum.heal()
    quorum.wait(lambda: quorum.highest() > end)
    world.nemesis.shorten(process.machine, entry)
    quorum.restart(process.id)
    quorum.finish()


def a_flush_that_fails_as_a_replica_ends_is_no_clean_end(seed: int) -> None:
    """D9: the snapshot of a state machine is flushed by its own thread, also while it ends."""
    quorum = with_snapshots(seed, observers=0)
    leader = begun(quorum)
    process = quorum.process(followers(quorum, leader)[0])
    assert process.applier is not None
    process.applier.error = FlushFailed("fsync of a snapshot failed")
    process.machine.disk.failures.add(FlushFailed)
    quorum.stop(process.id, "shutdown")
    quorum.wait(lambda: process.machine.process is None)
    assert quorum.world.counts["ended by FlushFailed"] == 1
    quorum.restart(process.id)
    quorum.finish()


SCENARIOS = [
    a_flush_that_fails_as_a_replica_ends_is_no_clean_end,
    a_leader_whose_disk_stands_still_takes_no_more,
    a_leader_flushes_though_nobody_else_does,
    who_lost_what_he_acknowledged_elects_nobody_without_it,
    bytes_change_on_their_way,
    a_cut_inside_a_batch_ends_the_link,
    producers_try_again_through_failovers,
    who_began_at_a_snapshot_knows_the_producers,
    what_was_cut_does_not_come_back,
    a_missing_end_behind_the_newest_snapshot_costs_no_commit,
    a_latecomer_crashes_wherever_it_can,
    a_voter_crashes_wherever_it_can_while_logs_are_cleaned,
    a_latecomer_catches_up_with_short_logs,
    a_log_beside_the_snapshot_gives_way,
    nothing_is_in_a_snapshot_that_is_not_on_disk,
    who_votes_is_known_from_a_snapshot,
    a_deposed_leader_answers_no_barrier,
    a_new_leader_answers_no_barrier_before_its_own_record,
    barriers_are_answered_everywhere,
]
