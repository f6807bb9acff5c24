"""Directed histories of voters that change: D16, D17, D19, and every change by itself."""

from __future__ import annotations

from kraftfast.core import events as ev
from kraftfast.core import messages as msg
from kraftfast.errors import ErrorCode
from kraftfast.sim.operators.operator import Order
from tests.sim.kit import Quorum
from tests.sim.steps import (
    BESIDE,
    NEVER_ENDS,
    accepted,
    add,
    answered,
    begun,
    dynamic,
    followers,
    ids,
    remove,
)

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
    """A leader that cannot commit a removal adds no voter, even after that timed out.

    Another removal is refused in any case: the others have not the first one's set on disk.
    """
    quorum = dynamic(seed, voters=4, fetch_timeout_ms=600, request_timeout_ms=100)
    leader = begun(quorum)
    others = followers(quorum, leader)
    for id in others:
        quorum.world.machine(id).disk_factor = NEVER_ENDS
    first = quorum.world.operator.ask(leader, remove(quorum, others[0]), [])
    assert answered(quorum, first) is ErrorCode.REQUEST_TIMED_OUT
    second = quorum.world.operator.ask(leader, add(quorum, 5), [])
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


def a_disk_by_configuration_is_no_voter(seed: int) -> None:
    """It names the voters that the quorum began with, itself among them; the log knows better.

    Its peers hear it campaign, cut off from the leader and not, and it brings nobody to lead.
    """
    quorum = Quorum(seed, voters=3, changes=("upgrade",))
    begun(quorum)
    accepted(quorum, lambda: msg.UpdateFeaturesRequest(1, 1_000))
    voters = quorum.world.oracle.voters
    leader = quorum.process(quorum.leader())
    replaced, other = followers(quorum, leader)
    machine = quorum.world.machine(replaced)
    quorum.wait(lambda: voters.are_known_without(machine))
    network = quorum.world.network
    network.cut |= {(leader.id, replaced), (replaced, leader.id)}
    quorum.world.operator.replace_disk(machine)
    assert machine.voters.ids == (1, 2, 3) and not quorum.world.voter_set().is_voter(machine.key)
    assert not voters.are_known_without(quorum.world.machine(other)), "a minority only"
    quorum.world.run(2_000)
    quorum.world.end(leader.machine, power=True)
    quorum.world.run(2_000)
    network.heal()
    quorum.restart(leader.id)
    quorum.wait(lambda: quorum.high_watermark(replaced) >= quorum.high_watermark(other) > 0)
    accepted(quorum, lambda: remove(quorum, replaced))
    accepted(quorum, lambda: add(quorum, replaced))
    assert quorum.world.voter_set().is_voter(machine.key)
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


# --- durability=memory ---------------------------------------------------------------------------


def a_power_cut_takes_nobody_back_to_the_voters_of_before(seed: int) -> None:
    """D10: one of three loses its memory. It was the only voter once, and is not now."""
    quorum = dynamic(seed, voters=1, observers=2, durability="memory")
    begun(quorum)
    quorum.world.machine(1).disk.write_back(1.0)
    quorum.world.nemesis.running = False  # no disk writes on its own account from now on
    for id in (2, 3):
        accepted(quorum, lambda: add(quorum, id))  # noqa: B023
    quorum.reach(quorum.highest() + 10)
    quorum.stop(1, "bare power")
    quorum.wait(lambda: quorum.leader() in (2, 3))
    quorum.reach(quorum.highest() + 10, (2, 3))
    quorum.isolate(1)
    quorum.restart(1)
    quorum.world.run(2_000)
    assert quorum.leader() in (2, 3)
    quorum.heal()
    quorum.finish()


SCENARIOS = [
    observers_count_for_nothing,
    a_new_voter_counts_from_its_record_on,
    a_removed_leader_does_not_count_itself,
    a_leader_that_only_removed_itself_in_its_own_log_campaigns,
    no_upgrade_before_an_own_record_is_committed,
    no_second_change_beside_one,
    no_change_above_one_that_is_not_committed,
    a_replaced_disk_is_no_voter,
    a_disk_by_configuration_is_no_voter,
    a_replaced_disk_makes_itself_a_voter,
    all_voters_change_while_leaders_die,
    a_reassignment_is_cancelled,
    static_voters_go_into_the_log,
    voters_move,
    leadership_is_handed_over,
    a_power_cut_takes_nobody_back_to_the_voters_of_before,
]
