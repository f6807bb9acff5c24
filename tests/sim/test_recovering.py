"""``storage recover`` over simulated disks: it may crash at any system call, and be done again."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.sim.machines.machine import Machine
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.operators.recover_command import look, recover
from kraftfast.sim.oracles import history
from tests.sim.kit import NothingIsLeft, Quorum
from tests.sim.steps import begun, dynamic


def one_left(seed: int, end: str, **settings: Any) -> tuple[Quorum, Machine, bytes]:
    """A quorum of which one voter is left, that was stopped so, and what its log held."""
    quorum = dynamic(seed, observers=0, segment_bytes=16 * 1024, **settings)
    leader = begun(quorum)
    quorum.reach(leader.core.high_watermark + 40)
    left, content = leader.machine, history.read_bytes(leader, leader.log.end_offset)
    quorum.world.lose_all_but([left])
    for id in quorum.ids:
        quorum.stop(id, end if id == left.id else "power")
    return quorum, left, content


def lose_power(machine: Machine) -> None:
    """Nothing is left that was not flushed."""
    random, machine.disk.random = machine.disk.random, NothingIsLeft()
    machine.lose_power()
    machine.disk.random = random


@pytest.mark.parametrize("end", ["kill", "bare power"])
@pytest.mark.parametrize("transport", ["ring", "socket"])
def test_it_may_crash_at_any_call_and_loses_nothing(end: str, transport: str) -> None:
    """D1, D5: what the replica held stays, and a new voter set that it tells of is on its disk."""
    quorum, left, content = one_left(7, end, transport=transport)
    before = look(left)
    crashes = 0
    while True:
        left.disk.crash_at(crashes)
        try:
            recover(left, look(left))
            break
        except Crash:
            crashes += 1
        left.disk.kill() if end == "kill" else lose_power(left)
        now = look(left)
        assert now.end_offset >= before.end_offset and now.last_epoch >= before.last_epoch
        assert now.voter_ids in ((1, 2, 3), (left.id,)) and now.state_fault is None
    assert crashes > 20, "each call of it was the last one once"
    left.disk.kill()
    lose_power(left)
    after = look(left)
    assert after.voter_ids == (left.id,) and after.state.epoch == after.last_epoch
    assert after.end_offset > before.end_offset
    quorum.restart(left.id)
    quorum.wait(lambda: quorum.high_watermark(left.id) > after.end_offset)
    assert quorum.leader() == left.id
    kept = history.read_bytes(quorum.process(left.id), before.end_offset)
    assert kept and content.startswith(kept)
