"""``kraftfast log trim`` over simulated disks: it may crash at any call, and be done again."""

from __future__ import annotations

from typing import Any

import pytest

from kraftfast.log.reading.at_rest import trim_log
from kraftfast.log.small_files.directory import ReplicaDirectory
from kraftfast.sim.faults.trim_command import check_trimmed, trim
from kraftfast.sim.machines.sim_disk import Crash
from kraftfast.sim.operators.recover_command import look
from kraftfast.sim.settings import OPERATED_FROM, WorldSettings
from tests.sim.kit import PATH, Home, NothingIsLeft, Quorum
from tests.sim.steps import BESIDE, begun
from tests.sim.test_recovering import lose_power


def stopped(seed: int, how: str, **settings: Any) -> tuple[Quorum, int]:
    """A quorum of which one replica was stopped so, between an append and its flush."""
    chosen = {"segment_bytes": 8 * 1024, "prepare_bytes": 8 * 1024, "value_bytes_max": 900}
    quorum = Quorum(seed, transport="ring", **(BESIDE | chosen | settings))
    leader = begun(quorum)
    quorum.reach(leader.core.high_watermark + 60)
    id = next(each for each in quorum.ids if each != leader.id)
    machine, process = quorum.world.machine(id), quorum.process(id)
    machine.flushes_hang = True
    quorum.wait(lambda: process.log.end_offset > process.log.flushed_end_offset + 2)
    quorum.stop(id, how)
    machine.flushes_hang = False
    return quorum, id


@pytest.mark.parametrize("how", ["kill", "bare power"])
def test_it_may_crash_at_any_call_and_loses_nothing(how: str) -> None:
    """D1, D10: what a look says of the log holds at each crash, and once it is trimmed."""
    quorum, id = stopped(7, how)
    machine = quorum.world.machine(id)
    before = look(machine)
    assert before.end_offset > 50
    crashes = 0
    while True:
        machine.disk.crash_at(crashes)
        try:
            trim(machine)
            break
        except Crash:
            crashes += 1
        machine.disk.kill() if how == "kill" else lose_power(machine)
        assert look(machine).place == before.place  # with power, what was flushed is all there is
    machine.disk.crash_at(-1)
    assert crashes > 10, "each call of it was the last one once"
    check_trimmed(quorum.world, machine, before)
    lose_power(machine)
    assert look(machine).place == before.place
    quorum.world.oracle.shadow(id).lost_memory = True
    quorum.restart(id)
    quorum.reach(before.end_offset + 20)
    quorum.finish()


def trimmed_until(crashes: int) -> tuple[Home, int, bool]:
    """A log of which some was not flushed, power cut so many calls into its trim; what was."""
    home = Home(crashes)
    home.append(12, size=3_000)
    home.flush()
    flushed = home.log.flushed_end_offset
    home.append(6, size=1_000)
    home.kill()
    home.disk.random = NothingIsLeft()
    home.disk.crash_at(crashes)
    try:
        directory: Any = ReplicaDirectory(home.disk, PATH)  # type: ignore[arg-type]
        trim_log(home.disk, directory)  # type: ignore[arg-type]
        directory.close()
    except Crash:
        home.disk.lose_power()
        return home, flushed, False
    home.disk.crash_at(-1)
    home.disk.lose_power()
    return home, flushed, True


def test_power_may_go_at_any_call_though_not_all_was_flushed() -> None:
    """D1, D10: where the log ends is noted once that is on disk; the next start takes the rest."""
    for crashes in range(200):
        home, flushed, done = trimmed_until(crashes)
        home.open()
        assert home.log.end_offset >= (18 if done else flushed), crashes
        if done:
            break
    assert crashes > 15


def test_logs_are_trimmed_in_later_seeds_alone() -> None:
    """Those before stay the runs that they were; ``test_short_seeds`` counts what comes of it."""
    assert not any(
        "trim" in WorldSettings.of_seed(each).faults for each in range(44_900, OPERATED_FROM)
    )
    later = range(OPERATED_FROM, OPERATED_FROM + 40)
    assert any("trim" in WorldSettings.of_seed(each, short=True).faults for each in later)
