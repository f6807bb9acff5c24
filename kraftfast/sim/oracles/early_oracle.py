"""Check what loses data only after more faults than a run has; report it when it happens."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraftfast.core import events as ev
from kraftfast.core.messages import UNSAID, FetchRequest, VoteRequest
from kraftfast.sim.require import Violation, require
from kraftfast.types import NO_NODE, NO_OFFSET, ZERO_UUID, VoterSet

if TYPE_CHECKING:
    from kraftfast.sim.machines.process import Process
    from kraftfast.sim.oracles.world_invariants import Oracle
    from kraftfast.sim.world import World

IN_FLIGHT_US = 500_000
"""No message is on its way for longer than that."""


class EarlyOracle:
    """Rules whose breach does harm only once more than a minority has failed."""

    def __init__(self, world: World) -> None:
        self.world = world
        settings = world.settings
        self.hears_disks = bool(settings.changes) and "clock" not in settings.faults
        """Whether to note which directories leaders learn of: not where clocks may stop."""

    @property
    def oracle(self) -> Oracle:
        """Return the oracle of the logs."""
        return self.world.oracle

    def check(self, process: Process) -> None:
        """After every turn."""
        state = process.core._state
        leader, doubt = state.leader, state.doubt
        if state.follower is not None:
            self.follows(process)
        if leader is not None:
            if self.hears_disks and leader.change is not None:
                self.waits(process, leader.change)
            for barrier in leader.barriers:
                answered = len(leader.confirmed) >= leader.needed_of_others
                over = barrier.round < leader.barrier_round
                require(
                    not barrier.confirmed or over or answered,
                    f"D21: {process.id} takes a read barrier for confirmed in round "
                    f"{barrier.round}, which only {leader.confirmed} answered",
                )
        if doubt.phantom_tail is not None and not process.blocked:
            end_offset, tail = state.log.ackable_end_offset(), doubt.phantom_tail
            end = state.log.epoch_before(end_offset), end_offset
            require(
                end < (tail.epoch, tail.offset),
                f"D10: {process.id} is in doubt up to {tail}, and its disk holds its log up to "
                f"{end}",
            )

    def starts(self, process: Process) -> None:
        """I15: damage inside a log is told, though a snapshot covers it.

        Before the oracle looks at what was recovered. Of what the floor covers alone: behind it
        the end of a log that was torn by a power cut looks the same.
        """
        machine, shadow = process.machine, self.oracle.shadow(process.id)
        inside = 0 < machine.damaged_end <= process.floor.stored.offset
        if not inside or shadow.installing or not process.recovered.snapshots:
            return
        newest, start = process.recovered.snapshots[-1], process.log.segments[0].base_offset
        entry = shadow.below(newest.offset)
        ends = (entry.batch.end_offset, entry.batch.epoch) if entry is not None else None
        reached = ends == newest and shadow.durable >= newest.offset
        require(
            not reached or start < newest.offset or newest.offset < process.log.end_offset,
            f"I15: {process.id} tells of no damage and begins anew at {newest}, which its log held",
        )

    def floors(self, process: Process) -> None:
        """D23: the first commit of the newest segment, or behind the newest snapshot, is covered.

        After a look at the floor, which is put off on a full disk alone.
        """
        core, log, floor = process.core, process.log, process.floor
        begin = max([log.active.base_offset, *(each.offset for each in core.snapshots)])
        known = min(core.uncuttable_offset, log.flushed_end_offset)
        late = floor.writing or process.now_ms() < floor.retry_ms
        if not late and floor.stored.offset <= begin < known:
            raise Violation(
                f"D23: {process.id} has {known} on its disk and committed, begins its newest file "
                f"at {begin}, and keeps {floor.stored} as its floor"
            )

    def hears(self, process: Process, event: Any) -> None:
        """Note which directory a leader heard of last for each id: from a link or a Fetch."""
        if process.core.role != "leader":
            process.heard.clear()
        elif type(event) is ev.LinkUp:
            if event.directory_id != ZERO_UUID:
                process.heard[event.peer_id] = event.directory_id
        elif type(event) is ev.RequestReceived and type(event.request) is FetchRequest:
            replica = event.request.replica
            if replica.id != NO_NODE and event.request.epoch <= process.core.epoch:
                process.heard[replica.id] = replica.directory_id

    def waits(self, process: Process, change: Any) -> None:
        """D19: an addition must not wait for a directory after the leader heard its successor."""
        if not change.probed:
            return
        key = change.voter.key
        heard = process.heard.get(key.id, key.directory_id)
        require(
            heard == key.directory_id,
            f"D19: {process.id} waits for a Fetch of {key}, and has heard {heard!r} since",
        )

    def grows(self, process: Process, now: VoterSet, then: VoterSet) -> None:
        """D19: a leader must not add a directory after it heard its successor."""
        if not self.hears_disks:
            return
        for key in then.keys:
            heard = process.heard.get(key.id, key.directory_id)
            require(
                key.id in now or heard == key.directory_id,
                f"D19: {process.id} adds {key}, and has heard {heard!r} since",
            )

    def grants(self, process: Process, request: VoteRequest) -> None:
        """D23: a vote or pre-vote must not go to another directory than the voter set names.

        A candidate with a later set is exempt, and one of Kafka's, which does not say which it has.
        """
        key, told = request.replica, request.voters_at
        named, here = process.core.voters.get(key.id), process.core.history.latest_offset
        if named is None or named.directory_id in (ZERO_UUID, key.directory_id):
            return
        require(
            told == UNSAID.voters_at or told.offset > here,
            f"D23: {process.id} grants {key} a vote, whose directory is not {named.key}, by voters "
            f"at {told.offset}, here at {here}",
        )

    def follows(self, process: Process) -> None:
        """D23: a follower must leave a leader with another directory than its voter set names.

        The link of a ring tells the directory, else a message. One with a later set is exempt.
        """
        state, leader_id = process.core._state, process.core.leader_id
        told, named = state.leader_identity, process.core.voters.get(leader_id)
        if named is None or named.directory_id == ZERO_UUID:
            return
        directory_id, place = told.directory_id, told.voters_at.offset
        linked = state.peers.directory_of(leader_id)
        if linked not in (ZERO_UUID, directory_id):
            directory_id, place = linked, NO_OFFSET  # of another disk, whose set was not told
        here = process.core.history.latest_offset
        turned = directory_id not in self.world.machine(leader_id).directories()
        if turned and "corrupt_network" in self.world.settings.faults:
            return  # a bit of the message: the next one says it anew
        if directory_id not in (ZERO_UUID, named.directory_id) and place <= here:
            raise Violation(
                f"D23: {process.id} follows {leader_id}, whose directory is known not to be "
                f"{named.key}, by voters at {place}, here at {here}"
            )

    def cuts(self, process: Process, end_offset: int) -> None:
        """D23: neither a cut nor a snapshot may replace what is below the floor."""
        floor = process.floor.stored.offset
        require(
            end_offset >= floor,
            f"D23: {process.id} keeps its log only to {end_offset}, and {floor} is its floor",
        )

    def asks(self, process: Process) -> None:
        """D3: a replica must have flushed its whole log when a leader has it cut.

        It flushed before the Fetch, so no cut puts on disk what no flush has marked (D10).
        """
        end, flushed = process.log.end_offset, process.log.flushed_end_offset
        require(
            process.durability == "memory" or flushed == end,
            f"D3: {process.id} hears of a cut with {end} in its log, and {flushed} on its disk",
        )

    def copies(self, process: Process, leader: Process) -> None:
        """D23: nothing is taken from a leader whose directory the voters here name otherwise.

        Unless its own set is later, or the one before the latest here names it, which may count.
        """
        named, history = process.core.voters.get(leader.id), process.core.history
        key, before = leader.core._state.local, history.before_latest
        undone = before is not None and before.voters.is_voter(key)
        if named is None or named.directory_id in (ZERO_UUID, key.directory_id) or undone:
            return
        there, here = leader.core.history.latest_offset, history.latest_offset
        require(
            there > here,
            f"D23: {process.id} follows {leader.id}, whose directory is not {named.key}, by "
            f"voters at {there}, here at {here}",
        )

    def shrinks(self, process: Process, now: VoterSet, then: VoterSet) -> None:
        """Check a removal that the others cannot commit: too few of them ran lately.

        Not where clocks drift, nor of a leader that looks at old messages just now.
        """
        world, silent_us = self.world, process.settings.fetch_timeout_ms * 1000 + IN_FLIGHT_US
        away = world.now_us - process.away_us < silent_us
        if away or "clock" in process.settings.faults or not set(now.ids) - set(then.ids):
            return
        alive = [
            machine.id
            for machine in self.oracle.voters.machines(then)
            if machine.process is not None or world.now_us - machine.ended_us < silent_us
        ]
        require(
            len(alive) >= then.majority,
            f"D17: {process.id} goes from {now} to {then}, of whom only {alive} run",
        )

    def refuses_without_log(self, process: Process) -> None:
        """D23: a voter that says that it has no log has none, so that one may begin beside it."""
        end_offset = process.log.end_offset
        require(end_offset == 0, f"D23: {process.id} says that it has no log, of {end_offset}")

    def campaigns(self, process: Process, before: Any) -> None:
        """D23: no majority without a log begins one beside a voter that refuses and has one.

        One that said that it has none may have fetched one since.
        ``before``: the role in which it asked for pre-votes, until just now.
        """
        if process.core.role != "candidate" or process.log.end_offset > 0:
            return
        asked = before.election
        refused = [id for id in asked.rejected - asked.without_log if self._has_log(id)]
        require(
            not refused,
            f"D23: {process.id} has no log, and begins one though {refused}, with theirs, refuse",
        )

    def _has_log(self, id: int) -> bool:
        """Return whether a replica has a log, or had one when its process ended."""
        running = self.world.machine(id).process
        return (running.log.end_offset if running else self.oracle.shadow(id).end) > 0
