"""Histories that seeds come by rarely, told step by step: each is run by itself, and by mutants.

A function of this module drives one quorum; whatever must hold is checked after every event as in
any other run. ``test_directed`` runs all of them, ``kill`` one against a mutant.
"""

from __future__ import annotations

from typing import Any

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.sim.operator import Order
from kraftfast.sim.process import Process
from tests.sim.kit import Quorum

NEVER_ENDS = 10_000_000
"""How much slower than usual a disk is that a test waits for in vain."""
BESIDE: dict[str, Any] = {"inline_flush_bytes_max": 0, "follower_inline_flush_bytes_max": 0}
"""Every flush takes its time, beside the loop."""


def dynamic(seed: int, voters: int = 3, observers: int = 1, **settings: Any) -> Quorum:
    """A quorum whose log says who votes."""
    chosen = {"voters": voters, "observers": observers, "kraft_version": 1} | BESIDE
    return Quorum(seed, **(chosen | settings))


def begun(quorum: Quorum) -> Process:
    """Start it, and wait until something is committed; the leader."""
    quorum.start()
    quorum.reach(10)
    return quorum.process(quorum.leader())


def answered(quorum: Quorum, order: Order) -> ErrorCode:
    """Wait for an answer."""
    quorum.wait(lambda: order.answer is not None)
    assert order.answer is not None
    return order.answer


def accepted(quorum: Quorum, make: Any) -> None:
    """Ask whoever leads until it is done; ``make()`` is the request."""
    for _ in range(100):
        leader = quorum.process(quorum.leader())
        order = quorum.world.operator.ask(leader, make(), [])
        quorum.wait(lambda: not order.is_open)  # noqa: B023
        if order.answer is ErrorCode.NONE:
            return
        quorum.world.run(100)
    raise AssertionError(f"refused for ever: {order.answer} {quorum.world.state()}")


def add(quorum: Quorum, id: int) -> msg.AddRaftVoterRequest:
    machine = quorum.world.machine(id)
    return msg.AddRaftVoterRequest(machine.key, machine.endpoints, 1_000)


def remove(quorum: Quorum, id: int) -> msg.RemoveRaftVoterRequest:
    voters = quorum.world.voter_set()
    return msg.RemoveRaftVoterRequest(voters.key(id))


def ids(quorum: Quorum) -> tuple[int, ...]:
    """Who votes, by what is committed."""
    return quorum.world.voter_set().ids


def followers(quorum: Quorum, leader: Process) -> list[int]:
    return [id for id in quorum.voters if id != leader.id]


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


# --- D16: who counts -----------------------------------------------------------------------------


def observers_count_for_nothing(seed: int) -> None:
    """Two voters of three are gone: three observers do not make up for them."""
    quorum = dynamic(seed, observers=3)
    leader = begun(quorum)
    for id in followers(quorum, leader):
        quorum.stop(id, "kill")
    before = quorum.high_watermark(leader.id)
    quorum.world.run(400)
    assert quorum.highest() <= before + 3, "what was acknowledged already"
    for id in followers(quorum, leader):
        quorum.restart(id)
    quorum.finish()


def a_new_voter_counts_from_its_record_on(seed: int) -> None:
    """Four voters want three disks, whatever two did before."""
    quorum = dynamic(seed)
    begun(quorum)
    quorum.world.machine(4).disk_factor = 50
    accepted(quorum, lambda: add(quorum, 4))
    assert ids(quorum) == (1, 2, 3, 4)
    leader = quorum.process(quorum.leader())
    gone = [id for id in followers(quorum, leader) if id != 4]
    for id in gone:
        quorum.stop(id, "kill")
    end = quorum.high_watermark(leader.id)
    quorum.world.run(400)
    assert quorum.highest() <= end + 60
    for id in gone:
        quorum.restart(id)
    quorum.finish()


def a_removed_leader_does_not_count_itself(seed: int) -> None:
    """I17: it leads until the commit, by the disks of the others; then it is an observer."""
    quorum = dynamic(seed, observers=0)
    leader = begun(quorum)
    order = quorum.world.operator.ask(leader, remove(quorum, leader.id), [])
    left = followers(quorum, leader)
    quorum.world.machine(left[0]).disk_factor = 100
    assert answered(quorum, order) is ErrorCode.NONE
    quorum.world.machine(left[0]).disk_factor = 1
    quorum.wait(lambda: ids(quorum) == tuple(left))
    quorum.wait(lambda: quorum.leader() != leader.id)
    quorum.reach(quorum.highest() + 10)
    assert quorum.leader() in left
    quorum.finish()


def a_leader_that_only_removed_itself_in_its_own_log_campaigns(seed: int) -> None:
    """Of two, both are needed until that is committed: who has the record leads once more."""
    quorum = dynamic(seed, voters=2, observers=0)
    leader = begun(quorum)
    (other,) = followers(quorum, leader)
    quorum.isolate(leader.id)
    quorum.world.operator.ask(leader, remove(quorum, leader.id), [])
    end = leader.log.end_offset
    quorum.wait(lambda: leader.log.flushed_end_offset >= end)
    quorum.stop(leader.id, "kill")
    quorum.stop(other, "kill")
    quorum.heal()
    quorum.restart(leader.id)
    quorum.restart(other)
    quorum.wait(lambda: ids(quorum) == (other,))
    quorum.finish()


# --- D17: one change at a time -------------------------------------------------------------------


def no_upgrade_before_an_own_record_is_committed(seed: int) -> None:
    """The voters have told of themselves, and nothing of this epoch is on a second disk."""
    quorum = Quorum(seed, voters=2, observers=0, changes=("upgrade",), **BESIDE)
    quorum.start()
    leader = quorum.process(quorum.leader())
    (other,) = followers(quorum, leader)
    quorum.world.machine(other).disk_factor = NEVER_ENDS
    assert quorum.high_watermark(leader.id) == -1
    for _ in range(20):
        quorum.world.run(100)
        order = quorum.world.operator.ask(leader, msg.UpdateFeaturesRequest(1, 1_000), [])
        assert order.answer is not ErrorCode.NONE
        if quorum.world.leader() is not leader:
            break
    quorum.world.machine(other).disk_factor = 1
    quorum.stop(other, "kill")
    quorum.restart(other)
    quorum.finish()


def no_second_change_beside_one(seed: int) -> None:
    """An observer is asked what it speaks; meanwhile a voter is to go."""
    quorum = dynamic(seed)
    leader = begun(quorum)
    first = quorum.world.operator.ask(leader, add(quorum, 4), [])
    second = quorum.world.operator.ask(leader, remove(quorum, followers(quorum, leader)[0]), [])
    assert second.answer is ErrorCode.REQUEST_TIMED_OUT
    answered(quorum, first)
    quorum.finish()


def no_change_above_one_that_is_not_committed(seed: int) -> None:
    """A leader that cannot commit a removal takes no other, even after that timed out."""
    quorum = dynamic(seed, voters=4, observers=0, fetch_timeout_ms=600, request_timeout_ms=100)
    leader = begun(quorum)
    others = followers(quorum, leader)
    for id in others:
        quorum.world.machine(id).disk_factor = NEVER_ENDS
    first = quorum.world.operator.ask(leader, remove(quorum, others[0]), [])
    assert answered(quorum, first) is ErrorCode.REQUEST_TIMED_OUT
    second = quorum.world.operator.ask(leader, remove(quorum, others[1]), [])
    assert second.answer is not ErrorCode.NONE
    for id in others:
        quorum.stop(id, "kill")
        quorum.world.machine(id).disk_factor = 1
        quorum.restart(id)
    quorum.finish()


# --- D19: a directory is a replica ---------------------------------------------------------------


def a_replaced_disk_is_no_voter(seed: int) -> None:
    """It fetches under the old id and another directory: what it stores counts for nothing."""
    quorum = dynamic(seed, observers=0)
    leader = begun(quorum)
    wiped, other = followers(quorum, leader)
    quorum.world.operator.replace_disk(quorum.world.machine(wiped))
    quorum.wait(lambda: quorum.high_watermark(wiped) >= 10)
    quorum.stop(other, "power")
    before = quorum.high_watermark(leader.id)
    quorum.world.run(600)
    assert quorum.highest() <= before + 3, "what was acknowledged already"
    quorum.restart(other)
    quorum.reach(before + 10)
    accepted(quorum, lambda: remove(quorum, wiped))
    accepted(quorum, lambda: add(quorum, wiped))
    assert quorum.world.voter_set().is_voter(quorum.world.machine(wiped).key)
    quorum.finish()


def a_replaced_disk_makes_itself_a_voter(seed: int) -> None:
    """controller.quorum.auto.join.enable: it removes what it was, and adds what it is."""
    quorum = dynamic(seed, observers=0, auto_join=True)
    leader = begun(quorum)
    wiped = followers(quorum, leader)[0]
    machine = quorum.world.machine(wiped)
    quorum.world.operator.replace_disk(machine)
    quorum.wait(lambda: quorum.world.voter_set().is_voter(machine.key))
    quorum.finish()


# --- every change, with somebody killed in the middle ---------------------------------------------


def all_voters_change_while_leaders_die(seed: int) -> None:
    """KIP-642: from (1, 2, 3) to (4, 5, 6) while the leader is killed again and again."""
    quorum = dynamic(seed, observers=3)
    begun(quorum)
    target = msg.AlterPartitionReassignmentsRequest((4, 5, 6), 1_000)
    accepted(quorum, lambda: target)
    for _ in range(3):
        before = quorum.elections()
        quorum.world.end(quorum.world.machine(quorum.leader()), power=seed % 2 == 0)
        quorum.wait(lambda: quorum.elections() > before)  # noqa: B023
    quorum.wait(lambda: ids(quorum) == (4, 5, 6), 60_000)
    quorum.finish()
    assert quorum.leader() in (4, 5, 6)


def a_reassignment_is_cancelled(seed: int) -> None:
    """One that cannot go on, for 4 is gone; what is done stays done."""
    quorum = dynamic(seed)
    begun(quorum)
    quorum.stop(4, "kill")
    accepted(quorum, lambda: msg.AlterPartitionReassignmentsRequest((1, 2, 4), 1_000))
    quorum.world.run(500)
    accepted(quorum, lambda: msg.AlterPartitionReassignmentsRequest(None, 1_000))
    leader = quorum.process(quorum.leader())
    assert leader.core.describe(leader.now_ms()).ended_target == (1, 2, 4)
    quorum.restart(4)
    quorum.finish()


def static_voters_go_into_the_log(seed: int) -> None:
    """kraft.version 0 to 1, with the leader killed on the way; then one more voter."""
    quorum = Quorum(seed, voters=3, observers=1, changes=("upgrade",))
    leader = begun(quorum)
    quorum.world.operator.ask(leader, msg.UpdateFeaturesRequest(1, 1_000), [])
    quorum.world.end(leader.machine, power=True)
    accepted(quorum, lambda: msg.UpdateFeaturesRequest(1, 1_000))
    accepted(quorum, lambda: add(quorum, 4))
    accepted(quorum, lambda: remove(quorum, 1))
    assert ids(quorum) == (2, 3, 4)
    quorum.finish()


def voters_move(seed: int) -> None:
    """Each comes back at another address, and the set says so; the leader's own too."""
    quorum = dynamic(seed)
    begun(quorum)
    for id in quorum.voters:
        machine = quorum.world.machine(id)
        machine.moves += 1
        quorum.world.end(machine, power=False)
        there = machine.endpoints
        quorum.wait(lambda: quorum.world.voter_set().endpoints(id) == there)  # noqa: B023
    quorum.finish()


def leadership_is_handed_over(seed: int) -> None:
    """To a voter of choice; to nobody else."""
    quorum = dynamic(seed)
    leader = begun(quorum)
    successor = followers(quorum, leader)[1]
    for target_id, expected in ((4, ErrorCode.VOTER_NOT_FOUND), (successor, ErrorCode.NONE)):
        event = ev.TransferRequested(None, target_id)
        order = event.source = Order(quorum.world.operator, leader, event, [])
        leader.enter(leader.step, event)
        assert answered(quorum, order) is expected
    quorum.wait(lambda: quorum.leader() == successor)
    quorum.finish()


# --- snapshots -----------------------------------------------------------------------------------


def with_snapshots(seed: int, kind: str = "machine", **settings: Any) -> Quorum:
    """A quorum whose logs are short: what is older is in snapshots of many slices."""
    chosen: dict[str, Any] = {
        "snapshots": kind,
        "snapshot_bytes": 4_000,
        "state_bytes": 6_000,
        "retention_bytes": 8_000,
        "segment_bytes": 8 * 1024,
        "fetch_snapshot_max_bytes": 1_500,
        "append_every_ms": 10.0,
    }
    return dynamic(seed, **(chosen | settings))


def shortened(quorum: Quorum) -> Process:
    """Wait until logs begin at snapshots; the leader."""
    leader = begun(quorum)
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > 20)
    return leader


def a_latecomer_crashes_wherever_it_can(seed: int) -> None:
    """At every system call of a start, a download, and of the log that begins anew behind it."""
    quorum = with_snapshots(seed, "trim" if seed == 1 else "machine", producers=1)
    shortened(quorum)
    machine = quorum.world.machine(4)
    for calls in range(0, 90, 2):
        quorum.world.operator.replace_disk(machine)
        machine.disk.crash_at(calls + seed % 2)
        machine.crash_loses_power = calls % 3 > 0
        target = quorum.highest()
        quorum.wait(lambda: quorum.high_watermark(4) >= target)  # noqa: B023
    counts = quorum.world.counts
    assert counts["crashes in a call"] + counts["crashes in recovery"] >= 20
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


def who_votes_is_known_from_a_snapshot(seed: int) -> None:
    """A replaced disk learns the voters from a snapshot alone, and becomes one by that."""
    quorum = with_snapshots(seed, observers=1)
    shortened(quorum)
    accepted(quorum, lambda: add(quorum, 4))
    accepted(quorum, lambda: remove(quorum, 1))
    start = quorum.highest()
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > start)
    for id in (4, 2):
        machine = quorum.world.machine(id)
        quorum.world.operator.replace_disk(machine)
        quorum.reach(quorum.highest(), [id])
        assert quorum.process(id).core.voters.ids == (2, 3, 4)
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
        quorum.world.network.reset(sorted(quorum.world.network.links)[round % 3])
        quorum.world.run(60)
        if round % 4 == 3:
            quorum.isolate(1 + round % 3)
            quorum.world.run(300)
            quorum.heal()
    quorum.finish()
    answered = [each for each in quorum.world.barriers.questions if each.offset not in (None, -1)]
    assert {each.process.id for each in answered} == {1, 2, 3, 4}


SCENARIOS = [
    a_deposed_leader_answers_no_barrier,
    a_new_leader_answers_no_barrier_before_its_own_record,
    barriers_are_answered_everywhere,
    what_was_cut_does_not_come_back,
    a_latecomer_crashes_wherever_it_can,
    a_voter_crashes_wherever_it_can_while_logs_are_cleaned,
    a_log_beside_the_snapshot_gives_way,
    nothing_is_in_a_snapshot_that_is_not_on_disk,
    who_votes_is_known_from_a_snapshot,
    observers_count_for_nothing,
    a_new_voter_counts_from_its_record_on,
    a_removed_leader_does_not_count_itself,
    a_leader_that_only_removed_itself_in_its_own_log_campaigns,
    no_upgrade_before_an_own_record_is_committed,
    no_second_change_beside_one,
    no_change_above_one_that_is_not_committed,
    a_replaced_disk_is_no_voter,
    a_replaced_disk_makes_itself_a_voter,
    all_voters_change_while_leaders_die,
    a_reassignment_is_cancelled,
    static_voters_go_into_the_log,
    voters_move,
    leadership_is_handed_over,
]
