"""Each planned fault meets its moment in a seed of its own."""

from __future__ import annotations

from itertools import islice

import pytest

from kraftfast.core.elections import on_vote
from kraftfast.log import recovery  # type: ignore[attr-defined]
from kraftfast.sim import WorldSettings
from kraftfast.sim.faults.plans import AT, PLANS, SLOTS, plan_of, seeds_of
from kraftfast.sim.world import World, run_seed

MOMENTS = {
    "upgrade_again": "upgrades asked for again",
    "remove_needed": "needed voters named",
    "add_unaware": "leaders gone for good",
    "doubt_again": "ends with a mark that may go",
    "stop_and_shorten": "logs without their ends",
    "rot_below_snapshot": "rot below a snapshot",
    "full_at_trim": "log starts moved on a full disk",
    "cut_at_page": "files that end like prepared ones",
    "replace_added": "disks of additions replaced",
    "replace_majority": "replaced majorities that lead",
    "old_batches": "power cuts before old batches",
    "begin_in_doubt": "voters in doubt without a log",
    "read_beside": "reads of deposed leaders",
    "read_of_removed": "reads of deposed leaders",
}
"""What is counted once the moment came."""
QUICKEST = {"read_of_removed": 7, "full_at_trim": 18, "cut_at_page": 7}
"""Which of a plan's seeds meets it soonest; tried first, since the others can take minutes."""


@pytest.mark.parametrize("name", PLANS)
def test_a_plan_meets_its_moment(name: str) -> None:
    seeds, quickest = list(islice(seeds_of(name), 24)), QUICKEST.get(name, 0)
    for seed in [*seeds[quickest:], *seeds[:quickest]]:
        world, moment = World(seed, WorldSettings.of_seed(seed)), MOMENTS[name]
        world.start()
        world.nemesis.start()
        if world.run(world.settings.chaos_ms, lambda: world.counts[moment] > 0):  # noqa: B023
            return
    raise AssertionError(dict(world.counts))


def test_most_seeds_have_no_plan_and_each_plan_has_its_own() -> None:
    planned = {seed: plan_of(seed) for seed in range(5 * SLOTS)}
    assert sum(map(bool, planned.values())) == len(PLANS) <= len(AT) * SLOTS
    assert all(name in planned[next(seeds_of(name))]["faults"] for name in PLANS)
    for seed in planned:
        assert not {*PLANS} & {*WorldSettings.of_seed(seed, reach=False).faults}


def test_older_batches_are_taken_where_no_voucher_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D10: framing, CRC, offset and epoch of what a file held before are all as they must be."""
    monkeypatch.setattr(recovery, "vouched_end", lambda segment, _: segment.batches_end_max())
    found = (
        run_seed(seed, WorldSettings.of_seed(seed))
        for seed in islice(seeds_of("old_batches"), 8, 20)
    )
    assert any("I2" in str(each["violation"]) for each in found)


def test_voters_that_are_certain_of_having_no_log_need_not_be_stuck(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """D10: a voter in doubt that does not say that it has none keeps them from beginning one."""
    monkeypatch.setattr(on_vote, "lacks_only_certainty", lambda *words: False)
    seed = next(seeds_of("begin_in_doubt"))
    assert "L1" in str(run_seed(seed, WorldSettings.of_seed(seed))["violation"])
