"""Rings in the simulator: memory that two processes share, while either may stop at any moment."""

from __future__ import annotations

import pytest

from kraftfast.sim.machines.process import Process
from tests.sim.kit import Quorum
from tests.sim.steps import begun, followers


def over_rings(seed: int = 3, **settings: int) -> Quorum:
    return Quorum(seed, transport="ring", **settings)


def test_a_follower_without_room_sleeps_until_it_has_some() -> None:
    """It took its processor for itself all that time: the thread that makes room needs it."""
    quorum = over_rings(append_every_ms=4.0)
    leader = begun(quorum)
    process = quorum.process(followers(quorum, leader)[0])
    process.machine.nursery_hangs = True
    quorum.wait(lambda: process.stalled is not None)
    quorum.world.run(50)
    assert process.stalled is not None and process.asleep
    process.machine.nursery_hangs = False
    quorum.wait(lambda: process.log.end_offset >= leader.core.high_watermark)
    quorum.finish()


def test_who_is_cut_off_looks_into_no_ring_until_it_is_not() -> None:
    quorum = over_rings()
    leader = begun(quorum)
    process = quorum.process(followers(quorum, leader)[0])
    quorum.isolate(process.id)
    quorum.world.run(50)
    end = process.log.end_offset
    before = quorum.highest()
    quorum.reach(before + 5, [leader.id])
    assert process.log.end_offset == end
    quorum.heal()
    quorum.reach(before + 5)
    quorum.finish()


def test_a_link_that_breaks_is_made_again() -> None:
    quorum = over_rings()
    leader = begun(quorum)
    for _ in range(5):
        other = followers(quorum, leader)[0]
        link = leader.links[other]
        quorum.world.network.reset((min(leader.id, other), max(leader.id, other)))
        quorum.wait(lambda: leader.links.get(other) not in (None, link))  # noqa: B023
    assert all(machine.process is not None for machine in quorum.world.machines)
    quorum.finish()


@pytest.mark.parametrize("seed", [3, 4, 5])
def test_processes_die_at_any_moment(seed: int) -> None:
    """What is in a ring, and who holds whose segment, goes with them."""
    quorum = over_rings(seed, append_every_ms=3.0)
    begun(quorum)
    for round in range(12):
        quorum.world.run(37)
        quorum.stop(1 + round % 3, "kill" if round % 2 else "power")
        quorum.restart(1 + round % 3)
        quorum.reach(quorum.highest() + 1, [quorum.leader()])
    quorum.finish()


def test_records_that_change_in_a_ring_are_rejected() -> None:
    quorum = over_rings(append_every_ms=3.0)
    begun(quorum)
    quorum.world.nemesis.corrupting = True
    quorum.wait(lambda: quorum.world.counts["rejected copies"] > 2)
    quorum.world.nemesis.corrupting = False
    quorum.finish()


def test_replicas_that_can_map_nothing_commit_batches_larger_than_their_rings(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """L5, L6: the leader referred to such a batch again and again, and nothing was committed."""
    monkeypatch.setattr(Process, "open_segment", lambda *_: None)
    quorum = over_rings(ring_bytes=8192, value_bytes_max=8000, values_max=4)
    begun(quorum)
    quorum.reach(quorum.highest() + 40)
    quorum.finish()


def test_equal_seeds_are_equal_runs() -> None:
    digests = set()
    for _ in range(2):
        quorum = over_rings(5)
        quorum.start()
        quorum.world.run(1_000)
        digests.add((quorum.world.digest, quorum.world.events))
        quorum.world.close()
    assert len(digests) == 1
