"""Replace a majority of the disks while a configuration still names their voters (D23).

No quorum survives that: what only those disks held is lost, and they may begin another log, which
no rule of ``oracles.invariants`` allows. So the oracle judges nothing after it. What must hold is
what each surviving replica can check by itself (``oracles.early_oracle``): it neither votes for nor
follows a disk that its voter set does not name, and it keeps all that was committed below its
floor.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.sim.faults.planned import ASK_US, Planned
from kraftfast.sim.oracles import history
from kraftfast.sim.oracles.shadow import Shadow
from kraftfast.sim.require import require
from kraftfast.types import KRaftVoters, VoterSet

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

BEGINS_TIMEOUTS = 40
"""How many fetch timeouts the replaced disks have to elect a leader in a late enough epoch."""
AFTER_MS = 2_000
"""How long such a run goes on after its last fault."""


class Survivors:
    """The replicas that are left, and the committed bytes below the floor of each."""

    def __init__(self, world: World, machines: list[Machine]) -> None:
        self.world, self.machines = world, machines
        self.kept: dict[int, tuple[int, bytes]] = {}
        for machine in machines:
            assert machine.process is not None
            start, end = machine.process.log.log_start_offset, machine.process.floor.stored.offset
            self.kept[machine.id] = end, world.oracle.content(start, end)

    def check(self) -> None:
        """D23: a survivor must hold what was committed below its floor."""
        for machine in self.machines:
            process, (end, content) = machine.process, self.kept[machine.id]
            if process is not None:
                whole = process.log.end_offset >= end
                require(
                    whole and history.read_bytes(process, end) == content,
                    f"D23: {machine.id} has not kept what was committed up to {end}, its floor",
                )
                self.world.count("floors kept without a majority")


class SilentOracle:
    """Take the calls that an oracle takes, and judge nothing."""

    def __init__(self) -> None:
        self.voters = self.votes = self.snapshots = self.flushes = self

    def __getattr__(self, name: str) -> Any:
        return lambda *arguments: None

    def shadow(self, id: int) -> Shadow:
        """Return an empty one."""
        return Shadow()


class LosingMajority(Planned):
    """Replaces a majority's disks: half of :class:`~kraftfast.sim.faults.nemesis.Nemesis`."""

    def _replace_majority(self) -> None:
        """Replace them at once; restart the survivors after these have begun another log.

        Do so where the log names the directories, or where replicas know each other by id alone:
        then only the floor tells a survivor that the leader's log is another one.
        """
        world, asked_us = self.world, 0
        if world.survivors is not None or self.looking:
            return
        named = self.random.random() < 0.7
        voters = list(world.machines[: self.settings.voters])
        left = self.random.sample(voters, self.random.randint(1, (len(voters) - 1) // 2))

        def look() -> bool:
            nonlocal asked_us
            committed = world.oracle.voters.committed
            offsets = [offset for offset, each in committed if isinstance(each, KRaftVoters)]
            if named and not offsets:
                if world.now_us > asked_us + ASK_US:
                    asked_us = world.now_us
                    world.operator.upgrade()
                return False
            if not all(_has_floor_above(each.process, max(offsets, default=0)) for each in left):
                return False
            self._lose_others(left)
            return True

        self._await(look, BEGINS_TIMEOUTS)

    def _lose_others(self, left: list[Machine]) -> None:
        world = self.world
        world.count("majorities replaced")
        epoch = max(each.process.core.epoch for each in left if each.process is not None)
        world.lose_all_but(left)
        configured = VoterSet.of(*range(1, self.settings.voters + 1))
        for machine in world.machines:
            if machine in left:
                machine.may_start = False
                self.held.add(machine)
                world.end(machine, power=False)
            else:
                machine.voters = configured
                world.operator.replace_disk(machine)
        self._await(lambda: self._lead(left, epoch), BEGINS_TIMEOUTS)

    def _lead(self, left: list[Machine], epoch: int) -> bool:
        """Restart the survivors once a replaced disk leads a later epoch than they know.

        Until then have its leaders resign, one after the other.
        """
        leader = self.world.leader()
        if leader is None:
            return False
        if leader.core.epoch <= epoch:
            leader.enter(leader.resign)
            return False
        self.world.count("replaced majorities that lead")
        for machine in left:
            self._let_go(machine)
        return True


def _has_floor_above(process: Process | None, offset: int) -> bool:
    """Return whether a process runs and has stored a floor above an offset."""
    return process is not None and process.floor.stored.offset > offset
