"""Faults of a few steps each, which chance hardly ever puts in this order: see ``plans``."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.messages import (
    AddRaftVoterRequest,
    RemoveRaftVoterRequest,
    UpdateFeaturesRequest,
)
from kraftfast.limits import PAGE_BYTES
from kraftfast.log.segment import LOG_SUFFIX, segment_name
from kraftfast.log.small_files.marks import PHANTOM_TAIL
from kraftfast.record.pure import encode_batch
from kraftfast.record.shapes import Record
from kraftfast.sim.faults.rotting import CRC_AT
from kraftfast.sim.operators.operator import TIMEOUT_MS
from kraftfast.sim.oracles.early_oracle import IN_FLIGHT_US
from kraftfast.types import Voter

if TYPE_CHECKING:
    from kraftfast.sim.machines.machine import Machine
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.shadow import BatchEntry
    from kraftfast.sim.settings import WorldSettings
    from kraftfast.sim.world import World

LOOK_US = 50
"""How often a moment is looked for."""
LOOKING_MAX = 4
"""Moments that are looked for side by side: a run that does little else looks endless (L7)."""
STARTS_MS = 1_010
"""Within that a machine whose process ended has the next one."""
ASK_US = 20_000
"""How often a request is made that may bring the moment about."""


class Planned:
    """The half of a :class:`~kraftfast.sim.faults.nemesis.Nemesis` that goes by a plan."""

    world: World
    random: Random
    settings: WorldSettings
    running: bool
    held: set[Machine]  # that are to stay down for now
    looking = 0  # how many moments are looked for

    def _after(self, ms_min: int, ms_max: int, call: Any, *arguments: Any) -> None:
        raise NotImplementedError

    def _cut_for_a_while(self, pairs: set[tuple[int, int]]) -> None:
        raise NotImplementedError

    def _rottable(self) -> Machine | None:
        raise NotImplementedError

    def _may_lose_power(self, machine: Machine) -> bool:
        raise NotImplementedError

    def _rot_tail(self, machine: Machine) -> None:
        raise NotImplementedError

    def _flip_batch(self, machine: Machine, among: int, begin: int) -> None:
        raise NotImplementedError

    def _await(self, look: Callable[[], bool], timeouts: int = 4) -> None:
        """Look again and again until something was done; for so many fetch timeouts."""
        if self.looking < LOOKING_MAX:
            self.looking += 1
            until_us = self.world.now_us + self.settings.fetch_timeout_ms * timeouts * 1000
            self._look(look, until_us)

    def _look(self, look: Callable[[], bool], until_us: int) -> None:
        if self.running and self.world.now_us < until_us and not look():
            self.world.later(LOOK_US, self._look, look, until_us)
        else:
            self.looking -= 1

    def _hold_down(self, machine: Machine, ms: int) -> None:
        """End its process, which does not come back for a while."""
        machine.may_start = False
        self.held.add(machine)
        self.world.end(machine, power=False)
        self._after(ms, ms, self._let_go, machine)

    def _let_go(self, machine: Machine) -> None:
        if machine in self.held:
            self.held.remove(machine)
            machine.may_start = True
            self.world.start_later(machine, 1_000)

    # --- voters --------------------------------------------------------------------------------

    def _upgrade_again(self) -> None:
        """Ask for an upgrade once more while the first is not committed."""
        operator, voters = self.world.operator, self.world.oracle.voters
        request, asked_us = UpdateFeaturesRequest(1, TIMEOUT_MS), 0

        def look() -> bool:
            nonlocal asked_us
            leader = self.world.leader()
            if voters.committed or leader is None:
                return bool(voters.committed)
            appended = leader.core.history.latest is not None
            if appended or self.world.now_us > asked_us + ASK_US:
                asked_us = self.world.now_us
                operator.ask(leader, request, [])
            if appended:
                self.world.count("upgrades asked for again")
            return appended

        self._await(look)

    def _remove_needed(self) -> None:
        """Remove a voter that the rest needs, because so many of the others are down."""
        leader, latest = self.world.leader(), self.world.oracle.voters.latest()
        voters = latest.voters
        there = [
            each
            for each in self.world.oracle.voters.machines(voters)
            if each.process is not None and each.process is not leader and each.is_sound
        ]
        ready = leader is not None and voters.is_voter(leader.machine.key) and latest.target is None
        if leader is None or not ready or len(there) < len(voters) - 1 or len(voters) % 2 == 0:
            return
        if len(voters) == 1:
            return  # it is the leader
        needed, *gone = self.random.sample(there, 1 + len(voters) // 2)
        silent_ms = self.settings.fetch_timeout_ms + IN_FLIGHT_US // 1000 + 5
        for machine in gone:
            self._hold_down(machine, silent_ms + 300)
        self._after(silent_ms, silent_ms + 50, self._ask_to_remove, leader, needed)

    def _ask_to_remove(self, leader: Process, needed: Machine) -> None:
        operator, voters = self.world.operator, self.world.oracle.voters.latest().voters
        if not self.running or not leader.alive or not voters.is_voter(needed.key):
            return
        if operator.order is None or not operator.order.is_open:
            request = RemoveRaftVoterRequest(needed.key, self.world.cluster_id)
            operator.ask(leader, request, [voters.without(needed.id)])
            self.world.count("needed voters named")

    def _add_unaware(self) -> None:
        """Add a voter that does not learn of it, and end the leader that added it, for ever."""
        leader, latest = self.world.leader(), self.world.oracle.voters.latest()
        voters, operator = latest.voters, self.world.operator
        machines = self.world.oracle.voters.machines(voters)
        whole = all(each.is_sound and each.process is not None for each in machines)
        others = [
            each
            for each in self.world.machines
            if each.id not in voters and each.process is not None and each.is_sound
        ]
        open_order = operator.order is not None and operator.order.is_open
        if leader is None or not whole or not others or len(voters) % 2 or open_order:
            return
        machine = self.random.choice(others)
        then = voters.with_voter(Voter(*machine.key, machine.endpoints, 0, 1))
        request = AddRaftVoterRequest(
            machine.key, machine.endpoints, TIMEOUT_MS, True, self.world.cluster_id
        )
        operator.ask(leader, request, [then])
        self._await(lambda: self._is_unaware(leader, machine))

    def _is_unaware(self, leader: Process, machine: Machine) -> bool:
        """Cut the new voter off once the leader has appended the voter set that names it."""
        if not leader.alive or machine.process is None:
            return True
        if not leader.core.voters.is_voter(machine.key):
            return False
        if machine.process.core.voters.is_voter(machine.key):
            return True  # it was quicker
        self._part(machine, self.settings.fetch_timeout_ms * 2)
        self._await(lambda: self._burns_down(leader, machine), 1)
        return True

    def _burns_down(self, leader: Process, added: Machine) -> bool:
        committed = self.world.oracle.voters.latest().voters.is_voter(added.key)
        if not committed or not leader.alive:
            return not leader.alive
        if self.world.operator.can_spare(leader.machine):
            self.world.count("leaders gone for good")
            leader.machine.dead = "it burnt down"
            self.world.end(leader.machine, power=True)
        return True

    def _replace_added(self) -> None:
        """Replace the disk of an observer while it is being added as a voter (D19).

        Replace it before the request, which then names a directory that is gone, or while the
        leader waits for its probe or for its Fetch. The voters can do without it if it is added.
        """
        leader, operator = self.world.leader(), self.world.operator
        state = leader.core._state.leader if leader is not None else None
        open_order = operator.order is not None and operator.order.is_open
        if leader is None or state is None or open_order or self.looking:
            return
        known = {key for key, each in state.observers.items() if each.last_caught_up_ms >= 0}
        there = [each for each in self.world.machines if each.key in known and each.process]
        if not there or self.world.oracle.voters.latest().target is not None:
            return
        machine, key = there[0], there[0].key
        voters = self.world.oracle.voters.latest().voters
        then = voters.with_voter(Voter(*key, machine.endpoints, 0, 1))
        if not operator.goes_on(then, machine):
            return
        if self.random.random() < 0.5:
            request = AddRaftVoterRequest(
                key, machine.endpoints, TIMEOUT_MS, self.random.random() < 0.3
            )
            operator.replace_disk(machine)
            self._await(lambda: self._name_once_heard(leader, machine, request))
        else:
            request = AddRaftVoterRequest(key, machine.endpoints, TIMEOUT_MS, True)
            operator.ask(leader, request, [then])
            probed = self.random.random() < 0.7
            self._await(lambda: self._replace_when_asked(leader, machine, probed))

    def _name_once_heard(self, leader: Process, machine: Machine, request: Any) -> bool:
        """Ask to add the directory that is gone as soon as the leader has heard its successor."""
        if not leader.alive or leader.heard.get(machine.id) != machine.key.directory_id:
            return not leader.alive
        self.world.count("disks of additions replaced")
        self.world.operator.ask(leader, request, []).gone = True
        return True

    def _replace_when_asked(self, leader: Process, machine: Machine, probed: bool) -> bool:
        """Replace the disk once the leader has sent the probe, or has its answer."""
        state = leader.core._state.leader if leader.alive else None
        change = state.change if state is not None else None
        if change is None or change.voter is None or change.fetched:
            return True
        if not (change.probed if probed else change.probe):
            return False
        if machine.process is not None:
            self.world.count("disks of additions replaced")
            self.world.operator.replace_disk(machine)
        return True

    # --- doubt ------------------------------------------------------------------------------------

    def _begin_in_doubt(self) -> None:
        """Take the memory of one voter and another one for ever, before any has a log (D10).

        The first is in doubt of a log that it never had, and none is elected by all. The others,
        a majority that is certain, must begin without them; not before the first is back.
        """
        world, voters = self.world, self.world.voters()
        logs = [each.process.log.end_offset for each in voters if each.process is not None]
        if any(logs) or len(logs) < len(voters):
            return
        in_doubt, gone = self.random.sample(voters, 2)
        for machine in voters:
            self._part(machine, STARTS_MS)
        gone.dead = "it burnt down"
        world.end(gone, power=True)
        world.end(in_doubt, power=True)
        self._after(STARTS_MS, STARTS_MS, self._note_doubt, in_doubt)

    def _note_doubt(self, machine: Machine) -> None:
        process = machine.process
        if process is not None and process.core.in_doubt and not process.log.end_offset:
            self.world.count("voters in doubt without a log")

    # --- disks ------------------------------------------------------------------------------------

    def _doubt_again(self) -> None:
        """End a replica when its doubt is settled, before the mark of it is gone (D10)."""

        machine = self._rottable()
        if machine is None or machine.process is None or not self._may_lose_power(machine):
            return
        self.world.end(machine, power=True)
        self._rot_tail(machine)

        def look() -> bool:
            process = machine.process
            if process is None or process.recovered.phantom_tail is None:
                return process is not None or bool(machine.dead)
            if process.core.in_doubt:
                self.world.count("ends with a mark that may go")
                machine.crash_loses_power = self.random.random() < 0.5
                machine.disk.crash_at(0, PHANTOM_TAIL)
            return True

        self._await(look, 8)

    def _stop_and_shorten(self) -> None:
        """Stop a replica in order; then remove the end of its log, whole batches of it (D10)."""
        machine = self._rottable()
        if machine is not None and machine.process is not None:
            process = machine.process
            process.enter(process.step, ev.ShutdownRequested(self.settings.fetch_timeout_ms))
            self._await(lambda: self._shorten(machine, process))

    def _shorten(self, machine: Machine, process: Process) -> bool:
        if machine.process is process:
            return False
        shadow = self.world.oracle.shadow(machine.id)
        above = [
            each for each in shadow.entries if each.batch.base_offset >= process.floor.stored.offset
        ]
        spare = not machine.rotten and self.world.operator.can_spare(machine)
        if machine.process is None and above and process.stopped and spare:
            entry = self.random.choice(above)
            if entry.segment_base == shadow.entries[-1].segment_base:
                self.shorten(machine, entry)
        return True

    def shorten(self, machine: Machine, entry: BatchEntry) -> None:
        """End the last segment of a machine that is down where this batch began."""
        name = segment_name(entry.segment_base) + LOG_SUFFIX
        file = machine.disk.paged_file(f"{self.world.log_path(machine)}/{name}")
        if file is not None:
            self.world.count("logs without their ends")
            machine.rotten = True
            file.resize(entry.position)
            file.begin_sync(self.random)
            file.end_sync(self.random)

    def _rot_below_snapshot(self) -> None:
        """Change a byte in a log whose newest snapshot holds all of it (I15)."""

        def look() -> bool:
            machine = self._rottable()
            process = machine.process if machine is not None else None
            if machine is None or process is None or not process.core.snapshots:
                return False
            log, newest = process.log, process.core.snapshots[-1]
            entries = self.world.oracle.shadow(machine.id).entries
            among = sum(each.batch.end_offset <= process.floor.stored.offset for each in entries)
            if newest.offset < log.end_offset or not among:
                return False
            self.world.count("rot below a snapshot")
            self.world.end(machine, power=self.random.random() < 0.5)
            self._flip_batch(machine, among, CRC_AT)
            return True

        self._await(look, 8)

    def _full_at_trim(self) -> None:
        """Fill a disk just when its log is to begin later (D25)."""
        machine = self.random.choice(self.world.machines)
        machine.disk.fill_at("/recycled-", 0)
        self._after(300, 1_500, machine.disk.give_space)

    def _cut_at_page(self) -> None:
        """Have a leader cut what it appended while cut off, into a file that was trimmed before.

        Where a record looks like a page of the log, that file must not pass for a prepared one at
        the second start behind that.
        """
        leader = self.world.leader()
        if leader is None:
            return
        machine, cuts = leader.machine, leader.log.truncations
        self._part(machine, self.settings.fetch_timeout_ms * 2)

        def look() -> bool:
            if not leader.alive or leader.log.truncations == cuts:
                return not leader.alive
            if any(_looks_prepared(each) for each in leader.log.segments[:-1]):
                self.world.count("files that end like prepared ones")
            self.world.end(machine, power=False)
            self._after(300, 300, self.world.end, machine, False)
            return True

        self._await(look, 8)

    def _old_batches(self) -> None:
        """Cut the power of a leader whose file held what would pass for its next batch (D10).

        A producer may have planted it in the life of the file before: whole, with the offset and
        the epoch that it needs. Which pages are lost is chance; it may not be taken in any case.
        """
        leader = self.world.leader()
        if leader is None or self.looking or leader.machine.flushes_hang:
            return
        machine = leader.machine

        def look() -> bool:
            if not leader.alive or leader.core.role != "leader":
                return True
            if not leader.log.active.key:
                return False
            if not machine.flushes_hang:  # so that there are batches to lose
                machine.flushes_hang = True
                self._after(300, 300, setattr, machine, "flushes_hang", False)
            shadow = self.world.oracle.shadow(leader.id)
            unflushed = shadow.between(leader.log.flushed_end_offset, shadow.end)
            if self._may_lose_power(machine) and _plant_batch(leader, unflushed):
                self.world.count("power cuts before old batches")
                self.world.end(machine, power=True)
                return True
            return False

        self._await(look, 12)

    def _part(self, machine: Machine, lasts_ms: int) -> None:
        """Cut this machine off for a while, in both directions."""
        pairs = {(machine.id, each.id) for each in self.world.machines}
        pairs |= {(b, a) for a, b in pairs}
        self.world.network.cut |= pairs
        self._after(lasts_ms, lasts_ms, self.world.network.cut.difference_update, pairs)


def _looks_prepared(segment: Any) -> bool:
    """Return whether a trimmed file was cut behind what looks like a page of the log."""
    return not (segment.has_page or segment.may_trim())


def _plant_batch(process: Process, unflushed: list[BatchEntry]) -> bool:
    """Have the disk hold another batch where one of these stands; return whether that could be.

    It can only where the file had another life, in a page that no flush of this one has reached.
    """
    active = process.log.active
    flushed_pages = active.flushed_position // PAGE_BYTES + 2  # with the zeros behind its end
    for entry in unflushed[1:]:  # the first has its header in a page that was flushed
        page, at = divmod(entry.position, PAGE_BYTES)
        batch, is_here = entry.batch, entry.segment_base == active.base_offset
        planted = encode_batch([Record(batch.base_offset, 0, None, b"")], leader_epoch=batch.epoch)
        if active.key and is_here and page >= flushed_pages and at + len(planted) <= PAGE_BYTES:
            image = bytearray(active.file.view(page * PAGE_BYTES, (page + 1) * PAGE_BYTES))
            image[at : at + len(planted)] = planted
            return bool(active.file.paged.plant(page, bytes(image)))
    return False
