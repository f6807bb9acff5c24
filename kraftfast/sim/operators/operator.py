"""Changes of the voters: one request after another, to the presumed leader (KIP-853, KIP-642).

The operator may be late, and ask the wrong replica, or for the impossible; but it never asks for a
set that could not go on without what is lost already: no quorum can protect itself from that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    AlterPartitionReassignmentsRequest,
    RemoveRaftVoterRequest,
    Request,
    UpdateFeaturesRequest,
)
from kraftfast.errors import ErrorCode
from kraftfast.sim.require import require
from kraftfast.types import NO_NODE, KRaftVersion, ReplicaKey, Voter, VoterSet

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.world import World

TIMEOUT_MS = 1_000
LOST_MS = 5_000
"""An answer that did not come by now never will."""
JOINERS_FROM = 10_000
"""The first seed in which a disk is spared that its replica may yet bring into the voter set."""


class Order:
    """One request, until it is answered or can no longer be."""

    correlation = 1

    def __init__(
        self, operator: Operator, process: Process, request: Any, sets: list[VoterSet]
    ) -> None:
        self.operator, self.process, self.request = operator, process, request
        self.sets = sets  # what it may lead to
        self.gone = False  # it names a directory that no machine has now
        self.peer_id = NO_NODE
        self.answer: ErrorCode | None = None
        self.until_us = operator.world.now_us + LOST_MS * 1000

    @property
    def is_open(self) -> bool:
        """Whether it may still be answered."""
        return self.process.alive and self.operator.world.now_us < self.until_us

    def failed(self, error: Exception) -> None:
        """Fail: nothing that a session raises is expected here."""
        raise error

    def reply(self, response: Any, records: Any = None) -> None:
        """Take the answer."""
        self.answer = response.error
        self.until_us = 0
        name = type(self.request).__name__.removesuffix("Request")
        self.operator.world.count(f"{name}: {response.error.name}")
        if response.error is ErrorCode.NONE:
            self.operator.world.count("changes accepted")
            self._check_done()

    def _check_done(self) -> None:
        """Done means committed; and a directory that is gone is no voter (D19)."""
        request, voters = self.request, self.operator.world.oracle.voters
        if isinstance(request, AddRaftVoterRequest):
            require(not self.gone, f"D19: {request.voter} was added, and its disk is gone")
            if request.ack_when_committed:
                done = voters.latest().voters.is_voter(request.voter)
                require(done, f"{request.voter} is said to be added, and {voters.latest()} counts")
        elif isinstance(request, RemoveRaftVoterRequest):
            done = not voters.latest().voters.is_voter(request.voter)
            require(done, f"{request.voter} is said to be removed, and {voters.latest()} counts")
        elif isinstance(request, UpdateFeaturesRequest):
            versions = [each for _, each in voters.committed if isinstance(each, KRaftVersion)]
            static = self.operator.settings.kraft_version == 0
            require(not static or bool(versions), "an upgrade is done, and not committed")


class Operator:
    """Draw changes for as long as the world permits it."""

    running: bool
    order: Order | None  # the last one

    def __init__(self, world: World) -> None:
        self.world, self.random = world, world.random
        self.settings = world.settings
        self.running = False
        self.order = None

    def start(self) -> None:
        """Begin."""
        self.running = bool(self.settings.changes)
        self._next()

    def _next(self) -> None:
        if self.running:
            mean_us = self.settings.change_every_ms * 1000
            self.world.later(1 + int(self.random.expovariate(1.0) * mean_us), self._change)

    def _change(self) -> None:
        if self.running:
            change = self.random.choice(self.settings.changes)
            self.world.trace(f"operator: {change}")
            self.world.count(change)
            getattr(self, change)()
            self._next()

    # --- what may be asked for ------------------------------------------------------------------

    def can_spare(self, machine: Machine) -> bool:
        """Return whether every set that may come to count goes on without what this one held."""
        sets = self.world.oracle.voters.sets_in_play()
        if self.order is not None and self.order.is_open:
            sets += self.order.sets
        if self.settings.auto_join and self.world.seed >= JOINERS_FROM:
            sets += [self._joined(each, machine) for each in sets]
        targets = self._targets()
        if targets:
            return not any(machine.id in each for each in (*targets, *(each.ids for each in sets)))
        return all(self.goes_on(each, machine) for each in sets)

    def _joined(self, voters: VoterSet, machine: Machine) -> VoterSet:
        """Return the set once this machine and others with a changed disk joined by themselves.

        They find out at their next start.
        """
        machines = self.world.machines
        broken = [each for each in machines if each is machine or each.rotten and not each.dead]
        joining = [
            Voter(each.id, each.key.directory_id) for each in broken if each.id not in voters
        ]
        return VoterSet([*voters.stored, *joining])

    def _targets(self) -> list[tuple[int, ...]]:
        """Return what reassignments are on their way to, or may come to be."""
        found = self.world.oracle.voters.targets_in_play()
        if self.order is not None and self.order.is_open:
            request = self.order.request
            if isinstance(request, AlterPartitionReassignmentsRequest) and request.target:
                found.append(request.target)
        return found

    def goes_on(self, voters: VoterSet, without: Machine | None = None) -> bool:
        """Return whether a majority of these is whole, and where the set says."""
        machines = self.world.oracle.voters.machines(voters)
        whole = [
            each
            for each in machines
            if each.is_sound
            and each.is_certain
            and each is not without
            and voters.endpoints(each.id) in ((), each.endpoints)
        ]
        return len(whole) >= voters.majority

    def _gets_through(self, now: VoterSet, then: VoterSet, between: VoterSet) -> bool:
        """Return whether a majority is whole all the way, in whatever order voters come and go.

        The set never gets smaller than both ends, and may hold all that are not whole until then.
        """
        machines = self.world.oracle.voters.machines(between)
        lost = len(between) - sum(each.is_sound and each.is_certain for each in machines)
        smallest = min((now, then), key=len)
        return len(smallest) - lost >= smallest.majority

    def is_satisfied(self, leader: Process) -> bool:
        """Return whether nothing is open: every change is through or given up (L3)."""
        if self.order is not None and self.order.is_open:
            return False
        latest = leader.core.history.latest
        if latest is None:
            return True
        if latest.target is not None and not self._may_wait(leader, latest.target):
            return False
        if leader.core.history.last_offset >= leader.log.end_offset:
            return False
        return all(
            voter.endpoints == machine.endpoints
            for voter in latest.voters
            for machine in self.world.oracle.voters.machines(VoterSet([voter]))
            if machine.process is not None
        )

    def _may_wait(self, leader: Process, target: tuple[int, ...]) -> bool:
        """Return whether a reassignment may wait for a replica that it names.

        It never returns, or its id was seen with two directory ids, of which one is gone.
        """
        if any(machine.dead and machine.id in target for machine in self.world.machines):
            return True
        described = leader.core.describe(leader.now_ms())
        seen = [each.key.id for each in described.observers]
        return any(seen.count(id) > 1 for id in target)

    # --- requests -------------------------------------------------------------------------------

    def _leader(self) -> Process | None:
        """Return the presumed leader."""
        if self.order is not None and self.order.is_open:
            return None  # one at a time
        running = [each.process for each in self.world.machines if each.process is not None]
        if running and self.random.random() < 0.05:
            return self.random.choice(running)
        return self.world.leader()

    def ask(self, process: Process, request: Request, sets: list[VoterSet]) -> Order:
        """Send a request that may lead to these sets."""
        order = self.order = Order(self, process, request, sets)
        process.enter(process.step, ev.RequestReceived(order, request))
        return order

    def add_voter(self) -> None:
        """Add a replica that runs and is no voter."""
        process = self._leader()
        latest = self.world.oracle.voters.latest()
        others = [
            each
            for each in self.world.machines
            if each.id not in latest.voters and each.process is not None and each.is_sound
        ]
        if process is None or not others or latest.target is not None:
            return
        machine = self.random.choice(others)
        voters = latest.voters.with_voter(Voter(*machine.key, machine.endpoints, 0, 1))
        if self.goes_on(voters):
            at_commit = self.random.random() < 0.7
            cluster_id = self.world.cluster_id
            self.ask(
                process,
                AddRaftVoterRequest(
                    machine.key, machine.endpoints, TIMEOUT_MS, at_commit, cluster_id
                ),
                [voters],
            )

    def add_gone(self) -> None:
        """Add one that runs, by the directory id of its disk before, perhaps just now."""
        latest = self.world.oracle.voters.latest()
        others = [
            each
            for each in self.world.machines
            if each.id not in latest.voters and not each.dead and each.may_start
        ]
        process = self.world.leader()
        if self.settings.kraft_version and process is not None and process.core._state.leader:
            observers = process.core._state.leader.observers.values()
            whole = {each.key for each in observers if each.last_caught_up_ms >= 0}
            known = [each for each in others if each.key in whole and self.can_spare(each)]
            if known and self.random.random() < 0.7:
                self.replace_disk(self.random.choice(known))
        until_us = self.world.now_us + self.settings.fetch_timeout_ms * 4_000
        self._name_gone([each for each in others if each.formats > 1], until_us)

    def _name_gone(self, machines: list[Machine], until_us: int) -> None:
        """Name the directory that one of these had before, once it is silent for long enough (D19).

        A leader takes a directory for one that runs for a fetch timeout after its last Fetch.
        """
        if not self.running or self.world.now_us >= until_us:
            return
        latest = self.world.oracle.voters.latest()
        process = self._leader() if latest.target is None else None
        there = [each for each in machines if each.process and each.id not in latest.voters]
        there = [each for each in there if process is not None and self._is_silent(process, each)]
        if process is None or not there:
            self.world.later(2_000, self._name_gone, machines, until_us)
            return
        machine = self.random.choice(there)
        key = machine.key_of(machine.formats - 1)
        request = AddRaftVoterRequest(key, machine.endpoints, TIMEOUT_MS)
        self.ask(process, request, []).gone = True
        self.world.count("directories that are gone named")

    def _is_silent(self, process: Process, machine: Machine) -> bool:
        """Return whether this process, if it leads, has not heard lately of a disk that is gone."""
        leader = process.core._state.leader
        if leader is None or process.paused or process.blocked:
            return False
        progress = leader.observers.get(machine.key_of(machine.formats - 1))
        if progress is None:
            return self.random.random() < 0.01
        return process.now_ms() - progress.last_fetch_ms > self.settings.fetch_timeout_ms

    def remove_voter(self) -> None:
        """Remove one of those that vote: rather one that is gone, and the leader often."""
        process = self._leader()
        latest = self.world.oracle.voters.latest()
        if process is None or latest.target is not None:
            return
        here = {machine.key for machine in self.world.oracle.voters.machines(latest.voters)}
        gone = [key for key in latest.voters.keys if key not in here]
        leads = [key for key in latest.voters.keys if key.id == process.id]
        key: ReplicaKey = self.random.choice(
            gone or self.random.choice((leads, latest.voters.keys)) or latest.voters.keys
        )
        voters = latest.voters.without(key.id)
        if len(voters) and self.goes_on(voters):
            self.ask(process, RemoveRaftVoterRequest(key, self.world.cluster_id), [voters])

    def upgrade(self) -> None:
        """kraft.version 1."""
        process = self._leader()
        if process is not None:
            self.ask(process, UpdateFeaturesRequest(1, TIMEOUT_MS), [])

    def reassign(self) -> None:
        """Reassign all of them at once, or end that."""
        process = self._leader()
        whole = [each for each in self.world.machines if each.process is not None and each.is_sound]
        if process is None or not whole:
            return
        count = self.random.randint(1, len(whole))
        target = tuple(each.id for each in self.random.sample(whole, count))
        latest = self.world.oracle.voters.latest()
        voters = VoterSet(
            latest.voters.get(id) or Voter(*self.world.machine(id).key) for id in target
        )
        between = latest.voters
        for voter in voters:
            between = between.with_voter(voter)
        if latest.target is not None and self.random.random() < 0.2:
            self.ask(process, AlterPartitionReassignmentsRequest(None), [])
        elif self._gets_through(latest.voters, voters, between):
            request = AlterPartitionReassignmentsRequest(target, TIMEOUT_MS)
            self.ask(process, request, [voters, between])

    def transfer(self) -> None:
        """Hand leadership to some voter, or to the best."""
        process = self._leader()
        if process is not None:
            target_id = self.random.choice((NO_NODE, *self.world.voter_set().ids))
            event = ev.TransferRequested(None, target_id)
            event.source = self.order = Order(self, process, event, [])
            process.enter(process.step, event)

    # --- machines -------------------------------------------------------------------------------

    def move(self) -> None:
        """Bring a machine back at another address, while those that have not moved go on.

        Static voters are where their configurations say, until the log names them.
        """
        machine = self.random.choice(self.world.machines)
        named = self.settings.kraft_version > 0 or bool(self.world.oracle.voters.committed)
        if named and self.can_spare(machine):
            machine.moves += 1
            self.world.end(machine, power=False)

    def wipe(self) -> None:
        """Bring a machine back with nothing, as another replica of the same id."""
        machine = self.random.choice(self.world.machines)
        known = self.settings.kraft_version > 0  # static voters are known by their ids alone
        if known and not machine.dead and self.can_spare(machine):
            self.replace_disk(machine)

    def replace_configured(self) -> None:
        """Bring a machine back with nothing but a configuration that still names the first voters.

        The log names their directories by now. All others know that, on their disks: one that did
        not would count the new disk by its id, and no rule could tell it from the old one (D23).
        """
        machine = self.random.choice(self.world.machines)
        self._replace_when_known(
            machine, self.world.now_us + self.settings.fetch_timeout_ms * 4_000
        )

    def _replace_when_known(self, machine: Machine, until_us: int) -> None:
        if not self.running or self.world.now_us >= until_us:
            return
        known = self.world.oracle.voters.are_known_without(machine)
        if not self.world.oracle.voters.committed:  # refused until every voter has told its version
            self.upgrade()
        if not known or machine.dead or not self.can_spare(machine):
            self.world.later(5_000, self._replace_when_known, machine, until_us)
            return
        self.replace_disk(machine)
        self.world.count("disks by configuration replaced")

    def replace_disk(self, machine: Machine) -> None:
        """Whatever it held is gone."""
        self.world.count("disks replaced")
        self.world.end(machine, power=True)
        self.world.oracle.forgets(machine)
        machine.format()
        machine.rotten, machine.damaged_end = False, -1
