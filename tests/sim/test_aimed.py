"""Each fault that waits for a moment meets it, and a sound quorum loses nothing by it."""

from __future__ import annotations

import pytest

from kraftfast.core.messages import AlterPartitionReassignmentsRequest
from kraftfast.sim.machines.process import REQUEST_US_MAX
from kraftfast.sim.settings import Delays
from tests.sim.kit import Quorum
from tests.sim.steps import accepted, begun

AIMED = {
    "nominee": "nominees without power",
    "deposed": "ends after a cut",
    "stop_and_power": "power cut after a stop",
    "unflushed": "power cut before a flush",
}
"""What is counted once the moment came."""


@pytest.mark.parametrize("fault", AIMED)
def test_a_fault_meets_its_moment(fault: str) -> None:
    quorum = Quorum(3, transport="ring", flush="deferred", append_every_ms=8.0)
    begun(quorum)
    nemesis, counts = quorum.world.nemesis, quorum.world.counts
    for _ in range(40):
        getattr(nemesis, f"_{fault}")()
        if quorum.world.run(5_000, lambda: counts[AIMED[fault]] > 0):
            break
    assert counts[AIMED[fault]] > 0, dict(counts)
    quorum.world.run(500)
    quorum.finish()


def test_a_directory_that_is_gone_is_named() -> None:
    """An observer's disk is replaced, and the one that it had before is to be a voter: refused."""
    quorum = Quorum(7, kraft_version=1, observers=1, changes=("add_gone",), change_every_ms=1e9)
    begun(quorum)
    operator, counts = quorum.world.operator, quorum.world.counts
    operator.running = True
    for _ in range(40):
        operator.add_gone()
        if quorum.world.run(5_000, lambda: counts["directories that are gone named"] > 0):
            break
    assert counts["directories that are gone named"] > 0, dict(counts)
    quorum.finish()
    assert not counts["AddRaftVoter: NONE"]


def test_no_request_of_a_slow_disk_outlasts_the_time_to_catch_up() -> None:
    """Seed 1025380: one of 11.8 s, drawn a second before the world healed, was told as L6."""
    quorum = Quorum(7, transport="ring", disk=Delays(2_000, 40_000, 0.05))
    begun(quorum)
    machine = quorum.world.machines[0]
    machine.disk_factor = 1000
    drawn = [machine.process.disk_delay_us() for _ in range(1000)]
    assert max(drawn) == REQUEST_US_MAX < 10_000_000


def test_no_voter_is_spared_while_a_reassignment_is_under_way() -> None:
    """Seed 54: ids were looked for among entries of a set, and a majority lost its disks."""
    quorum = Quorum(7, kraft_version=1, observers=1)
    begun(quorum)
    world = quorum.world
    quorum.stop(4, "kill")
    accepted(quorum, lambda: AlterPartitionReassignmentsRequest((1, 2, 4), 1_000))
    quorum.wait(lambda: world.oracle.voters.latest().target is not None)
    assert not any(map(world.operator.can_spare, world.machines))


@pytest.mark.parametrize("seed, spared", [(1, True), (10_000, False)])
def test_no_disk_changes_of_a_replica_that_joins_by_itself(seed: int, spared: bool) -> None:
    """It would be one of two voters, and find out at its next start."""
    world = begun(Quorum(seed, voters=1, observers=2, kraft_version=1, auto_join=True)).world
    assert world.voter_set().ids == (1,), "none has joined yet"
    assert not world.operator.can_spare(world.machine(1))
    assert world.operator.can_spare(world.machine(2)) is spared
    world.close()
