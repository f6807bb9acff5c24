"""Directed histories of elections: what a vote rests on, and what becomes of it (D21, D14)."""

from __future__ import annotations

from kraftfast.sim.machines.machine import Machine
from kraftfast.sim.machines.process import Process
from tests.sim.kit import Quorum
from tests.sim.steps import BESIDE, NEVER_ENDS, begun, followers


def with_an_unflushed_tail(seed: int, factor: int) -> tuple[Quorum, Process, Machine, Machine]:
    """Three voters: the leader, a follower with copied records that its disk does not hold, and
    one that has committed them with the leader. Each disk operation of the first takes ``factor``
    times as long as usual.
    """
    quorum = Quorum(seed, voters=3, producers=1, **(BESIDE | {"transport": "ring"}))
    world = quorum.world
    leader = begun(quorum)
    (producer,) = world.producers
    producer.running = False
    quorum.wait(world.is_settled)
    world.nemesis.running = False  # so no page is written back by chance
    behind, other = (world.machine(id) for id in sorted(followers(quorum, leader)))
    behind.disk_factor = factor
    for _ in range(2):  # the second waits until the flush of the first is over
        end = leader.core.high_watermark
        producer.leader_id = leader.id
        producer.append()
        quorum.wait(lambda: leader.core.high_watermark > end)  # noqa: B023
    process = quorum.process(behind.id)
    committed = leader.core.high_watermark
    quorum.wait(lambda: process.log.end_offset >= committed)
    assert process.log.flushed_end_offset < committed
    return quorum, leader, behind, other


def a_candidate_that_loses_its_tail_does_not_lead(seed: int) -> None:
    """D21: power is cut between asking for votes and leading; the vote must not outlive the tail.

    By the rules of Kafka, whose followers flush every append, the candidate is granted a vote for
    a tail that it then loses, resumes its candidacy and leads without acknowledged records.
    """
    quorum, leader, behind, other = with_an_unflushed_tail(seed, NEVER_ENDS)
    world = quorum.world
    quorum.stop(leader.id, "kill")

    def is_elected() -> bool:
        voted = quorum.process(other.id).core.voted
        return (voted is not None and voted.id == behind.id) or world.leader() is not None

    quorum.wait(is_elected)
    quorum.stop(behind.id, "bare power")
    behind.disk_factor = 1
    quorum.restart(behind.id)
    quorum.wait(lambda: world.leader() is not None and behind.process is not None)
    quorum.restart(leader.id)
    quorum.finish()


def a_nominee_whose_disk_hangs_lets_the_other_lead(seed: int) -> None:
    """It does not ask for votes, uses up no epoch, and does not stand in the way of the other."""
    quorum, leader, behind, other = with_an_unflushed_tail(seed, NEVER_ENDS)
    epoch = leader.core.epoch
    quorum.stop(leader.id, "kill")
    quorum.wait(lambda: quorum.world.leader() is not None, ms=200)
    assert quorum.process(quorum.leader()) is other.process
    assert quorum.process(other.id).core.epoch == epoch + 1
    quorum.stop(behind.id, "kill")
    behind.disk_factor = 1
    quorum.restart(behind.id)
    quorum.restart(leader.id)
    quorum.finish()


def a_nominee_flushes_its_tail(seed: int) -> None:
    """D14: also what was appended while a flush was under way, and without ever reaching a peer."""
    quorum, _, behind, _ = with_an_unflushed_tail(seed, 300)
    process = quorum.process(behind.id)
    quorum.isolate(behind.id)
    quorum.wait(lambda: process.core.role == "prospective")
    behind.disk_factor = 1
    quorum.wait(lambda: process.log.flushed_end_offset == process.log.end_offset, ms=1_000)
    quorum.heal()
    quorum.finish()


SCENARIOS = [
    a_candidate_that_loses_its_tail_does_not_lead,
    a_nominee_whose_disk_hangs_lets_the_other_lead,
    a_nominee_flushes_its_tail,
]
