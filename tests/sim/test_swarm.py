"""Short runs of later seeds: few kinds of clients at a time, and no longer than they need."""

from __future__ import annotations

import pytest

from kraftfast.sim.operators import supervising
from kraftfast.sim.settings import WorldSettings
from kraftfast.sim.swarm import (
    AT_A_TIME,
    CHAOS_MS,
    CLIENTS,
    FEWER_AT_A_TIME,
    SHORTER_FROM,
    SWARM_FROM,
)
from kraftfast.sim.world import run_seed
from tests.sim.steps import begun, dynamic


def kinds(settings: WorldSettings) -> set[str]:
    return {kind for kind in CLIENTS if getattr(settings, kind)}


def test_seeds_before_are_the_runs_that_they_were() -> None:
    before = [
        WorldSettings.of_seed(each, short=True) for each in range(SWARM_FROM - 100, SWARM_FROM)
    ]
    assert max(len(kinds(each)) for each in before) > max(AT_A_TIME)
    assert {(each.stuck_ms, each.producers) for each in before} == {(0, 3)}
    long = WorldSettings.of_seed(SWARM_FROM)
    assert (long.answer_ms, long.stuck_ms, long.producers) == (3_000, 0, 3)


def test_few_kinds_of_clients_run_at_a_time_and_all_of_them_do() -> None:
    found = [
        WorldSettings.of_seed(each, short=True) for each in range(SWARM_FROM, SWARM_FROM + 600)
    ]
    assert max(len(kinds(each)) for each in found) == max(AT_A_TIME)
    assert set().union(*map(kinds, found)) == set(CLIENTS)
    pairs = {(one, other) for each in found for one in kinds(each) for other in kinds(each)}
    assert len(pairs) > 0.9 * len(CLIENTS) ** 2, "each meets nearly every other"
    assert {each.producers for each in found} == {1, 2, 3}


def test_most_of_the_latest_seeds_are_shorter_and_none_is_without_faults() -> None:
    before = [
        WorldSettings.of_seed(each, short=True) for each in range(SHORTER_FROM - 100, SHORTER_FROM)
    ]
    assert min(each.chaos_ms for each in before) == max(CHAOS_MS)
    found = [
        WorldSettings.of_seed(each, short=True) for each in range(SHORTER_FROM, SHORTER_FROM + 400)
    ]
    alone = [each for each in found if not each.supervised]
    assert {each.chaos_ms for each in alone} == set(CHAOS_MS)
    assert sum(each.chaos_ms == min(CHAOS_MS) for each in alone) > 0.6 * len(alone)
    assert all(each.fault_every_ms <= each.chaos_ms / 4 for each in found)
    assert {each.chaos_ms for each in found if each.supervised} == {600, 1_400}


def test_most_of_the_latest_seeds_have_less_of_what_takes_long_and_some_have_all_of_it() -> None:
    seeds = range(SHORTER_FROM, SHORTER_FROM + 400)
    found = [WorldSettings.of_seed(each, short=True) for each in seeds]
    drawn = [WorldSettings.of_seed(each, reach=False, short=True) for each in seeds]
    assert 0.05 < sum(each.supervised for each in found) / len(found) < 0.2
    assert {each.idle_ms for each in found} == {100, 500}
    large = [each for each, all in zip(found, drawn) if all.voters > 3 or all.observers > 1]
    small = [each for each in large if each.voters <= 3 and each.observers <= 1]
    assert 0.4 < len(small) / len(large) < 0.8
    assert set().union(*map(kinds, found)) == set(CLIENTS), "few at a time, and all in some"
    assert max(len(kinds(each)) for each in found) == max(FEWER_AT_A_TIME)


def test_a_program_makes_another_quorum_beside_its_own_and_not_before_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of the simulator: it waited 10 s for a lock first, and all faults struck nothing."""
    monkeypatch.setattr(supervising, "MAKES", 1.0)
    seeds = range(SHORTER_FROM, SHORTER_FROM + 100)
    chosen = {each: WorldSettings.of_seed(each, short=True, settle_ms=100) for each in seeds}
    for seed in [each for each in seeds if chosen[each].supervised][:6]:
        lines: list[str] = []
        run_seed(seed, chosen[seed], lines.append)
        healed = next(n for n, line in enumerate(lines) if "the world heals" in line)
        assert any("starts at" in line for line in lines[:healed]), f"{seed} strikes nothing"


def test_what_is_asked_for_comes_before_what_is_drawn() -> None:
    found = WorldSettings.of_seed(SWARM_FROM, short=True, producers=7, user="local", stuck_ms=5)
    assert (found.producers, found.user, found.stuck_ms) == (7, "local", 5)


def test_a_quorum_that_is_stuck_by_design_is_not_waited_for() -> None:
    result = run_seed(83_557, WorldSettings.of_seed(83_557, short=True, stuck_ms=1_000))
    assert result["ok"], result["violation"]
    assert result["counts"]["stuck as designed"] == 1 and result["virtual_ms"] < 5_000


@pytest.mark.parametrize("transport, excused", [("socket", True), ("ring", False)])
def test_only_voters_that_nobody_reaches_excuse_that_none_is_elected(
    transport: str, excused: bool
) -> None:
    """Of five voters one is gone and one in doubt (D10). The others elect, unless one of them has
    moved and its log is shorter: over rings nobody is asked by an address."""
    quorum = dynamic(0, voters=5, observers=0, transport=transport)
    begun(quorum)
    world = quorum.world
    mover, doubtful, gone = [id for id in quorum.ids if id != quorum.leader()][:3]
    quorum.stop(gone, "kill")
    world.machine(gone).dead = "its disk is gone"
    quorum.process(doubtful).core._state.doubt.memory_lost = True
    assert world._missing() and not world._may_be_stuck()
    world.machine(mover).moves += 1
    assert not world._may_be_stuck(), "it can be elected itself"
    quorum.isolate(mover)
    end = quorum.process(mover).log.end_offset
    quorum.wait(lambda: quorum.process(quorum.leader()).log.end_offset > end)
    quorum.process(doubtful).core._state.doubt.memory_lost = True
    assert world._may_be_stuck() == excused
    world.machine(mover).moves -= 1
    assert not world._may_be_stuck()


@pytest.mark.parametrize("seed", [60_014, 60_365])
def test_no_quorum_is_idle_while_what_its_supervisor_began_goes_on(seed: int) -> None:
    """Of the simulator: a quorum that was closed under its clients began anew while it rested."""
    result = run_seed(seed, WorldSettings.of_seed(seed, short=True))
    assert result["ok"], result["violation"]


def test_a_quorum_of_one_keeps_one_process_ready() -> None:
    """Of the simulator: it asked for none."""
    result = run_seed(60_455, WorldSettings.of_seed(60_455, short=True))
    assert result["ok"], result["violation"]
