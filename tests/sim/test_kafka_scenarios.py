"""The nine scenarios of Kafka's ``RaftEventSimulationTest``, over real logs and simulated disks.

Its invariants are among those that hold after every event here: MonotonicHighWatermark (I6),
MonotonicEpoch (I9), MajorityReachedHighWatermark (I5), SingleLeader (I1), ConsistentCommittedData
(I8), SnapshotAtLogStart (I15); LeaderNeverLoadSnapshot (I19) holds whenever a state machine is
handed one; StableLeadership is asserted where Kafka states it.
"""

from __future__ import annotations

from random import Random

import pytest

from tests.sim.kit import Quorum
from tests.sim.steps import shortened, with_snapshots

SEEDS = range(2)


def drawn(seed: int, voters: tuple[int, int], observers: int = 5) -> dict[str, int]:
    """As many voters and observers as Kafka's test draws."""
    random = Random(seed)
    return {"voters": random.randint(*voters), "observers": random.randint(0, observers)}


# covers: canElectInitialLeader
@pytest.mark.parametrize("seed", SEEDS)
def test_an_initial_leader_is_elected(seed: int) -> None:
    """canElectInitialLeader."""
    quorum = Quorum(seed, **drawn(seed, (1, 5)))
    quorum.start()
    quorum.reach(10)
    quorum.finish()


# covers: canElectNewLeaderAfterOldLeaderFailure
@pytest.mark.parametrize("how", ["kill", "power", "shutdown"])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_leader_follows_one_that_failed(seed: int, how: str) -> None:
    """canElectNewLeaderAfterOldLeaderFailure, and ...GracefulShutdown."""
    quorum = Quorum(seed, **drawn(seed, (3, 5)))
    quorum.start()
    quorum.reach(10)
    old = quorum.leader()
    quorum.stop(old, how)
    target = quorum.highest() + 10
    quorum.reach(target, [id for id in quorum.ids if id != old])
    assert quorum.leader() != old and quorum.elections() >= 2
    quorum.restart(old)
    quorum.reach(target + 10)
    quorum.finish()


# covers: canRecoverAfterAllNodesKilled
@pytest.mark.parametrize("how", ["kill", "power"])
@pytest.mark.parametrize("seed", SEEDS)
def test_it_recovers_after_all_were_killed(seed: int, how: str) -> None:
    """canRecoverAfterAllNodesKilled: only a majority comes back at first."""
    quorum = Quorum(seed, **drawn(seed, (1, 5)))
    quorum.start()
    quorum.reach(10)
    before = quorum.highest()
    for id in quorum.ids:
        quorum.stop(id, how)
    majority = Random(seed).sample(quorum.voters, len(quorum.voters) // 2 + 1)
    for id in majority:
        quorum.restart(id)
    quorum.reach(before + 10, majority)
    for id in set(quorum.ids) - set(majority):
        quorum.restart(id)
    quorum.reach(before + 20)
    quorum.finish()


# covers: canElectNewLeaderAfterOldLeaderPartitionedAway
@pytest.mark.parametrize("seed", SEEDS)
def test_a_new_leader_follows_one_that_is_cut_off(seed: int) -> None:
    """canElectNewLeaderAfterOldLeaderPartitionedAway."""
    quorum = Quorum(seed, **drawn(seed, (3, 5)))
    quorum.start()
    quorum.reach(10)
    old = quorum.leader()
    quorum.isolate(old)
    target = quorum.highest() + 10
    quorum.reach(target, [id for id in quorum.ids if id != old])
    assert quorum.high_watermark(old) < target
    quorum.heal()
    quorum.reach(target)
    quorum.finish()


# covers: canMakeProgressIfMajorityIsReachable
@pytest.mark.parametrize("seed", SEEDS)
def test_a_majority_that_is_in_reach_makes_progress(seed: int) -> None:
    """canMakeProgressIfMajorityIsReachable: {1, 2} cut off from {3, 4, 5}."""
    quorum = Quorum(seed, voters=5)
    quorum.start()
    quorum.reach(10)
    few, many = [1, 2], [3, 4, 5]
    quorum.cut(few, many)
    target = quorum.highest() + 10
    quorum.reach(target, many)
    assert all(quorum.high_watermark(id) < target for id in few)
    quorum.heal()
    quorum.reach(target)
    quorum.finish()


# covers: leadershipAssignedOnlyOnceWithNetworkPartitionIfThereExistsMajority, StableLeadership
@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_is_assigned_once_where_only_some_can_win(seed: int) -> None:
    """leadershipAssignedOnlyOnceWithNetworkPartitionIfThereExistsMajority (KIP-996).

    1 reaches only 3, 2 only 4; 3, 4 and 5 reach each other. Without pre-votes leadership would go
    to and fro between 3 and 4.
    """
    quorum = Quorum(seed, voters=5)
    quorum.cut([1], [2, 4, 5])
    quorum.cut([2], [1, 3, 5])
    quorum.start()
    quorum.reach(20, [3, 4, 5])
    leader, epoch = quorum.leader(), quorum.process(3).core.epoch
    assert leader in (3, 4, 5)
    quorum.world.run(4_000)
    assert quorum.elections() == 1 and quorum.leader() == leader
    assert quorum.process(leader).core.epoch == epoch
    quorum.heal()
    quorum.reach(quorum.highest() + 10)
    assert quorum.elections() == 1
    quorum.finish()


# covers: leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable, StableLeadership
@pytest.mark.parametrize("seed", SEEDS)
def test_leadership_stays_while_a_majority_is_in_reach(seed: int) -> None:
    """leadershipWillNotChangeDuringNetworkPartitionIfMajorityStillReachable (KIP-996).

    Two followers lose the leader and each other; each still reaches one that follows it.
    """
    quorum = Quorum(seed, voters=5)
    quorum.start()
    quorum.reach(10)
    leader, epoch = quorum.leader(), quorum.process(1).core.epoch
    before = quorum.elections()
    one, other, third, fourth = [id for id in quorum.voters if id != leader]
    quorum.cut([one], [leader, other, fourth])
    quorum.cut([other], [leader, one, third])
    quorum.reach(quorum.highest() + 50, [leader, third, fourth])
    quorum.world.run(3_000)
    assert quorum.leader() == leader and quorum.process(leader).core.epoch == epoch
    quorum.heal()
    quorum.reach(quorum.highest() + 10)
    assert quorum.leader() == leader and quorum.elections() == before
    quorum.finish()


# covers: canMakeProgressAfterBackToBackLeaderFailures
@pytest.mark.parametrize("seed", SEEDS)
def test_leaders_that_fail_one_after_the_other(seed: int) -> None:
    """canMakeProgressAfterBackToBackLeaderFailures."""
    quorum = Quorum(seed, **drawn(seed, (3, 5)))
    quorum.start()
    quorum.reach(5)
    for _ in range(2):
        old = quorum.leader()
        quorum.isolate(old)
        quorum.wait(lambda: quorum.leader() != old)  # noqa: B023
        quorum.heal()
    target = quorum.highest() + 10
    quorum.wait(lambda: quorum.highest() >= target)
    assert quorum.elections() >= 3
    quorum.finish()


# covers: canRecoverFromSingleNodeCommittedDataLoss
@pytest.mark.parametrize("seed", SEEDS)
def test_one_that_lost_its_disk_comes_back(seed: int) -> None:
    """canRecoverFromSingleNodeCommittedDataLoss: log and quorum state gone, a new directory id.

    What it held is elsewhere when it is lost: with static voters nothing else would be safe.
    """
    quorum = Quorum(seed, **drawn(seed, (3, 5), 2))
    quorum.start()
    quorum.reach(10)
    for producer in quorum.world.producers:
        producer.running = False
    quorum.wait(quorum.world.is_settled)
    lost = quorum.leader()
    machine = quorum.world.machine(lost)
    quorum.stop(lost, "power")
    quorum.world.oracle.forgets(machine)
    machine.format()
    quorum.wait(lambda: quorum.leader() != lost)
    before = quorum.highest()
    for producer in quorum.world.producers:
        producer.running = True
        producer.start()
    quorum.reach(before + 10, [id for id in quorum.ids if id != lost])
    quorum.restart(lost)
    quorum.reach(before + 20)
    quorum.finish()


# covers: SnapshotAtLogStart, LeaderNeverLoadSnapshot
@pytest.mark.parametrize("seed", SEEDS)
def test_logs_begin_at_snapshots_that_followers_alone_load(seed: int) -> None:
    """SnapshotAtLogStart (I15), LeaderNeverLoadSnapshot (I19), over a change of the leader."""
    quorum = with_snapshots(seed)
    old = shortened(quorum).id
    quorum.isolate(old)
    rest = [id for id in quorum.ids if id != old]
    quorum.reach(quorum.highest() + 10, rest)
    end = quorum.process(old).log.end_offset
    quorum.wait(lambda: quorum.process(quorum.leader()).log.log_start_offset > end)
    quorum.heal()
    quorum.reach(quorum.highest() + 10)
    quorum.finish()
    assert quorum.world.counts["states restored"] and quorum.world.counts["snapshots installed"]
