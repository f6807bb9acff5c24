"""Readers that are cut off together with a leader while others elect another one.

What such a leader says of the high watermark is stale: only a majority's word of after the question
keeps it from saying so (ReadIndex, ``core/read_barrier.py``).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftfast.core.messages import RemoveRaftVoterRequest
from kraftfast.sim.faults.planned import Planned

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process

READ_US = 5_000
"""How often each of them is asked for a read barrier."""


class DeposedLeaders(Planned):
    """A part of :class:`~kraftfast.sim.faults.nemesis.Nemesis`."""

    def _read_beside(self) -> None:
        """Cut a leader off together with an observer."""
        leader = self.world.leader()
        voters = self.world.voters()
        there = [each for each in self.world.machines if each not in voters and each.process]
        if leader is not None and there and not self.looking:
            self._depose(leader, [self.random.choice(there)])

    def _read_of_removed(self) -> None:
        """Cut a leader off with one voter when the other two know that it is being removed."""
        leader, operator = self.world.leader(), self.world.operator
        latest = self.world.oracle.voters.latest()
        open_order = operator.order is not None and operator.order.is_open
        if leader is None or open_order or self.looking or latest.target is not None:
            return
        key, voters = leader.machine.key, latest.voters
        others = [each for each in self.world.oracle.voters.machines(voters)
                  if each is not leader.machine]  # fmt: skip
        if len(others) != 3 or not voters.is_voter(key):
            return
        request = RemoveRaftVoterRequest(key, self.world.cluster_id)
        operator.ask(leader, request, [voters.without(key.id)])

        def look() -> bool:
            if not leader.alive or leader.core.role != "leader":
                return True
            running = [each.process for each in others if each.process is not None]
            know = [each.machine for each in running if not each.core.voters.is_voter(key)]
            if len(know) == 2:
                self._depose(leader, [each for each in others if each not in know])
            return len(know) >= 2

        self._await(look)

    def _depose(self, leader: Process, beside: list[Machine]) -> None:
        """Cut them off, and ask them until the leader knows of its successor."""
        there = [leader.machine, *beside]
        rest = [each for each in self.world.machines if each not in there]
        pairs = {(one.id, other.id) for one in there for other in rest}
        self._cut_for_a_while(pairs | {(b, a) for a, b in pairs})
        timeout_us = self.settings.fetch_timeout_ms * 1000
        self._read(leader, there, leader.core.epoch, self.world.now_us + 4 * timeout_us)

    def _read(self, leader: Process, there: list[Machine], epoch: int, until_us: int) -> None:
        led = leader.alive and leader.core.role == "leader" and leader.core.epoch == epoch
        if not self.running or not led or self.world.now_us >= until_us:
            return
        if any(each.process is not None and each.process.core.epoch > epoch
               and each.process.core.role == "leader" for each in self.world.machines):  # fmt: skip
            self.world.count("reads of deposed leaders")
        for machine in there:
            if machine.process is not None:
                self.world.barriers.ask(machine.process)
        self.world.later(READ_US, self._read, leader, there, epoch, until_us)
