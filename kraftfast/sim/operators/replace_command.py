"""``storage replace`` at the end of a run: a voter that has lost its disk gets another (D19)."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from kraftfast.sim.require import require

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.operators.supervising import Supervising
    from kraftfast.sim.world import World

REPLACES = 0.9
"""How likely a disk is lost at the end of a run."""
KEEPS_FILES = 0.3
DEATHS_MAX, DEATH_US_MAX = 2, 2_000_000
"""How often the program that replaces it dies, at most, and when."""
REPLACED_MS = 120_000


def choose(world: World, random: Random) -> Machine | None:
    """Return a voter that the others can do without; None where no disk is to be lost."""
    if random.random() >= REPLACES or world.survivors is not None or not world.is_settled():
        return None
    voters = world.oracle.voters.latest().voters
    named = world.settings.kraft_version > 0 or bool(world.oracle.voters.committed)
    if not named or world.settings.durability == "all" or len(voters.ids) < 3:
        return None
    there = [
        each for each in world.machines if each.process is not None and voters.is_voter(each.key)
    ]
    if len(there) <= voters.majority:  # others stay down for good: they can do without no more
        return None
    found = [each for each in there if world.operator.can_spare(each)]
    return random.choice(found) if found else None


def lose(world: World, machine: Machine, random: Random) -> None:
    """Have its disk gone with its process, and the program die a few times that replaces it."""
    world.trace(f"{machine.id}: loses its disk")
    world.end(machine, power=True)
    world.oracle.forgets(machine)
    machine.lose_disk(random.random() < KEEPS_FILES)
    supervising = world.supervising
    assert supervising is not None
    for _ in range(random.randint(0, DEATHS_MAX)):
        world.later(random.randint(1, DEATH_US_MAX), _die, supervising)


def _die(supervising: Supervising) -> None:
    if supervising.lost is not None:
        supervising.world.count("supervisors killed while a replica was replaced")
        supervising.restart()


def check_replaced(supervising: Supervising, machine: Machine) -> None:
    """L1: it is replaced, votes again, and holds what all others do."""
    world = supervising.world
    require(
        world.run(REPLACED_MS, lambda: supervising.lost is None),
        f"L1: replica {machine.id} is not replaced: {world.state()}",
    )
    latest = world.oracle.voters.latest().voters
    require(latest.is_voter(machine.key), f"D19: {machine.key} was replaced, and {latest.ids} vote")
    require(
        world.run(world.settings.settle_ms, world.is_settled),
        f"L6: replica {machine.id} was replaced, and does not catch up: {world.state()}",
    )
